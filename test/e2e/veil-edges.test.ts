// Places and moments of a response at which a value could slip past the veil, over real sockets.
import * as http2 from 'node:http2';
import { connect as connectTcp, createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import t, { test } from 'tap';
import { readAll } from '../support/operator.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { openRawServer, type RawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const VALUE = 'sk_live_ABCDEFGHIJKLMNOPqrstuv';
const PLACEHOLDER = placeholderOf('E');
const STARS = '*'.repeat(VALUE.length);

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test', 'far.test']);
const POLICY = sessionPolicy([{ placeholder: PLACEHOLDER, value: VALUE, hosts: ['api.test', 'far.test'] }]);

/** What the upstream sends, Latin-1: texts one after the other, numbers are pauses in ms. */
type Answer = readonly (string | number)[];

let answerWith: Answer = [];
let upstream: RawServer;
let keyveil: TestProxy;

async function play(socket: Socket, answer: Answer): Promise<void> {
  for (const step of answer) {
    if (typeof step === 'number') await delay(step);
    else socket.write(step, 'latin1');
  }
  socket.end();
}

t.before(async () => {
  const script = (socket: Socket, received: string): void => {
    if (received.endsWith('\r\n\r\n')) void play(socket, answerWith);
  };
  const onConnection = (socket: Socket): void => void socket.setNoDelay(true);
  upstream = await openRawServer(script, { tls: leaf, onConnection });
  keyveil = await startTestProxy({ authority, overrides: { 'api.test:443': upstream.port }, policy: POLICY });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

/** Everything that the sandbox receives, and the head that the upstream did. */
async function ask(
  answer: Answer,
  fields = '',
  port: TestProxy = keyveil,
): Promise<{ received: string; asked: string }> {
  answerWith = answer;
  const tls = await port.tunnel('api.test:443');
  const before = upstream.received.length;
  tls.write(
    `GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nAuthorization: Bearer ${PLACEHOLDER}\r\n${fields}\r\n`,
  );
  const received = await readAll(tls);
  return { received, asked: upstream.received[before] as string };
}

const head = (...fields: string[]): string =>
  `HTTP/1.1 200 OK\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`;
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const LAST_CHUNK = '0\r\n\r\n';

test('a pause inside a value lets none of it pass', async (t) => {
  const pause = 100;
  const [first, second] = [VALUE.slice(0, 12), VALUE.slice(12)];
  const unknown = await ask([head('Transfer-Encoding: chunked'), chunk(first), pause, chunk(second), LAST_CHUNK]);
  t.ok(unknown.received.includes(PLACEHOLDER));
  t.notOk(unknown.received.includes(first), 'a round trip is no idle upstream');

  const eager = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: POLICY,
    settings: { veilIdleMs: 1, bodyBufferBytes: 64 },
  });
  t.teardown(() => eager.close());
  const rest = '.'.repeat(1000);
  const length = VALUE.length + rest.length;
  const known = await ask([head(`Content-Length: ${length}`), first, pause, second + rest], '', eager);
  t.ok(known.received.endsWith(`\r\n\r\n${STARS}${rest}`), 'of a body of known length only its end is waited for');
  const coded = gzipSync(`${VALUE}${'.'.repeat(500)}`, { level: 0 }).toString('latin1');
  const codedHead = head('Content-Encoding: gzip', `Content-Length: ${coded.length}`);
  const cut = coded.indexOf(first) + first.length;
  const decoded = await ask([codedHead, coded.slice(0, cut), pause, coded.slice(cut)], '', eager);
  t.notOk(decoded.received.includes(first), 'nor of a coded one');
  t.ok(decoded.received.includes(PLACEHOLDER));
});

/** A network between Keyveil and an upstream that takes its time. */
async function openLag(port: number, oneWayMs: number): Promise<{ port: number; close(): void }> {
  const sockets = new Set<Socket>();
  const server = createTcpServer({ noDelay: true }, (near) => {
    const far = connectTcp({ port, host: '127.0.0.1', noDelay: true });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('data', (data) => setTimeout(() => to.write(data), oneWayMs));
      from.on('close', () => to.destroy());
      from.on('error', () => to.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

test('a window of HTTP/2 that ends inside a value lets none of it pass', async (t) => {
  const echo = http2.createSecureServer(leaf);
  echo.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200, 'content-type': 'application/octet-stream' });
    if (headers[':path'] === '/streamed') return void stream.pipe(stream);
    const chunks: Buffer[] = [];
    stream.on('data', (data: Buffer) => chunks.push(data));
    stream.on('end', () => stream.end(Buffer.concat(chunks)));
  });
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
  const lag = await openLag((echo.address() as AddressInfo).port, 30);
  const far = await startTestProxy({ authority, overrides: { 'far.test:443': lag.port }, policy: POLICY });
  t.teardown(async () => {
    await far.close();
    lag.close();
    echo.close();
  });
  // The windows of the request, which are the upstream's, and of the response, which are Keyveil's.
  for (const [path, window] of [
    ['/streamed', 65_535],
    ['/whole', 262_144],
  ] as const) {
    const socket = await far.tunnel('far.test:443', { ALPNProtocols: ['h2'] });
    const session = http2.connect('https://far.test', { createConnection: () => socket });
    session.on('error', () => undefined);
    const stream = session.request({ ':path': path, ':method': 'POST', 'content-type': 'application/octet-stream' });
    const received: Buffer[] = [];
    stream.on('data', (data: Buffer) => received.push(data));
    stream.write(Buffer.alloc(window - 12, '.'));
    await delay(5);
    stream.end(`${PLACEHOLDER}${'.'.repeat(2000)}`);
    await new Promise((resolve) => stream.on('close', resolve));
    session.destroy();
    const text = Buffer.concat(received).toString();
    t.ok(text.includes(PLACEHOLDER), `${path}: ${text.replaceAll(/\.+/g, '.')}`);
  }
});

test('a covered host is asked for no coding', async (t) => {
  const answer = [head('Content-Length: 0')];
  const coded = await ask(answer, 'Accept-Encoding: gzip, br\r\naccept-encoding: *\r\n');
  t.match(coded.asked, /\r\nAccept-Encoding: identity\r\n/);
  t.equal(coded.asked.match(/accept-encoding/gi)?.length, 1);
  const none = await ask(answer);
  t.notMatch(none.asked, /accept-encoding/i, 'nor is one asked for where the client asks for none');
});

test('what describes a body can not be taken away by a Connection field', async (t) => {
  const coded = gzipSync(`<${VALUE}>`, { level: 1 }).toString('latin1');
  const length = `Content-Length: ${coded.length}`;
  const gzip = await ask([head('Connection: content-encoding', 'Content-Encoding: gzip', length), coded]);
  t.ok(gzip.received.endsWith(`\r\n\r\n<${PLACEHOLDER}>`), 'a coded body is decoded and veiled');
  const message = `\0\0\0\0${String.fromCharCode(VALUE.length)}${VALUE}`;
  const framed = await ask([
    head('Connection: Content-Type, X-Hop', 'X-Hop: 1', 'Content-Type: application/grpc', 'Transfer-Encoding: chunked'),
    chunk(message),
    LAST_CHUNK,
  ]);
  t.ok(framed.received.includes(`\0\0\0\0${String.fromCharCode(VALUE.length)}${STARS}`), 'lengths in a body stay true');
  t.match(framed.received, /\r\nContent-Type: application\/grpc\r\n/);
  t.notMatch(framed.received, /x-hop/i);
});

test('a coding that is none, or not known, hides nothing', async (t) => {
  for (const coding of ['none', 'utf-8', 'aws-chunked', 'gzip, aws-chunked']) {
    const event = keyveil.nextEvent();
    const fields = [`Content-Encoding: ${coding}`, `Content-Length: ${VALUE.length + 2}`];
    const { received } = await ask([head(...fields), `<${VALUE}>`]);
    t.ok(received.endsWith(`\r\n\r\n<${STARS}>`), coding);
    t.match(received, `Content-Encoding: ${coding}`);
    t.equal((await event).reason, 'veil_not_possible');
  }
});

test('interim answers and field names', async (t) => {
  const early = `HTTP/1.1 103 ${VALUE}\r\nLink: <${VALUE}>\r\n\r\n`;
  const { received } = await ask([early, head(`X-${VALUE}: 1`, 'Content-Length: 0')]);
  t.ok(received.startsWith(`HTTP/1.1 103 ${PLACEHOLDER}\r\nLink: <${PLACEHOLDER}>\r\n`));
  t.notOk(received.includes(VALUE), 'a field whose name holds a value is dropped');
});
