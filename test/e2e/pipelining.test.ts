// Requests that are sent ahead on one HTTP/1.1 connection: few are parsed, all are served in order, and none is lost.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import fc from 'fast-check';
import t, { test } from 'tap';
import { PIPELINED_BYTES_MAX, PIPELINED_REQUESTS_MAX } from '../../model/limits.ts';
import { acceptOf } from '../../proxy/websocket.ts';
import { readAll, readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const TARGET = `${HOST}:443`;
const PLAIN = `${HOST}:80`;
const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';

let tlsUpstream: TestUpstream;
let plainUpstream: TestUpstream;
let keyveil: TestProxy;
/** Answers of `/hang`, which do not come before a test says so. */
let hanging: (() => void)[] = [];
/** Requests of `/hang` whose connection was closed. */
let aborted = 0;

async function start(leaf: Parameters<typeof startUpstream>[0]['leaf']): Promise<TestUpstream> {
  const upstream = await startUpstream({
    leaf,
    respond(request, response) {
      const body = `${request.method} ${request.url} ${request.body.toString('latin1')}`;
      if (request.url !== '/hang') return void response.end(body);
      response.once('close', () => (aborted += 1));
      hanging.push(() => response.end(body));
    },
  });
  upstream.server.on('upgrade', (_request, socket: Socket) => {
    socket.on('end', () => socket.end()).resume();
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Accept: ${acceptOf(KEY)}\r\n\r\nswitched`,
    );
  });
  return upstream;
}

t.before(async () => {
  const authority = createTestAuthority();
  tlsUpstream = await start(authority.leafFor([HOST]));
  plainUpstream = await start(null);
  keyveil = await startTestProxy({
    authority,
    overrides: { [TARGET]: tlsUpstream.port, [PLAIN]: plainUpstream.port },
    policy: sessionPolicy([]),
  });
});

t.beforeEach(() => {
  hanging = [];
  tlsUpstream.received.length = 0;
  plainUpstream.received.length = 0;
});

t.teardown(async () => {
  await keyveil.close();
  await tlsUpstream.close();
  await plainUpstream.close();
});

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Resolves with the bodies of so many answers, in the order in which they came. */
async function readAnswers(socket: Socket, count: number): Promise<string[]> {
  const bodies: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const head = await readHead(socket);
    assert.match(head, /^HTTP\/1\.1 200 /);
    const length = Number(/content-length: (\d+)/i.exec(head)?.[1]);
    let body = Buffer.alloc(0);
    while (body.length < length) {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) await once(socket, 'readable');
      else body = Buffer.concat([body, chunk]);
    }
    if (body.length > length) socket.unshift(body.subarray(length));
    bodies.push(body.toString('latin1', 0, length));
  }
  return bodies;
}

function get(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`;
}

interface Way {
  readonly name: string;
  readonly upstream: () => TestUpstream;
  readonly open: () => Promise<Socket>;
}

const WAYS: readonly Way[] = [
  { name: 'TLS in a tunnel', upstream: () => tlsUpstream, open: () => keyveil.tunnel(TARGET) },
  {
    name: 'plain HTTP in a tunnel',
    upstream: () => plainUpstream,
    open: async () => {
      const { socket, head } = await keyveil.connect(PLAIN);
      assert.match(head, /^HTTP\/1\.1 200 /);
      return socket;
    },
  },
];

for (const { name, upstream, open } of WAYS) {
  test(`${name}: of a long pipeline behind a request that hangs, few are parsed and none is lost`, async (t) => {
    const socket = await open();
    const count = 600;
    socket.write(get('/hang') + Array.from({ length: count }, (_, index) => get(`/${String(index)}`)).join(''));
    await until(() => hanging.length === 1);
    // All of it has come by now, or is held up on its way.
    await new Promise((resolve) => setTimeout(resolve, 200));
    t.equal(keyveil.gauges.streams, 1 + PIPELINED_REQUESTS_MAX);
    hanging.forEach((finish) => finish());
    const bodies = await readAnswers(socket, 1 + count);
    t.same(bodies, ['GET /hang ', ...Array.from({ length: count }, (_, index) => `GET /${String(index)} `)]);
    t.equal(upstream().received.length, 1 + count);
    socket.destroy();
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });

  test(`${name}: large requests behind one that hangs are bounded by their bytes`, async (t) => {
    const socket = await open();
    const field = `X-Large: ${'x'.repeat(12 * 1024)}\r\n`;
    const large = `GET /large HTTP/1.1\r\nHost: ${HOST}\r\n${field}\r\n`;
    socket.write(get('/hang') + large.repeat(40));
    await until(() => hanging.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 200));
    t.ok(keyveil.gauges.streams <= 1 + Math.ceil(PIPELINED_BYTES_MAX / large.length), `${keyveil.gauges.streams}`);
    hanging.forEach((finish) => finish());
    t.equal((await readAnswers(socket, 41)).length, 41);
    socket.destroy();
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });

  test(`${name}: a client that goes away ends all that it has sent ahead, and none of it goes on`, async (t) => {
    for (const count of [1, 10, 200]) {
      const socket = await open();
      const { received } = upstream();
      received.length = 0;
      hanging = [];
      aborted = 0;
      const before = keyveil.events.length;
      socket.write(get('/hang') + get('/never').repeat(count));
      await until(() => hanging.length === 1 && keyveil.gauges.streams === 1 + Math.min(count, PIPELINED_REQUESTS_MAX));
      socket.destroy();
      await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
      await until(() => aborted === 1);
      t.same(
        received.map(({ url }) => url),
        ['/hang'],
      );
      const events = keyveil.events.slice(before);
      t.equal(events.length, 1 + Math.min(count, PIPELINED_REQUESTS_MAX), 'one record for each that was parsed');
      for (const { reason } of events) t.equal(reason, 'client_aborted');
    }
  });

  test(`${name}: bodies pass whole, whatever they hold and wherever they are cut`, async (t) => {
    const text = fc
      .array(fc.constantFrom('\r', '\n', '\r\n\r\n', 'GET / HTTP/1.1\r\n\r\n', 'x'), { maxLength: 40 })
      .map((parts) => parts.join(''));
    const request = fc.oneof(
      fc.constant({ bytes: get('/plain'), body: 'GET /plain ' }),
      text.map((body) => ({
        bytes: `POST /length HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        body: `POST /length ${body}`,
      })),
      fc.record({ parts: fc.array(text, { maxLength: 4 }), trailer: fc.boolean() }).map(({ parts, trailer }) => ({
        bytes:
          `PUT /chunked HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n` +
          parts.map((part) => (part === '' ? '' : `${part.length.toString(16)}\r\n${part}\r\n`)).join('') +
          `0\r\n${trailer ? 'X-Trailer: 1\r\n' : ''}\r\n`,
        body: `PUT /chunked ${parts.join('')}`,
      })),
    );
    const property = fc.asyncProperty(
      fc.array(request, { minLength: 1, maxLength: 30 }),
      fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 20 }),
      async (requests, sizes) => {
        const socket = await open();
        const answers = readAnswers(socket, requests.length);
        const bytes = Buffer.from(requests.map((one) => one.bytes).join(''), 'latin1');
        for (let start = 0, index = 0; start < bytes.length; index += 1) {
          const end = start + (sizes[index % sizes.length] as number);
          socket.write(bytes.subarray(start, end));
          if (index % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
          start = end;
        }
        assert.deepEqual(
          await answers,
          requests.map((one) => one.body),
        );
        socket.destroy();
      },
    );
    const details = await fc.check(property, { numRuns: 15 });
    t.notOk(details.failed, fc.defaultReportMessage(details) ?? 'held');
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });

  test(`${name}: a long body behind a request that hangs waits, and passes when its turn has come`, async (t) => {
    const socket = await open();
    const body = 'b'.repeat(1024 * 1024);
    const post = `POST /long HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    const answers = readAnswers(socket, 42);
    socket.write(get('/hang') + post + get('/after').repeat(40));
    await until(() => hanging.length === 1);
    hanging.forEach((finish) => finish());
    const bodies = await answers;
    t.equal(bodies[1], `POST /long ${body}`);
    t.same(new Set(bodies.slice(2)), new Set(['GET /after ']));
    socket.destroy();
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });

  test(`${name}: an upgrade waits for the requests before it`, async (t) => {
    const handshake = (protocol: string): string =>
      `GET /switch HTTP/1.1\r\nHost: ${HOST}\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n` +
      `Sec-WebSocket-Key: ${KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n`;
    const ignored = await open();
    ignored.write(get('/hang') + get('/1') + handshake('h2c') + get('/2').repeat(30));
    await until(() => hanging.length === 1);
    hanging.forEach((finish) => finish());
    const bodies = await readAnswers(ignored, 33);
    t.same([...new Set(bodies)], ['GET /hang ', 'GET /1 ', 'GET /switch ', 'GET /2 '], 'h2c is ignored');
    ignored.destroy();
    hanging = [];
    const socket = await open();
    socket.write(get('/hang') + get('/1').repeat(20) + handshake('websocket'));
    await until(() => hanging.length === 1);
    hanging.forEach((finish) => finish());
    t.equal((await readAnswers(socket, 21)).length, 21);
    t.match(await readHead(socket), /^HTTP\/1\.1 101 /);
    socket.destroy();
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });

  test(`${name}: what follows a request that is malformed is not served`, async (t) => {
    const socket = await open();
    const text = readAll(socket);
    socket.write(`GET /bad HTTP/1.1\r\n\r\n${get('/after').repeat(40)}`);
    t.match(await text, /^HTTP\/1\.1 400 /);
    t.equal((await text).split('HTTP/1.1 ').length, 2, 'one answer');
    t.same(upstream().received, []);
    await until(() => keyveil.gauges.streams === 0 && keyveil.gauges.tunnels === 0);
  });
}
