// HTTP/2 upstreams: which version is chosen, what is passed on, and that a cut response is never taken for a whole one.
import { once } from 'node:events';
import {
  createSecureServer,
  sensitiveHeaders,
  type Http2SecureServer,
  type SecureServerOptions,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import t, { test, type Test } from 'tap';
import { createUpstream } from '../../../proxy/upstream/upstream.ts';
import { destinationOf, LOOPBACK, send, type SendOptions } from '../../support/exchange-log.ts';
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  frame,
  goawayFrame,
  literalField,
  resetFrame,
  serveFrames,
  STATUS_200,
} from '../../support/raw-http2.ts';
import { answer, openRawServer } from '../../support/raw-server.ts';
import { createTestAuthority } from '../../support/test-authority.ts';

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test']);
const upstream = createUpstream({
  allowedCidrs: LOOPBACK,
  ownListeners: () => [],
  extraCaPem: authority.caPem,
  resolve: () => Promise.resolve(['127.0.0.1']),
});
t.teardown(() => upstream.close());
const http2: SendOptions = { clientVersion: '2' };

type Sensitive = Record<typeof sensitiveHeaders, string[]>;

interface Opened {
  readonly port: number;
  readonly sockets: Set<Socket>;
  readonly server: Http2SecureServer;
}

async function openServer(
  t: Test,
  onStream: (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void,
  options: SecureServerOptions = {},
): Promise<Opened> {
  const server = createSecureServer({ ...leaf, ...options });
  const sockets = new Set<Socket>();
  server.on('secureConnection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
  });
  server.on('sessionError', () => undefined);
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    onStream(stream, headers);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return { port: (server.address() as AddressInfo).port, sockets, server };
}

/** A TLS server that agrees to HTTP/2 and says the frames that a test wants for each request. */
async function openFrameServer(
  t: Test,
  script: (socket: Socket, streamId: number, connectionIndex: number) => void,
): Promise<{ port: number; count: () => number }> {
  const sockets: Socket[] = [];
  const server = createTlsServer({ ...leaf, ALPNProtocols: ['h2'] }, (socket) => {
    const index = sockets.push(socket) - 1;
    serveFrames(socket, (streamId) => script(socket, streamId, index));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return { port: (server.address() as AddressInfo).port, count: () => sockets.length };
}

const headersFrame = (streamId: number, flags = 0): Buffer =>
  frame(FRAME.headers, streamId, { flags: END_HEADERS | flags, payload: STATUS_200 });
const dataFrame = (streamId: number, text: string, flags = 0): Buffer =>
  frame(FRAME.data, streamId, { flags, payload: Buffer.from(text) });
const whole = (streamId: number): Buffer =>
  Buffer.concat([headersFrame(streamId), dataFrame(streamId, 'ok', END_STREAM)]);

test('a request that came by HTTP/2 goes on by HTTP/2, all on one connection', async (t) => {
  const seen: Record<string, unknown>[] = [];
  const server = await openServer(t, (stream, headers) => {
    seen.push(headers);
    stream.respond({ ':status': 207, 'set-cookie': ['a=1', 'b=2'] });
    stream.end('body');
  });
  const destination = destinationOf(server.port);
  const headers = [
    'Host',
    'api.test:1',
    'X-Case',
    'caf\xe9',
    'Connection',
    'x',
    'cookie',
    'a=1',
    'cookie',
    'b=2',
    'TE',
    'trailers',
    'authorization',
    's3cret',
  ];
  const options: SendOptions = {
    ...http2,
    headers,
    target: '/p?q',
    sensitiveNames: new Set(['authorization', 'absent']),
  };
  const results = await Promise.all(Array.from({ length: 20 }, () => send(upstream, destination, options)));
  for (const result of results) {
    t.match(result, { error: null, body: 'body', head: { status: 207, httpVersion: '2', body: { kind: 'stream' } } });
  }
  t.strictSame(results[0]?.head?.headers.slice(0, 4), ['set-cookie', 'a=1', 'set-cookie', 'b=2']);
  t.equal(server.sockets.size, 1, 'one handshake for all');
  t.match(seen[0], {
    ':method': 'GET',
    ':scheme': 'https',
    ':authority': 'api.test:1',
    ':path': '/p?q',
    'x-case': 'caf\xe9',
    te: 'trailers',
  });
  t.equal(seen[0]?.['cookie'], 'a=1; b=2');
  t.equal('connection' in (seen[0] as object), false);
  t.ok((seen[0] as Sensitive)[sensitiveHeaders]?.includes('authorization'));
  const foreign = destinationOf(server.port, { sessionId: 'sesn_2' });
  t.strictSame(
    [destination, foreign].map((other) => upstream.isConnected(other)),
    [true, false],
  );
  await send(upstream, foreign, http2);
  t.equal(server.sockets.size, 2, 'another session has another connection');
  upstream.closeSession('sesn_2');
  while (upstream.isConnected(foreign)) await new Promise(setImmediate);
  t.ok(upstream.isConnected(destination));
});

test('the version follows the client, except where the upstream speaks one only', async (t) => {
  const versions: string[] = [];
  const both = createSecureServer({ ...leaf, allowHTTP1: true }, (request, response) => {
    versions.push(request.httpVersion);
    response.end('ok');
  });
  both.listen(0, '127.0.0.1');
  await once(both, 'listening');
  t.teardown(() => both.close());
  const destination = destinationOf((both.address() as AddressInfo).port);
  t.equal((await send(upstream, destination, { clientVersion: '1.1' })).head?.httpVersion, '1.1');
  t.equal((await send(upstream, destination, http2)).head?.httpVersion, '2');
  t.strictSame(versions, ['1.1', '2.0']);

  const only = await openServer(t, (stream) => stream.end('h2'));
  for (let count = 0; count < 2; count += 1) {
    t.match(await send(upstream, destinationOf(only.port), { clientVersion: '1.1' }), { error: null, body: 'h2' });
  }
  t.equal(only.sockets.size, 1, 'the second request asked for HTTP/2 at once');
  const socket = await send(upstream, destinationOf(only.port), { upgrade: 'websocket', clientVersion: '2' });
  t.match(socket.error, { code: 'upstream_tls_failed', message: /neither HTTP\/1\.1 nor HTTP\/2/ });

  const old = await openRawServer(
    (connection, received) => {
      if (received.endsWith('\r\n\r\n')) connection.write(answer('ok'));
    },
    { tls: leaf },
  );
  t.teardown(() => old.close());
  const results = await Promise.all(Array.from({ length: 3 }, () => send(upstream, destinationOf(old.port), http2)));
  t.strictSame(
    results.map((result) => result.body),
    ['ok', 'ok', 'ok'],
  );
  t.equal(results[0]?.head?.httpVersion, '1.1');
  t.equal(old.connectionCount, 3);
  await send(upstream, destinationOf(old.port), http2);
  t.equal(old.connectionCount, 3, 'the HTTP/1.1 pool serves it');
});

test('bodies, trailers and interim responses pass both ways, and a stream is bidirectional', async (t) => {
  const server = await openServer(t, (stream, headers) => {
    if (headers[':path'] === '/headers-only') {
      stream.respond({ ':status': 404 }, { endStream: true });
      return;
    }
    stream.additionalHeaders({ ':status': 103 });
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    let sum = '';
    stream.on('trailers', (trailers: Record<string, string>) => (sum = trailers['x-sum'] ?? ''));
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': `${sum}!` }));
    stream.on('data', (chunk) => stream.write(chunk));
    stream.on('end', () => setImmediate(() => stream.end()));
  });
  const result = await send(upstream, destinationOf(server.port), {
    ...http2,
    method: 'POST',
    body: { kind: 'stream' },
    onExchange: (exchange) => exchange.write(Buffer.from('ping')),
    onData: (_chunk, exchange) => {
      exchange?.end(['X-Sum', '7']);
      return true;
    },
  });
  t.match(result, { error: null, body: 'ping', interim: [103] });
  t.strictSame(result.trailers, ['x-sum', '7!']);
  const length = await send(upstream, destinationOf(server.port), {
    ...http2,
    method: 'POST',
    body: { kind: 'length', bytes: 3 },
    onExchange: (exchange) => {
      exchange.write(Buffer.from('abc'));
      exchange.end();
    },
  });
  t.equal(length.body, 'abc');
  for (const text of ['ab', 'abcd']) {
    const wrong = await send(upstream, destinationOf(server.port), {
      ...http2,
      method: 'POST',
      body: { kind: 'length', bytes: 3 },
      onExchange: (exchange) => {
        exchange.write(Buffer.from(text));
        exchange.end();
      },
    });
    t.match(wrong.error, { code: 'upstream_protocol_error', message: /not as long/ });
  }
  const bare = await send(upstream, destinationOf(server.port), { ...http2, target: '/headers-only' });
  t.match(bare, { error: null, head: { status: 404, body: { kind: 'none' } } });
  t.match((await send(upstream, destinationOf(server.port), { ...http2, headers: ['X', 'a\nb'] })).error, {
    code: 'bad_request',
  });
  const badTrailer = await send(upstream, destinationOf(server.port), {
    ...http2,
    method: 'POST',
    body: { kind: 'stream' },
    onExchange: (exchange) => exchange.end(['X', 'a\nb']),
  });
  t.match(badTrailer.error, { code: 'bad_request' });
});

test('a cut response is an error whatever cuts it, and a whole one is whole', async (t) => {
  const part = (id: number): Buffer => Buffer.concat([headersFrame(id), dataFrame(id, 'part')]);
  const cuts: Record<string, (socket: Socket, id: number) => void> = {
    'RST_STREAM(NO_ERROR)': (socket, id) => socket.write(Buffer.concat([part(id), resetFrame(id, 0)])),
    'RST_STREAM(CANCEL)': (socket, id) => socket.write(Buffer.concat([part(id), resetFrame(id, 8)])),
    'RST_STREAM(INTERNAL_ERROR)': (socket, id) => socket.write(Buffer.concat([part(id), resetFrame(id, 2)])),
    'a dead socket': (socket, id) => socket.write(part(id), () => socket.destroy()),
    'an ended socket': (socket, id) => socket.end(part(id)),
    'GOAWAY and an ended socket': (socket, id) => socket.end(Buffer.concat([part(id), goawayFrame(id, 0)])),
    'GOAWAY with an error': (socket, id) => socket.write(Buffer.concat([part(id), goawayFrame(id, 2)])),
    'a second head': (socket, id) => socket.write(Buffer.concat([headersFrame(id), headersFrame(id)])),
  };
  for (const [name, script] of Object.entries(cuts)) {
    for (const body of [{ kind: 'none' }, { kind: 'stream' }] as const) {
      const server = await openFrameServer(t, script);
      const result = await send(upstream, destinationOf(server.port), { ...http2, body, onExchange: () => undefined });
      t.match(
        result.error,
        { code: 'upstream_protocol_error', message: /ended the HTTP\/2 stream early/ },
        `${name}, ${body.kind}`,
      );
    }
  }
  const trailers = frame(FRAME.headers, 1, { flags: END_HEADERS | END_STREAM, payload: literalField('x', 'y') });
  const wholes: Record<string, Buffer> = {
    'END_STREAM on DATA': whole(1),
    'END_STREAM on DATA, then a reset': Buffer.concat([whole(1), resetFrame(1, 0)]),
    'END_STREAM on trailers': Buffer.concat([headersFrame(1), dataFrame(1, 'ok'), trailers]),
  };
  for (const [name, bytes] of Object.entries(wholes)) {
    const server = await openFrameServer(t, (socket) => socket.write(bytes));
    // A reader that is slow sees the end long after the stream is closed.
    const result = await send(upstream, destinationOf(server.port), {
      ...http2,
      onData: (_chunk, exchange) => {
        setImmediate(() => setImmediate(() => exchange?.resume()));
        return false;
      },
    });
    t.match(result, { error: null, body: 'ok' }, name);
    t.strictSame(result.trailers, name.includes('trailers') ? ['x', 'y'] : [], name);
  }
});

test('what the upstream has not processed is sent again once, on another connection', async (t) => {
  const firsts: Record<string, (socket: Socket, id: number) => void> = {
    REFUSED_STREAM: (socket, id) => socket.write(resetFrame(id, 7)),
    'GOAWAY before it': (socket) => socket.write(goawayFrame(0, 0)),
    'GOAWAY with an error before it': (socket) => socket.write(goawayFrame(0, 2)),
  };
  for (const [name, first] of Object.entries(firsts)) {
    const server = await openFrameServer(t, (socket, id, index) =>
      index === 0 ? first(socket, id) : socket.write(whole(id)),
    );
    t.match(
      await send(upstream, destinationOf(server.port), { ...http2, method: 'POST' }),
      { error: null, body: 'ok' },
      name,
    );
    t.equal(server.count(), 2, name);
  }
  const always = await openFrameServer(t, (socket, id) => socket.write(resetFrame(id, 7)));
  t.match((await send(upstream, destinationOf(always.port), http2)).error, {
    code: 'upstream_protocol_error',
    message: /REFUSED_STREAM/,
  });
  t.equal(always.count(), 2);
  const withBody = await openFrameServer(t, (socket, id) => socket.write(resetFrame(id, 7)));
  const posted = await send(upstream, destinationOf(withBody.port), { ...http2, body: { kind: 'stream' } });
  t.match(posted.error, { code: 'upstream_protocol_error' });
  t.equal(withBody.count(), 1);
  const stale = await openFrameServer(t, (socket, id, index) => {
    if (index === 0 && id > 1) socket.destroy();
    else socket.write(whole(id));
  });
  await send(upstream, destinationOf(stale.port), http2);
  t.match(
    await send(upstream, destinationOf(stale.port), http2),
    { error: null, body: 'ok' },
    'a connection that died while it was idle',
  );
  t.equal(stale.count(), 2);
});

test('a slow reader holds a stream back without holding up others', async (t) => {
  const size = 4 * 1024 * 1024;
  const server = await openServer(t, (stream, headers) => {
    stream.respond({ ':status': 200 });
    stream.end(headers[':path'] === '/big' ? Buffer.alloc(size) : 'small');
  });
  let got = 0;
  const big = await send(upstream, destinationOf(server.port), {
    ...http2,
    target: '/big',
    onData: (chunk, exchange) => {
      got += chunk.length;
      if (got !== chunk.length) return true;
      void send(upstream, destinationOf(server.port), http2).then((small) => {
        t.equal(small.body, 'small');
        t.ok(got < size / 2, 'the big one waits');
        exchange?.resume();
      });
      return false;
    },
  });
  t.equal(big.body.length, size);
});

test('aborts, time-outs and closed sessions reset what is under way', async (t) => {
  const closes: number[] = [];
  let onClose = (): void => undefined;
  const server = await openServer(t, (stream, headers) => {
    stream.on('close', () => {
      closes.push(stream.rstCode);
      onClose();
    });
    if (headers[':path'] === '/head') stream.respond({ ':status': 200 });
  });
  const destination = destinationOf(server.port);
  const aborted = new Promise<void>((resolve) => (onClose = resolve));
  let isOver = false;
  void send(upstream, destination, { ...http2, target: '/head', onHead: (_head, exchange) => exchange?.abort() }).then(
    () => (isOver = true),
  );
  await aborted;
  t.strictSame([closes[0], isOver], [8, false]);
  t.match((await send(upstream, destination, { ...http2, responseTimeoutMs: 30 })).error, { code: 'upstream_timeout' });
  t.equal(server.sockets.size, 1);
  const cut = await send(upstream, destination, {
    ...http2,
    target: '/head',
    onHead: () => upstream.closeSession('sesn_1'),
  });
  t.match(cut.error, { code: 'upstream_protocol_error' });
  const waiting = send(upstream, destination, http2);
  setImmediate(() => upstream.closeSession('sesn_1'));
  t.type((await waiting).error, Error);
  t.ok(server.sockets.size <= 3, 'nothing was sent again');
});

test('an idle HTTP/2 connection is closed after its time, and close leaves none', async (t) => {
  const own = createUpstream({
    allowedCidrs: LOOPBACK,
    ownListeners: () => [],
    extraCaPem: authority.caPem,
    resolve: () => Promise.resolve(['127.0.0.1']),
    idleTimeoutMs: 20,
  });
  const server = await openServer(t, (stream) => stream.end('ok'));
  await send(own, destinationOf(server.port), http2);
  const [socket] = [...server.sockets];
  await once(socket as Socket, 'close');
  await send(own, destinationOf(server.port), http2);
  t.equal(server.sockets.size, 2);
  await own.close();
  t.pass('closed');
});
