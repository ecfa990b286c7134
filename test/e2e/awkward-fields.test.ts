// What one side may say and the other side's HTTP version can't: answered or cut, and never the end of the daemon.
import { once } from 'node:events';
import { connect as connectHttp2, type ClientHttp2Session, type OutgoingHttpHeaders } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import t, { test } from 'tap';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { END_HEADERS, END_STREAM, FRAME, frame, literalFields, serveFrames } from '../support/raw-http2.ts';
import { answer, openRawServer, type RawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

type Pairs = readonly (readonly [string, string])[];

const PLACEHOLDER = placeholderOf('A');
const POLICY = sessionPolicy([{ placeholder: PLACEHOLDER, value: 'a-value-worth-veiling' }]);
const GZIP = gzipSync('hello').toString('latin1');
const STATUSES = ['205', '600', '999'];
// Of each kind that node:http2 refuses: of one connection, of requests alone, and never twice.
const FIELDS: readonly (readonly string[])[] = [
  ['HTTP2-Settings: x'],
  ['TE: x'],
  ['Keep-Alive: x'],
  ['Proxy-Connection: x'],
  ['Upgrade: x'],
  ['Trailer: X'],
  ['__proto__: x', 'constructor: y'],
  ...['Authorization', 'Host', 'Range', 'User-Agent', 'ETag', 'Date', 'Max-Forwards'].map((name) => [
    `${name}: x`,
    `${name}: y`,
  ]),
];

/** Answers of an HTTP/1.1 upstream, whole. */
const HTTP1_ANSWERS = new Map<string, string>([['plain', answer('ok')]]);
for (const status of STATUSES) {
  HTTP1_ANSWERS.set(`${status} of known length`, `HTTP/1.1 ${status} X\r\nContent-Length: 2\r\n\r\nok`);
  HTTP1_ANSWERS.set(
    `${status} in chunks`,
    `HTTP/1.1 ${status} X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  );
  HTTP1_ANSWERS.set(
    `${status} in gzip`,
    `HTTP/1.1 ${status} X\r\nContent-Encoding: gzip\r\nContent-Length: ${GZIP.length}\r\n\r\n${GZIP}`,
  );
}
for (const lines of FIELDS) {
  const text = lines.map((line) => `${line}\r\n`).join('');
  HTTP1_ANSWERS.set(`${lines.join(', ')} in the head`, answer('ok', text));
  HTTP1_ANSWERS.set(
    `${lines.join(', ')} before chunks`,
    `HTTP/1.1 200 OK\r\n${text}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  );
  HTTP1_ANSWERS.set(
    `${lines.join(', ')} in the trailers`,
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${text}\r\n`,
  );
  HTTP1_ANSWERS.set(`${lines.join(', ')} in a 103`, `HTTP/1.1 103 Early\r\n${text}\r\n${answer('ok')}`);
}

interface Http2Answer {
  readonly head: Pairs;
  readonly trailers: Pairs;
}

const OK: Pairs = [[':status', '200']];
const HTTP2_ANSWERS = new Map<string, Http2Answer>();
for (const status of ['000', '099', '101', ...STATUSES]) {
  HTTP2_ANSWERS.set(`status ${status}`, { head: [[':status', status]], trailers: [] });
}
HTTP2_ANSWERS.set('no status', { head: [['x', 'y']], trailers: [] });
for (const lines of FIELDS) {
  const pairs = lines.map((line) => line.toLowerCase().split(': ') as [string, string]);
  HTTP2_ANSWERS.set(`${lines.join(', ')} in the head`, { head: [...OK, ...pairs], trailers: [] });
  HTTP2_ANSWERS.set(`${lines.join(', ')} in the trailers`, { head: OK, trailers: pairs });
}

const certificates = createTestAuthority();
const leaf = certificates.leafFor(['http1.test', 'http2.test', 'grpc.test']);
let nextHttp1 = '';
let nextHttp2: Http2Answer = { head: OK, trailers: [] };
let servers: RawServer[] = [];
let keyveil: TestProxy;

t.before(async () => {
  const http1 = await openRawServer(
    (socket, received) => {
      if (received.endsWith('\r\n\r\n')) socket.write(nextHttp1, 'latin1');
    },
    { tls: leaf },
  );
  const http2 = await openRawServer(() => undefined, {
    tls: { ...leaf, ALPNProtocols: ['h2'] },
    onConnection: (socket) =>
      serveFrames(socket, (streamId) => {
        const { head, trailers } = nextHttp2;
        socket.write(frame(FRAME.headers, streamId, { flags: END_HEADERS, payload: literalFields(head) }));
        const flags = trailers.length === 0 ? END_STREAM : 0;
        socket.write(frame(FRAME.data, streamId, { flags, payload: Buffer.from('ok') }));
        if (trailers.length === 0) return;
        const last = { flags: END_HEADERS | END_STREAM, payload: literalFields(trailers) };
        socket.write(frame(FRAME.headers, streamId, last));
      }),
  });
  servers = [http1, http2];
  keyveil = await startTestProxy({
    authority: certificates,
    overrides: { 'http1.test:443': http1.port, 'http2.test:443': http2.port },
    policy: POLICY,
  });
});

t.teardown(async () => {
  await keyveil.close();
  for (const server of servers) await server.close();
});

/** Status, or null when the connection was cut. */
async function askHttp1(host: string): Promise<string | null> {
  const socket = await keyveil.tunnel(`${host}:443`);
  const text = await new Promise<string>((resolve) => {
    let received = '';
    socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
    socket.on('close', () => resolve(received));
    socket.write(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${PLACEHOLDER}\r\nConnection: close\r\n\r\n`,
    );
  });
  const last = text.lastIndexOf('HTTP/1.1 ');
  return last < 0 ? null : text.slice(last + 9, last + 12);
}

async function askHttp2(host: string): Promise<string | null> {
  const socket = await keyveil.tunnel(`${host}:443`, { ALPNProtocols: ['h2'] });
  const session = connectHttp2(`https://${host}`, { createConnection: () => socket });
  session.on('error', () => undefined);
  const stream = session.request({ ':path': '/', authorization: `Bearer ${PLACEHOLDER}` });
  let status: string | null = null;
  stream.on('response', (head) => (status = String(head[':status'])));
  stream.on('error', () => undefined);
  stream.resume();
  await once(stream, 'close').catch(() => undefined);
  session.destroy();
  socket.destroy();
  return status;
}

for (const [version, ask] of [
  ['1.1', askHttp1],
  ['2', askHttp2],
] as const) {
  test(`answers of an HTTP/1.1 upstream to a client of HTTP/${version}`, async (t) => {
    for (const [name, text] of HTTP1_ANSWERS) {
      nextHttp1 = text;
      const status = await ask('http1.test');
      t.match(status ?? '502', /^(?:20[05]|502|[69]\d\d)$/, name);
    }
    nextHttp1 = answer('ok');
    t.equal(await ask('http1.test'), '200', 'and then as ever');
  });

  test(`answers of an HTTP/2 upstream to a client of HTTP/${version}`, async (t) => {
    for (const [name, next] of HTTP2_ANSWERS) {
      nextHttp2 = next;
      const status = await ask('http2.test');
      t.match(status ?? '502', /^(?:20[05]|502|[69]\d\d)$/, name);
    }
    nextHttp2 = { head: OK, trailers: [] };
    t.equal(await ask('http2.test'), '200', 'and then as ever');
  });
}

test('none of it was a fault inside', (t) => {
  t.strictSame(
    keyveil.log.filter((line) => line.includes('inside Keyveil')),
    [],
  );
  t.end();
});

async function openHttp2(host: string): Promise<{ session: ClientHttp2Session; socket: TLSSocket }> {
  const socket = await keyveil.tunnel(`${host}:443`, { ALPNProtocols: ['h2'] });
  const session = connectHttp2(`https://${host}`, { createConnection: () => socket });
  session.on('error', () => undefined);
  return { session, socket };
}

test('trailers of a request that the upstream version has no place for', async (t) => {
  nextHttp2 = { head: OK, trailers: [] };
  nextHttp1 = answer('ok');
  for (const host of ['http1.test', 'http2.test']) {
    for (const [name, value] of [
      ['HTTP2-Settings', 'x'],
      ['TE', 'x'],
      ['Host', 'x'],
      ['Authorization', 'x\r\nAuthorization: y'],
    ] as const) {
      const socket = await keyveil.tunnel(`${host}:443`);
      socket.write(
        `POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n${name}: ${value}\r\n\r\n`,
      );
      await Promise.race([once(socket, 'data'), once(socket, 'close')]);
      socket.destroy();
    }
  }
  const { session, socket } = await openHttp2('http2.test');
  const fields: OutgoingHttpHeaders = { ':path': '/', ':method': 'POST' };
  const stream = session.request(fields, { waitForTrailers: true });
  stream.on('error', () => undefined);
  stream.on('wantTrailers', () => stream.sendTrailers({ 'x-last': 'a', 'max-forwards': '1' }));
  stream.end('body');
  stream.resume();
  await once(stream, 'close').catch(() => undefined);
  session.destroy();
  socket.destroy();
  t.equal(await askHttp1('http1.test'), '200');
  t.equal(await askHttp2('http2.test'), '200');
});

test('a WebSocket handshake can not announce a body', async (t) => {
  const upstream = await startUpstream({ leaf: certificates.leafFor(['ws.test']) });
  const proxy = await startTestProxy({
    authority: certificates,
    overrides: { 'ws.test:443': upstream.port },
    policy: POLICY,
  });
  t.teardown(async () => {
    await proxy.close();
    await upstream.close();
  });
  const handshake =
    'GET /chat HTTP/1.1\r\nHost: ws.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
  const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: ws.test\r\n\r\n';
  const socket = await proxy.tunnel('ws.test:443');
  socket.write(`${handshake}Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`);
  const [head] = (await once(socket, 'data')) as [Buffer];
  t.match(head.toString('latin1'), /^HTTP\/1\.1 400 /);
  t.equal(upstream.received.length, 0, 'nothing reached the upstream');

  const { session, h2 } = await (async () => {
    const h2 = await proxy.tunnel('ws.test:443', { ALPNProtocols: ['h2'] });
    const session = connectHttp2('https://ws.test', { createConnection: () => h2 });
    session.on('error', () => undefined);
    await once(session, 'remoteSettings');
    return { session, h2 };
  })();
  const stream = session.request(
    { ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/chat', ':scheme': 'https', 'content-length': '40' },
    { endStream: false },
  );
  stream.on('error', () => undefined);
  stream.resume();
  await Promise.race([once(stream, 'response'), once(stream, 'close')]).catch(() => undefined);
  t.ok(upstream.received.length > 0, 'an extended CONNECT goes on');
  t.ok(
    upstream.received.every(({ rawHeaders }) => !rawHeaders.some((text) => text.toLowerCase() === 'content-length')),
    'without a length',
  );
  session.destroy();
  h2.destroy();
  socket.destroy();
});

test('a Host in another alphabet, though it would be the same name, is refused', async (t) => {
  nextHttp1 = answer('ok');
  for (const host of ['http1\u00ad.test', 'http1.tes\u1d57', '\uff48ttp1.test']) {
    const socket = await keyveil.tunnel('http1.test:443');
    socket.write(
      Buffer.from(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`, host.charCodeAt(5) === 0xad ? 'latin1' : 'utf8'),
    );
    const [head] = (await once(socket, 'data')) as [Buffer];
    t.match(head.toString('latin1'), /^HTTP\/1\.1 4(?:00|21) /);
    socket.destroy();
  }
});
