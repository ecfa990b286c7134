// HTTP/1.1 upstreams over real sockets: pools, failures at every stage, limits of time, and that nothing stays open.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t, { test, type Test } from 'tap';
import type { Upstream } from '../../../proxy/exchange.ts';
import { createUpstream, type UpstreamOptions } from '../../../proxy/upstream/upstream.ts';
import { destinationOf, LOOPBACK, send } from '../../support/exchange-log.ts';
import { answer, openRawServer, type RawServer, type RawServerOptions, type Script } from '../../support/raw-server.ts';
import { createTestAuthority } from '../../support/test-authority.ts';

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test', '127.0.0.1']);
const tls = { ...leaf, ALPNProtocols: ['http/1.1'] };

function openUpstream(t: Pick<Test, 'teardown'>, options: Partial<UpstreamOptions> = {}): Upstream {
  const upstream = createUpstream({
    allowedCidrs: LOOPBACK,
    ownListeners: () => [],
    extraCaPem: authority.caPem,
    resolve: () => Promise.resolve(['127.0.0.1']),
    ...options,
  });
  t.teardown(() => upstream.close());
  return upstream;
}

const shared = openUpstream(t);

async function openServer(t: Test, script: Script, options: RawServerOptions = { tls }): Promise<RawServer> {
  const server = await openRawServer(script, options);
  t.teardown(() => server.close());
  return server;
}

/** Answers every request that has come whole, as long as requests have no body. */
const answering =
  (body: string, fields = ''): Script =>
  (socket, received) => {
    if (received.endsWith('\r\n\r\n')) socket.write(answer(body, fields));
  };

test('requests of one session to one origin share a connection, those of others never', async (t) => {
  const upstream = shared;
  const server = await openServer(t, answering('ok'));
  const destination = destinationOf(server.port);
  t.equal((await send(upstream, destination)).body, 'ok');
  t.equal((await send(upstream, destination)).body, 'ok');
  t.equal(server.connectionCount, 1);
  await send(upstream, destinationOf(server.port, { sessionId: 'sesn_2' }));
  t.equal(server.connectionCount, 2);
  await send(upstream, destinationOf(server.port, { host: '127.0.0.1' }));
  t.equal(server.connectionCount, 3);
  const [one, two] = await Promise.all([send(upstream, destination), send(upstream, destination)]);
  t.strictSame([one.body, two.body], ['ok', 'ok']);
  t.equal(server.connectionCount, 4, 'one of the two had to open another');
});

test('a connection is not used again after close, extra bytes, an early answer, or its idle time', async (t) => {
  const upstream = shared;
  const scripts: Record<string, Script> = {
    'Connection: close': answering('ok', 'Connection: close\r\n'),
    'extra bytes': (socket) => socket.write(`${answer('ok')}x`),
    'extra bytes later': (socket) => {
      socket.write(answer('ok'));
      setImmediate(() => socket.write(answer('evil')));
    },
    'Keep-Alive: timeout=1': answering('ok', 'Keep-Alive: timeout=1\r\n'),
    'HTTP/1.0': (socket) => socket.end('HTTP/1.0 200 OK\r\n\r\nok'),
  };
  for (const [name, script] of Object.entries(scripts)) {
    const server = await openServer(t, script);
    t.equal((await send(upstream, destinationOf(server.port))).body, 'ok', name);
    await server.drained();
    t.equal((await send(upstream, destinationOf(server.port))).body, 'ok', name);
    t.equal(server.connectionCount, 2, name);
  }
});

test('a body goes out by length or in chunks with trailers, and comes back so', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket, received) => {
    if (received.endsWith('hello')) socket.write(answer('len'));
    if (received.endsWith('0\r\nX-Sum: 1\r\n\r\n')) {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nchun\r\n1\r\nk\r\n0\r\nX-Sum: 2\r\n\r\n');
    }
  });
  const length = await send(upstream, destinationOf(server.port), {
    method: 'POST',
    body: { kind: 'length', bytes: 5 },
    onExchange: (exchange) => {
      exchange.write(Buffer.from('hel'));
      exchange.write(Buffer.from('lo'));
      exchange.end();
    },
  });
  t.equal(length.body, 'len');
  const chunked = await send(upstream, destinationOf(server.port), {
    method: 'POST',
    body: { kind: 'stream' },
    onExchange: (exchange) => {
      exchange.write(Buffer.alloc(0));
      exchange.write(Buffer.from('0123456789'));
      exchange.end(['X-Sum', '1']);
    },
  });
  t.equal(chunked.body, 'chunk');
  t.strictSame(chunked.trailers, ['X-Sum', '2']);
  t.equal(server.connectionCount, 1);
  t.match(server.received[0], /\r\n\r\na\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n$/);
});

test('a request body that is shorter or longer than it said kills the connection', async (t) => {
  const upstream = shared;
  const server = await openServer(t, () => undefined);
  for (const text of ['four', 'sixsix']) {
    const result = await send(upstream, destinationOf(server.port), {
      method: 'POST',
      body: { kind: 'length', bytes: 5 },
      onExchange: (exchange) => {
        exchange.write(Buffer.from(text));
        exchange.end();
      },
    });
    t.match(result.error, { code: 'upstream_protocol_error', message: /not as long as it said/ });
  }
  await server.drained();
});

test('an answer that comes before the end of the request body ends the sending', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket, received) => {
    if (received.endsWith('part\r\n')) socket.write(answer('no thanks'));
  });
  const result = await send(upstream, destinationOf(server.port), {
    method: 'POST',
    body: { kind: 'stream' },
    onExchange: (exchange) => exchange.write(Buffer.from('part')),
  });
  t.equal(result.body, 'no thanks');
  await server.drained();
});

test('interim responses are told before the final one', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket) => {
    socket.write(`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n${answer('ok')}`);
  });
  const result = await send(upstream, destinationOf(server.port));
  t.strictSame(result.interim, [100, 103]);
  t.equal(result.body, 'ok');
});

test('a protocol that was asked for is switched to, and the socket is handed over', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket, received) => {
    if (received.endsWith('\r\n\r\n'))
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst');
    else socket.end('echo');
  });
  const { upgrade } = await send(upstream, destinationOf(server.port), { upgrade: 'websocket', clientVersion: '2' });
  t.equal(upgrade?.firstBytes.toString(), 'first');
  upgrade?.socket.write('over to you');
  upgrade?.socket.resume();
  const [bytes] = (await once(upgrade?.socket as Socket, 'data')) as [Buffer];
  t.equal(bytes.toString(), 'echo');
});

test('each way in which an upstream can fail has its code, and the next request succeeds', async (t) => {
  const now = Date.now();
  const past = { notBefore: new Date(now - 2e9), notAfter: new Date(now - 1e9) };
  const future = { notBefore: new Date(now + 1e9), notAfter: new Date(now + 2e9) };
  const foreign = createTestAuthority('Foreign Root').leafFor(['api.test']);
  const die: Script = (socket) => socket.destroy();
  const stages: [name: string, code: string, words: RegExp, script: Script, options: RawServerOptions][] = [
    ['resets in the handshake', 'upstream_tls_failed', /closed the connection during the TLS handshake/, die, {}],
    [
      'speaks no TLS',
      'upstream_tls_failed',
      /does not speak TLS/,
      (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
      {},
    ],
    ['expired', 'upstream_tls_failed', /has expired/, die, { tls: authority.leafFor(['api.test'], past) }],
    ['not valid yet', 'upstream_tls_failed', /not valid yet/, die, { tls: authority.leafFor(['api.test'], future) }],
    ['wrong name', 'upstream_tls_failed', /for another name/, die, { tls: authority.leafFor(['other.test']) }],
    [
      'untrusted root',
      'upstream_tls_failed',
      /not signed by a trusted authority.*KEYVEIL_UPSTREAM_CA_FILE/,
      die,
      { tls: foreign },
    ],
    ['closes before its answer', 'upstream_protocol_error', /broke|closed the connection before/, die, { tls }],
    [
      'dies in the head',
      'upstream_protocol_error',
      /closed the connection before/,
      (socket) => socket.end('HTTP/1.1 200 OK\r\nX'),
      { tls },
    ],
    [
      'dies in the body',
      'upstream_protocol_error',
      /in the middle of its response/,
      (socket) => socket.end(answer('whole').slice(0, -1)),
      { tls },
    ],
    [
      'sends garbage',
      'upstream_protocol_error',
      /does not speak HTTP\/1/,
      (socket) => socket.write('SSH-2.0-x\r\n'),
      { tls },
    ],
    ['stalls before its answer', 'upstream_timeout', /within 0\.05 s/, () => undefined, { tls }],
  ];
  const upstream = shared;
  for (const [name, code, words, script, options] of stages) {
    const server = await openServer(t, script, options);
    const result = await send(upstream, destinationOf(server.port), {
      responseTimeoutMs: code === 'upstream_timeout' ? 50 : 5000,
    });
    t.match(result.error, { code, message: words }, name);
    t.notMatch(result.error?.message, /127\.0\.0\.1/, `${name}: the address is not told`);
    await server.drained();
  }
  const resetting = await openServer(
    t,
    (socket) => socket.write(answer('x').slice(0, -1), () => socket.resetAndDestroy()),
    {},
  );
  const reset = await send(upstream, destinationOf(resetting.port, { scheme: 'http' }));
  t.match(reset.error, { code: 'upstream_protocol_error', message: /broke before|in the middle/ });
  const gone = await openRawServer(die);
  await gone.close();
  const refused = await send(upstream, destinationOf(gone.port));
  t.match(refused.error, { code: 'upstream_connect_failed', message: /refused/ });
  const good = await openServer(t, answering('ok'));
  t.equal((await send(upstream, destinationOf(good.port))).body, 'ok');
});

test('a handshake and a connection that stall are given up', async (t) => {
  const upstream = openUpstream(t, { tlsHandshakeTimeoutMs: 30 });
  const server = await openServer(t, () => undefined, {});
  t.match((await send(upstream, destinationOf(server.port))).error, {
    code: 'upstream_tls_failed',
    message: /took too long/,
  });
  await server.drained();
});

test('a bodyless idempotent request is sent again when its pooled connection was stale, others are not', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket, received, index) => {
    if (received.split('\r\n\r\n').length - 1 === 1) socket.write(answer(`first ${index}`));
    else socket.destroy();
  });
  const destination = destinationOf(server.port);
  t.equal((await send(upstream, destination)).body, 'first 0');
  t.equal((await send(upstream, destination)).body, 'first 1', 'sent again on a new connection');
  const post = await send(upstream, destination, { method: 'POST' });
  t.match(post.error, { code: 'upstream_protocol_error' });
  t.equal(server.connectionCount, 2);
  t.equal((await send(upstream, destination)).body, 'first 2');
});

test('a slow reader pauses the upstream, a slow upstream pauses the writer', async (t) => {
  const upstream = shared;
  const size = 8 * 1024 * 1024;
  let written = 0;
  const server = await openServer(t, (socket, received) => {
    if (!received.endsWith('\r\n\r\n')) return;
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
    const pump = (): void => {
      while (written < size) {
        written += 65_536;
        if (!socket.write(Buffer.alloc(65_536))) {
          socket.once('drain', pump);
          return;
        }
      }
    };
    pump();
  });
  let bytes = 0;
  let isFirst = true;
  const download = await send(upstream, destinationOf(server.port), {
    onData: (chunk, exchange) => {
      bytes += chunk.length;
      if (!isFirst) return true;
      isFirst = false;
      const before = bytes;
      // The kernel's buffers fill and the server stalls; nothing may come meanwhile.
      setTimeout(() => {
        t.ok(bytes - before <= 65_536, 'at most what was read already came while paused');
        t.ok(written < size, 'the server had to wait');
        exchange?.resume();
      }, 50);
      return false;
    },
  });
  t.equal(download.body.length, size);

  let wake = (): void => undefined;
  const isHeld = new Promise<void>((resolve) => (wake = resolve));
  let held: Socket | null = null;
  const slow = await openServer(t, (socket, received) => {
    if (held === null) {
      held = socket.pause();
      wake();
    }
    if (received.length > 4 * 1024 * 1024) socket.write(answer('ok'));
  });
  const upload = await send(upstream, destinationOf(slow.port), {
    method: 'POST',
    body: { kind: 'length', bytes: 4 * 1024 * 1024 },
    onDrain: () => resumeUpload(),
    onExchange: (exchange) => {
      let left = 64;
      resumeUpload = () => {
        while (left > 0) {
          left -= 1;
          if (!exchange.write(Buffer.alloc(65_536, 'x'))) break;
        }
        if (left === 0) exchange.end();
      };
      resumeUpload();
      t.ok(left > 0, 'the writer was told to wait');
      void isHeld.then(() => held?.resume());
    },
  });
  t.equal(upload.body, 'ok');
});
let resumeUpload = (): void => undefined;

test('an abort closes the connection, at every moment', async (t) => {
  const upstream = shared;
  for (const moment of ['at once', 'head', 'data']) {
    let onConnection = (): void => undefined;
    const isConnected = new Promise<void>((resolve) => (onConnection = resolve));
    const script: Script = (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx');
    const server = await openServer(t, script, { onConnection });
    let isOver = false;
    void send(upstream, destinationOf(server.port, { scheme: 'http' }), {
      onExchange: (exchange) => {
        if (moment === 'at once') exchange.abort();
      },
      onHead: (_head, exchange) => {
        if (moment === 'head') exchange?.abort();
      },
      onData: (_chunk, exchange) => {
        exchange?.abort();
        return true;
      },
    }).then(() => {
      isOver = true;
    });
    await isConnected;
    await server.drained();
    t.equal(isOver, false, `${moment}: the owner that aborted hears nothing more`);
  }
  const server = await openServer(t, () => undefined);
  const controller = new AbortController();
  const waiting = send(upstream, destinationOf(server.port), { signal: controller.signal });
  controller.abort();
  t.match((await waiting).error, { code: 'upstream_connect_failed', message: /given up/ });
});

test('closing a session closes what it has, idle or busy, and leaves others alone', async (t) => {
  const upstream = shared;
  const server = await openServer(t, (socket, received) => {
    if (received.includes('GET /wait')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx');
    else socket.write(answer('ok'));
  });
  const other = destinationOf(server.port, { sessionId: 'sesn_2' });
  await send(upstream, other);
  await send(upstream, destinationOf(server.port));
  const busy = send(upstream, destinationOf(server.port), {
    target: '/wait',
    onHead: () => upstream.closeSession('sesn_1'),
  });
  t.match((await busy).error, { code: 'upstream_protocol_error' });
  const raw = await upstream.dial(destinationOf(server.port), new AbortController().signal);
  upstream.closeSession('sesn_1');
  await once(raw, 'close');
  await send(upstream, other);
  t.equal(server.connectionCount, 2, 'the other session still has its connection');
});

test('after close nothing is open and nothing is taken on', async (t) => {
  const upstream = openUpstream(t);
  const server = await openServer(t, (socket, received) => {
    if (received.includes('GET /wait')) return;
    socket.write(answer('ok'));
  });
  await send(upstream, destinationOf(server.port));
  const busy = send(upstream, destinationOf(server.port), { target: '/wait' });
  const dialled = await upstream.dial(destinationOf(server.port), new AbortController().signal);
  const opening = send(upstream, destinationOf(server.port, { sessionId: 'sesn_3' }));
  await upstream.close();
  t.equal(dialled.closed, true);
  t.match((await busy).error, { code: 'upstream_protocol_error' });
  t.type((await opening).error, Error);
  t.match((await send(upstream, destinationOf(server.port))).error, { code: 'shutting_down' });
  await t.rejects(upstream.dial(destinationOf(server.port), new AbortController().signal), { code: 'shutting_down' });
  await server.drained();
  const handles = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap');
  t.strictSame(handles, []);
});

test('fields that HTTP/1.1 cannot carry are refused before anything is opened', async (t) => {
  const upstream = shared;
  t.match((await send(upstream, destinationOf(9), { headers: ['X', 'a\r\nb'] })).error, { code: 'bad_request' });
});

test('TLS sessions are resumed within a session, and not between sessions', async (t) => {
  const reused: boolean[] = [];
  const upstream = shared;
  const server = await openServer(t, answering('ok', 'Connection: close\r\n'), {
    tls,
    onConnection: (socket) => reused.push((socket as TLSSocket).isSessionReused()),
  });
  for (const sessionId of ['sesn_1', 'sesn_1', 'sesn_2']) {
    await send(upstream, destinationOf(server.port, { sessionId }));
    await server.drained();
  }
  upstream.closeSession('sesn_1');
  await send(upstream, destinationOf(server.port));
  t.strictSame(reused, [false, true, false, false]);
});
