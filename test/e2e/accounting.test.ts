// What a connection counts to, from its first moment until it closes, and that it is uncounted exactly once.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { test } from 'tap';
import { readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const TARGET = `${HOST}:443`;
const authority = createTestAuthority();
let tlsUpstream: TestUpstream;
let plainUpstream: TestUpstream;

t.before(async () => {
  tlsUpstream = await startUpstream({ leaf: authority.leafFor([HOST]) });
  plainUpstream = await startUpstream({ leaf: null });
});

t.teardown(async () => {
  await tlsUpstream.close();
  await plainUpstream.close();
});

async function start(settings: Parameters<typeof startTestProxy>[0]['settings']): Promise<TestProxy> {
  return startTestProxy({
    authority,
    overrides: { [TARGET]: tlsUpstream.port, [`${HOST}:80`]: plainUpstream.port },
    policy: sessionPolicy([]),
    ...(settings === undefined ? {} : { settings }),
  });
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

async function open(keyveil: TestProxy, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port: keyveil.port, host: '127.0.0.1', localAddress });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** A cut is a reset, which is an error of the socket's first. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) resolve();
    else socket.resume().once('close', () => resolve());
  });
}

function plainRequest(login: string, path = '/'): string {
  return `GET http://${HOST}${path} HTTP/1.1\r\nHost: ${HOST}\r\nProxy-Authorization: ${login}\r\n\r\n`;
}

function counts({ proxy, gauges }: TestProxy): { tunnels: number; unauthenticated: number; streams: number } {
  assert.equal(proxy.tunnelCount, gauges.tunnels);
  return { tunnels: gauges.tunnels, unauthenticated: proxy.unauthenticatedCount, streams: gauges.streams };
}

const NOTHING = { tunnels: 0, unauthenticated: 0, streams: 0 };

function isQuiet(keyveil: TestProxy): boolean {
  const { tunnels, unauthenticated, streams } = counts(keyveil);
  return tunnels + unauthenticated + streams === 0;
}

test('a connection of plain requests counts to its session between them, as a tunnel does', async (t) => {
  const keyveil = await start({ tunnelsPerSessionMax: 2 });
  t.teardown(() => keyveil.close());
  const sockets = await Promise.all([open(keyveil), open(keyveil)]);
  for (const socket of sockets) {
    socket.write(plainRequest(keyveil.login));
    t.match(await readHead(socket), /^HTTP\/1\.1 200 /);
  }
  t.same(counts(keyveil), { ...NOTHING, tunnels: 2 });
  t.match((await keyveil.connect(TARGET)).head, /^HTTP\/1\.1 503 /, 'the limit holds for tunnels');
  const late = await open(keyveil);
  late.write(plainRequest(keyveil.login));
  t.match(await readHead(late), /^HTTP\/1\.1 503 /, 'and for plain requests');
  sockets.forEach((socket) => socket.destroy());
  late.destroy();
  await until(() => isQuiet(keyveil));
});

test('a refused connection keeps its place until it closes', async (t) => {
  const keyveil = await start({ connectRequestTimeoutMs: 600 });
  t.teardown(() => keyveil.close());
  const socket = connect({ port: keyveil.port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => undefined);
  socket.write(plainRequest('Basic bm90aGluZzphdGFsbA=='));
  t.match(await readHead(socket), /^HTTP\/1\.1 407 /);
  await until(() => isQuiet(keyveil));
});

test('a head that does not end is cut in time, on the first request of a connection and on each later one', async (t) => {
  const keyveil = await start({ connectRequestTimeoutMs: 300, requestHeadersTimeoutMs: 300 });
  t.teardown(() => keyveil.close());
  const first = await open(keyveil);
  first.write('GET http://api.test/ HTTP/1.1\r\nX-Half');
  await closed(first);
  const plain = await open(keyveil);
  plain.write(plainRequest(keyveil.login) + 'GET http://api.test/ HTTP/1.1\r\nX-Half');
  t.match(await readHead(plain), /^HTTP\/1\.1 200 /);
  await closed(plain);
  const tls = await keyveil.tunnel(TARGET);
  // The half of the second head is there before the first request has been answered.
  tls.write(`POST / HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: 2\r\n\r\nabGET / HT`);
  t.match(await readHead(tls), /^HTTP\/1\.1 200 /);
  await closed(tls);
  const calm = await keyveil.tunnel(TARGET);
  calm.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
  t.match(await readHead(calm), /^HTTP\/1\.1 200 /);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  t.notOk(calm.destroyed, 'one without a head under way stays');
  calm.destroy();
  await until(() => isQuiet(keyveil));
});

test('a flood of silent connections keeps nobody out, and throws nobody out but itself', async (t) => {
  const keyveil = await start({ unauthenticatedSocketsMax: 20, connectRequestTimeoutMs: 30_000 });
  t.teardown(() => keyveil.close());
  const lone = await open(keyveil, '127.0.0.2');
  const flood: Socket[] = [];
  for (let index = 0; index < 100; index += 1) flood.push(await open(keyveil, '127.0.0.3'));
  await until(() => flood.filter((socket) => !socket.destroyed).length === 19);
  t.ok(keyveil.proxy.unauthenticatedCount <= 20);
  t.ok(
    flood.slice(0, 81).every((socket) => socket.destroyed),
    'the oldest are gone',
  );
  t.notOk(lone.destroyed);
  lone.write(plainRequest(keyveil.login));
  t.match(await readHead(lone), /^HTTP\/1\.1 200 /);
  t.match((await keyveil.connect(TARGET)).head, /^HTTP\/1\.1 200 /, 'a newcomer from another address');
  for (const socket of [lone, ...flood]) socket.destroy();
  await keyveil.close();
});

const REFUSED: Readonly<Record<string, string>> = {
  'CONNECT without a login': `CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\n\r\n`,
  'CONNECT with a wrong login': `CONNECT ${TARGET} HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\r\n`,
  'CONNECT to nothing': 'CONNECT nowhere HTTP/1.1\r\n\r\n',
  'a plain request with a wrong login': plainRequest('Basic eDp5'),
  'a plain request whose body goes on': `POST http://${HOST}/ HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: 999\r\n\r\nx`,
  'plain requests sent ahead': plainRequest('Basic eDp5').repeat(3),
  'a request in origin form': `GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`,
  'what is no request': 'malformed\r\n\r\n',
};

for (const [name, bytes] of Object.entries(REFUSED)) {
  test(`a flood of connections that linger after a refusal keeps nobody out: ${name}`, async (t) => {
    const keyveil = await start({ unauthenticatedSocketsMax: 20, connectRequestTimeoutMs: 30_000 });
    t.teardown(() => keyveil.close());
    const lone = await open(keyveil, '127.0.0.2');
    const flood: Socket[] = [];
    for (let index = 0; index < 60; index += 1) {
      const socket = connect({ port: keyveil.port, host: '127.0.0.1', localAddress: '127.0.0.3', allowHalfOpen: true });
      flood.push(socket.on('error', () => undefined));
      // What is still sent after the answer keeps it lingering; a newcomer ends that.
      const sending = setInterval(() => socket.write('x'), 100);
      socket.once('close', () => clearInterval(sending));
      socket.write(bytes, 'latin1');
      await Promise.race([readHead(socket), closed(socket)]);
      socket.resume();
    }
    t.ok(keyveil.proxy.unauthenticatedCount <= 20);
    for (let index = 0; index < 30; index += 1) {
      t.match((await keyveil.connect(TARGET)).head, /^HTTP\/1\.1 200 /, 'a newcomer from another address');
    }
    t.notOk(lone.destroyed);
    lone.write(plainRequest(keyveil.login));
    t.match(await readHead(lone), /^HTTP\/1\.1 200 /, 'and who waited all the while');
    for (const socket of [lone, ...flood]) socket.destroy();
  });
}

test('whatever connections do, all of them are uncounted once', async (t) => {
  const keyveil = await start({ tunnelsPerSessionMax: 12, unauthenticatedSocketsMax: 30 });
  t.teardown(() => keyveil.close());
  const good = keyveil.login;
  const connectLine = `CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\nProxy-Authorization: `;
  const openings = [
    '',
    'GET http://api.te',
    plainRequest(good),
    plainRequest(good) + plainRequest(good, '/2') + plainRequest('Basic eDp5') + plainRequest(good),
    plainRequest(good) + `${connectLine}${good}\r\n\r\n`,
    plainRequest(good).replaceAll(HOST, '127.0.0.1'),
    `${connectLine}${good}\r\n\r\n`,
    `${connectLine}${good}\r\n\r\nGET / HTTP/1.1\r\nHost: ${TARGET}\r\n\r\n`,
    `${connectLine}${good}\r\n\r\n\u0016garbage`,
    `${connectLine}Basic eDp5\r\n\r\n`,
    'CONNECT nowhere HTTP/1.1\r\n\r\n',
    'malformed\r\n\r\n',
    plainRequest(good) + 'malformed\r\n\r\n',
  ];
  const endings: ((socket: Socket) => unknown)[] = [
    (socket) => socket.destroy(),
    (socket) => socket.end(),
    (socket) => socket.resetAndDestroy(),
  ];
  let seed = 7;
  const pick = <Value>(values: readonly Value[]): Value => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return values[(seed >> 8) % values.length] as Value;
  };
  const run = async (): Promise<void> => {
    const socket = connect(keyveil.port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    socket.write(pick(openings), 'latin1');
    await new Promise((resolve) => setTimeout(resolve, pick([0, 1, 5, 30])));
    pick(endings)(socket);
    setTimeout(() => socket.destroy(), 200);
  };
  for (let round = 0; round < 15; round += 1) await Promise.all(Array.from({ length: 20 }, run));
  await until(() => isQuiet(keyveil));
  t.same(counts(keyveil), NOTHING);
  for (let index = 0; index < 12; index += 1) {
    t.match((await keyveil.connect(TARGET)).head, /^HTTP\/1\.1 200 /, 'every place is free again');
  }
  t.same(
    keyveil.log.filter((line) => line.includes('inside Keyveil')),
    [],
  );
});
