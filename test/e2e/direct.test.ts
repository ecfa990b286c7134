// Requests that are served without an HTTP server, and the moment at which one takes the connection over.
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { DirectConnection } from '../../proxy/http1-direct.ts';
import type { Pipeline } from '../../proxy/pipeline.ts';
import type { Tunnel } from '../../proxy/tunnels.ts';
import type { ProxySettings } from '../../proxy/settings.ts';
import { readAll, readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const TARGET = 'api.test:443';
const HOST = 'Host: api.test\r\n';

interface Scene {
  readonly keyveil: TestProxy;
  /** What the upstream has been asked for: method, path and body. */
  readonly asked: string[];
}

/** An upstream that answers with what it was asked. */
async function openEcho(t: Test, settings: Partial<ProxySettings> = {}): Promise<Scene> {
  const authority = createTestAuthority();
  const asked: string[] = [];
  const server = createServer(authority.leafFor(['api.test']), (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      asked.push(`${request.method} ${request.url} ${body}`.trim());
      response.sendDate = false;
      response.end(`<${asked.at(-1)}>`);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const keyveil = await startTestProxy({
    authority,
    overrides: { [TARGET]: port },
    policy: sessionPolicy([]),
    settings,
  });
  t.teardown(async () => {
    await keyveil.close();
    server.closeAllConnections();
    server.close();
  });
  return { keyveil, asked };
}

/** Resolves with all that has come once it holds so many answers. */
function answersOf(socket: TLSSocket, count: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      const found = text.match(/<[^>]*>/g) ?? [];
      if (found.length >= count) resolve(found);
    });
    socket.on('close', () => reject(new Error(`closed after ${JSON.stringify(text)}`)));
  });
}

const REQUESTS: readonly (readonly [text: string, answer: string])[] = [
  [`GET /1 HTTP/1.1\r\n${HOST}\r\n`, '<GET /1>'],
  [`GET /2 HTTP/1.1\r\n${HOST}Accept: */*\r\n\r\n`, '<GET /2>'],
  [`POST /3 HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello`, '<POST /3 hello>'],
  [`DELETE /4 HTTP/1.1\r\n${HOST}\r\n`, '<DELETE /4>'],
  [`PUT /5 HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`, '<PUT /5 abc>'],
  [`GET /6 HTTP/1.1\r\n${HOST}X-Empty:\r\n\r\n`, '<GET /6>'],
];
const TEXT = REQUESTS.map(([text]) => text).join('');
const ANSWERS = REQUESTS.map(([, answer]) => answer);

void t.test('requests are answered in order, one after the other and all at once', async (t) => {
  const { keyveil, asked } = await openEcho(t);
  const oneByOne = await keyveil.tunnel(TARGET);
  for (const [text, answer] of REQUESTS) {
    oneByOne.write(text);
    t.strictSame(await answersOf(oneByOne, 1), [answer]);
    oneByOne.removeAllListeners('data');
  }
  oneByOne.destroy();
  const together = await keyveil.tunnel(TARGET);
  together.write(TEXT);
  t.strictSame(await answersOf(together, ANSWERS.length), ANSWERS);
  together.destroy();
  const expected = ANSWERS.map((answer) => answer.slice(1, -1));
  t.strictSame(asked, [...expected, ...expected], 'and each was asked once');
});

void t.test('wherever the bytes are cut, none is lost, doubled or taken for another', async (t) => {
  const { keyveil } = await openEcho(t);
  const cuts = Array.from({ length: TEXT.length - 1 }, (_, index) => index + 1);
  const check = async (cut: number): Promise<void> => {
    const socket = await keyveil.tunnel(TARGET);
    const answers = answersOf(socket, ANSWERS.length);
    socket.write(TEXT.slice(0, cut));
    // Later than the turn in which the first part is read.
    setTimeout(() => socket.write(TEXT.slice(cut)), 3);
    const got = await answers;
    if (got.join() !== ANSWERS.join()) t.strictSame(got, ANSWERS, `cut at ${cut}`);
    socket.destroy();
  };
  for (let index = 0; index < cuts.length; index += 16) await Promise.all(cuts.slice(index, index + 16).map(check));
  // A record may come a moment behind its answer.
  while (keyveil.proxy.tunnelCount > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  t.equal(keyveil.events.length, cuts.length * REQUESTS.length, 'each request has its record');
});

void t.test('byte by byte, a CONNECT and all that is in the tunnel', async (t) => {
  const { keyveil } = await openEcho(t);
  const { connect } = await import('node:net');
  const raw = connect(keyveil.port, '127.0.0.1').setNoDelay(true);
  const established = readHead(raw);
  const head = `CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\nProxy-Authorization: ${keyveil.login}\r\n\r\n`;
  for (const byte of head) await new Promise((resolve) => raw.write(byte, resolve));
  t.match(await established, /^HTTP\/1\.1 200 /);
  raw.destroy();
  const tls = await keyveil.tunnel(TARGET);
  const answers = answersOf(tls, ANSWERS.length);
  for (const byte of TEXT) await new Promise((resolve) => tls.write(byte, resolve));
  t.strictSame(await answers, ANSWERS);
  tls.destroy();
});

interface Told {
  readonly request: string;
  readonly response: string;
  /** What the client reads until its connection closes, or until a request behind it is answered. */
  readonly expected: string;
}

const NEXT = `GET /next HTTP/1.1\r\n${HOST}\r\n`;
const LAST = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast';
const RESPONSES: Readonly<Record<string, Told>> = {
  'a length': {
    request: 'GET',
    response: 'HTTP/1.1 200 Fine\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\nok',
    expected: '',
  },
  'chunks with trailers': {
    request: 'GET',
    response: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: end\r\n\r\n',
    expected: 'HTTP/1.1 200 OK\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: end\r\n\r\n',
  },
  'no body at all': { request: 'GET', response: 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', expected: '' },
  'the length of what a HEAD does not get': {
    request: 'HEAD',
    response: 'HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n',
    expected: '',
  },
  'a HEAD without a length': { request: 'HEAD', response: 'HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n', expected: '' },
  'a 204': { request: 'DELETE', response: 'HTTP/1.1 204 No Content\r\n\r\n', expected: '' },
  'a 304': {
    request: 'GET',
    response: 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 7\r\n\r\n',
    expected: '',
  },
  'a hint first': {
    request: 'GET',
    response: 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
    expected: '',
  },
  'a reason and a value in Latin-1': {
    request: 'GET',
    response: 'HTTP/1.1 200 \u00e4\r\nX-A: \u00ff\u0080\r\nContent-Length: 0\r\n\r\n',
    expected: '',
  },
};

void t.test('every kind of answer comes as it was given, and the connection goes on', async (t) => {
  for (const [what, { request, response, expected }] of Object.entries(RESPONSES)) {
    const authority = createTestAuthority();
    const upstream = await openRawServer(
      (socket, received) => {
        if (!received.endsWith('\r\n\r\n')) return;
        socket.write(received.includes('/next') ? LAST : response, 'latin1');
      },
      { tls: authority.leafFor(['api.test']) },
    );
    const keyveil = await startTestProxy({
      authority,
      overrides: { [TARGET]: upstream.port },
      policy: sessionPolicy([]),
    });
    const socket = await keyveil.tunnel(TARGET);
    let text = '';
    const isOver = new Promise<void>((resolve) => {
      socket.on('data', (chunk: Buffer) => {
        text += chunk.toString('latin1');
        if (text.endsWith(LAST)) resolve();
      });
      socket.on('close', resolve);
    });
    const head = `${request} /first HTTP/1.1\r\n${HOST}\r\n`;
    socket.write(head);
    setTimeout(() => socket.write(NEXT), 20);
    await isOver;
    t.equal(text, (expected === '' ? response : expected) + LAST, what);
    socket.destroy();
    await keyveil.close();
    await upstream.close();
  }
});

void t.test('an answer that is cut upstream is cut, and not complete', async (t) => {
  for (const response of [
    'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n',
  ]) {
    const authority = createTestAuthority();
    const upstream = await openRawServer((socket) => void socket.end(response), {
      tls: authority.leafFor(['api.test']),
    });
    const keyveil = await startTestProxy({
      authority,
      overrides: { [TARGET]: upstream.port },
      policy: sessionPolicy([]),
    });
    const socket = await keyveil.tunnel(TARGET);
    const event = keyveil.nextEvent();
    socket.write(NEXT);
    const text = await readAll(socket);
    t.notOk(text.endsWith('0\r\n\r\n'), 'no end that the upstream did not send');
    t.match(await event, { outcome: 'failed', reason: 'upstream_aborted' });
    await keyveil.close();
    await upstream.close();
  }
});

void t.test('a client that leaves at any moment gives its place back', async (t) => {
  const { keyveil } = await openEcho(t);
  const moments: Readonly<Record<string, (socket: TLSSocket) => void>> = {
    'ends at once': (socket) => void socket.end(),
    'is gone without a word': (socket) => void setTimeout(() => socket.destroy(), 20),
    'ends behind its request': (socket) => void socket.end(REQUESTS[0]?.[0] as string),
    'is gone behind its request': (socket) => void socket.write(REQUESTS[0]?.[0] as string, () => socket.destroy()),
    'ends behind a part of one': (socket) => void socket.end('GET / HT'),
    'is gone behind all of them': (socket) => void socket.write(TEXT, () => socket.destroy()),
  };
  for (const [what, leave] of Object.entries(moments)) {
    const socket = await keyveil.tunnel(TARGET);
    socket.on('error', () => undefined).resume();
    leave(socket);
    const endsAt = Date.now() + 5000;
    while (keyveil.gauges.tunnels + keyveil.gauges.streams > 0 && Date.now() < endsAt)
      await new Promise((resolve) => setTimeout(resolve, 10));
    t.strictSame({ ...keyveil.gauges, count: keyveil.proxy.tunnelCount }, { tunnels: 0, streams: 0, count: 0 }, what);
  }
  t.strictSame(keyveil.log, [], 'and nothing of it was unexpected');
});

void t.test('whoever sends nothing, or a part of a CONNECT, and closes its side, is let go', async (t) => {
  const { keyveil } = await openEcho(t);
  const { connect } = await import('node:net');
  for (const text of ['', 'C', 'CONNECT api.test:443 HTTP/1.1\r\nHost: a']) {
    const socket = connect(keyveil.port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    socket.end(text);
    await new Promise((resolve) => socket.once('close', resolve));
    t.equal(keyveil.proxy.unauthenticatedCount, 0, JSON.stringify(text));
  }
});

void t.test('a CONNECT in pieces, and one with the handshake right behind it, open a tunnel too', async (t) => {
  const { keyveil } = await openEcho(t);
  const { connect } = await import('node:net');
  const head = `CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\nProxy-Authorization: ${keyveil.login}\r\n\r\n`;
  for (let cut = 1; cut < head.length; cut += 7) {
    const socket = connect(keyveil.port, '127.0.0.1').setNoDelay(true);
    socket.write(head.slice(0, cut));
    setTimeout(() => socket.write(head.slice(cut)), 3);
    t.match(await readHead(socket), /^HTTP\/1\.1 200 /, `cut at ${cut}`);
    socket.destroy();
  }
  const plain = connect(keyveil.port, '127.0.0.1').setNoDelay(true);
  plain.on('error', () => undefined);
  plain.write(`${head}GET / HTTP/1.0\r\nHost: evil.test\r\n\r\n`);
  t.match(await readAll(plain), /200 Connection Established[^]*host_mismatch/, 'bytes behind it are the tunnel’s');
});

void t.test('an answer that has come as a whole is recorded as that, however its client leaves then', async (t) => {
  const { keyveil } = await openEcho(t);
  const ways = [(socket: TLSSocket) => socket.end(), (socket: TLSSocket) => socket.destroy()];
  const count = 120;
  for (let round = 0; round < count; round += 6) {
    await Promise.all(
      [...ways, ...ways, ...ways].map(async (leave) => {
        const socket = await keyveil.tunnel(TARGET);
        socket.on('error', () => undefined);
        // In the same turn in which the last byte is read.
        socket.on('data', () => leave(socket));
        socket.write(REQUESTS[0]?.[0] as string);
        await new Promise((resolve) => socket.once('close', resolve));
      }),
    );
  }
  while (keyveil.proxy.tunnelCount > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  t.equal(keyveil.events.length, count);
  t.strictSame([...new Set(keyveil.events.map(({ outcome, reason }) => `${outcome} ${reason}`))], ['forwarded null']);
});

void t.test('a connection that was turned away opens no tunnel, and can read why', async (t) => {
  const { keyveil } = await openEcho(t, { unauthenticatedSocketsMax: 0 });
  const { connect } = await import('node:net');
  const head = `CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\nProxy-Authorization: ${keyveil.login}\r\n\r\n`;
  for (const waitMs of [0, 30]) {
    const socket = connect(keyveil.port, '127.0.0.1');
    const text = readAll(socket);
    setTimeout(() => socket.end(head), waitMs);
    t.match(await text, /^HTTP\/1\.1 503 [^]*Too many connections are waiting/, `after ${waitMs} ms`);
  }
  t.strictSame([keyveil.events, keyveil.proxy.tunnelCount, keyveil.log], [[], 0, []]);
});

void t.test('bytes ahead of an answer are bounded, in however small pieces they come', (t) => {
  const socket = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const tunnel = { sessionId: 'x' } as unknown as Tunnel;
  let requests = 0;
  const pipeline = { run: () => void (requests += 1) } as unknown as Pipeline;
  const takeOver = (): void => void t.fail('a server took it over');
  void new DirectConnection(socket, { tunnel, pipeline, takeOver });
  socket.emit('data', Buffer.from(NEXT));
  let pieces = 0;
  while (!socket.isPaused() && pieces < 10_000) {
    socket.emit('data', Buffer.from('G'));
    pieces += 1;
  }
  t.equal(requests, 1);
  t.ok(pieces > 10 && pieces < 300, `${pieces} pieces of a byte were held`);
  t.end();
});

void t.test('when its client has closed its side, an answer under way is given up, upstream too', async (t) => {
  const authority = createTestAuthority();
  const chunk = Buffer.from(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
  const upstream = await openRawServer(
    (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
      const pour = (): void => {
        while (!socket.destroyed && socket.write(chunk));
        if (!socket.destroyed) socket.once('drain', pour);
      };
      pour();
    },
    { tls: authority.leafFor(['api.test']) },
  );
  const keyveil = await startTestProxy({
    authority,
    overrides: { [TARGET]: upstream.port },
    policy: sessionPolicy([]),
  });
  const event = keyveil.nextEvent();
  const socket = await keyveil.tunnel(TARGET);
  socket.on('error', () => undefined);
  socket.write(NEXT);
  // It reads nothing, and ends its side while there is still more to come.
  setTimeout(() => socket.end(), 100);
  t.match(await event, { outcome: 'failed', reason: 'client_aborted' });
  await upstream.drained();
  socket.destroy();
  await keyveil.close();
  await upstream.close();
});

void t.test('a drain closes connections of plain requests that are idle', async (t) => {
  const upstream = await openRawServer((socket) => void socket.write(LAST));
  const authority = createTestAuthority();
  const overrides = { 'plain.test:80': upstream.port };
  const keyveil = await startTestProxy({ authority, overrides, policy: sessionPolicy([]) });
  const { connect } = await import('node:net');
  const socket = connect(keyveil.port, '127.0.0.1');
  socket.write(`GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nProxy-Authorization: ${keyveil.login}\r\n\r\n`);
  await new Promise<void>((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      if (chunk.toString().endsWith('last')) resolve();
    });
  });
  // The response is over a moment after its last byte.
  await new Promise((resolve) => setTimeout(resolve, 50));
  keyveil.proxy.drain();
  await new Promise((resolve) => socket.once('close', resolve));
  t.pass('it is closed');
  await keyveil.close();
  await upstream.close();
});
