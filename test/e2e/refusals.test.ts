// What is refused, over real sockets: CONNECT lines, destinations, and clients that go away.
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { connect as connectTcp } from 'node:net';
import t, { test } from 'tap';
import { createTestAuthority } from '../support/test-authority.ts';
import { readAll, readHead, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const hosts = JSON.parse(readFileSync(new URL('../vectors/hosts.json', import.meta.url), 'utf8')) as {
  authorities_invalid: string[];
};

let keyveil: TestDaemon;
let api: TestUpstream;
let session: TestSession;

t.before(async () => {
  const authority = createTestAuthority();
  api = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  keyveil = await startTestDaemon({ authority, overrides: { 'api.test': api.port, 'api.test:8443': api.port } });
  session = await keyveil.createSession({ vault_ids: [] });
});

t.teardown(async () => {
  await keyveil.close();
  await api.close();
});

test('a CONNECT to something that is no authority is a 400', async (t) => {
  // A raw space, or nothing at all, ends the request line elsewhere; those are the parser's.
  for (const target of hosts.authorities_invalid) {
    const { head } = await keyveil.connect(session, target);
    t.match(head, /^HTTP\/1\.1 400 /, target);
  }
  const { head } = await keyveil.connect(null, '../../../x:443');
  t.match(head, /^HTTP\/1\.1 400 /, 'syntax comes before the session');
});

test('addresses inside, the daemon itself, and cloud metadata are refused with 403 and without the address', async (t) => {
  const { proxyAddress, adminAddress } = keyveil.daemon;
  const targets = [
    '169.254.169.254:443',
    '10.0.0.1:443',
    `localhost:${adminAddress.port}`,
    `localhost:${proxyAddress.port}`,
    `127.0.0.1:${proxyAddress.port}`,
    `127.1:${adminAddress.port}`,
    `[::1]:${adminAddress.port}`,
    `[::ffff:127.0.0.1]:${adminAddress.port}`,
    '0x7f000001:443',
    '0.0.0.0:443',
  ];
  for (const target of targets) {
    const { socket, head } = await keyveil.connect(session, target);
    t.match(head, /^HTTP\/1\.1 403 /, target);
    const body = await readAll(socket);
    t.match(body, /address_denied/, target);
    if (target.startsWith('localhost')) t.notMatch(body, /127\.0\.0\.1|::1/);
  }
});

test('a request for another host or port than its tunnel is a 421', async (t) => {
  for (const host of ['evil.test', 'api.test:8443', 'api.test.evil.test']) {
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    const head = await readHead(tls);
    t.match(head, /^HTTP\/1\.1 421 /, host);
    tls.destroy();
  }
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write('GET https://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(tls), /^HTTP\/1\.1 421 /);
  tls.destroy();
  for (const host of ['API.test', 'api.test.', 'api.test:443']) {
    const other = await keyveil.tunnel(session, 'api.test:443');
    other.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    t.match(await readHead(other), /^HTTP\/1\.1 200 /, host);
    other.destroy();
  }
});

test('a server name other than the tunnel ends the handshake', async (t) => {
  await t.rejects(keyveil.tunnel(session, 'api.test:443', { servername: 'evil.test' }));
  const events = await keyveil.admin('GET', '/v1/audit_events?limit=100');
  t.equal(events.status, 200);
});

test('a CONNECT inside a tunnel is a 405', async (t) => {
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write('CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n');
  t.match(await readHead(tls), /^HTTP\/1\.1 405 /);
  tls.destroy();
});

test('a request outside of a tunnel must be an absolute http URL', async (t) => {
  const cases: readonly (readonly [string, number])[] = [
    ['GET / HTTP/1.1\r\nHost: api.test', 400],
    ['GET https://api.test/ HTTP/1.1\r\nHost: api.test', 400],
    ['GET http://api.test/ HTTP/1.1\r\nHost: api.test', 407],
    ['NOT HTTP', 400],
  ];
  for (const [request, status] of cases) {
    const socket = connectTcp(keyveil.daemon.proxyAddress.port, '127.0.0.1');
    socket.write(`${request}\r\n\r\n`);
    t.match(await readAll(socket), new RegExp(`^HTTP/1\\.1 ${status} `), request);
  }
});

test('clients that reset at any moment leave the daemon serving and nothing behind', async (t) => {
  const port = keyveil.daemon.proxyAddress.port;
  const open = async (): Promise<Socket> => {
    const socket = connectTcp(port, '127.0.0.1');
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('connect', resolve));
    return socket;
  };
  for (let round = 0; round < 20; round += 1) {
    (await open()).resetAndDestroy();
    const half = await open();
    half.write('CONNECT api.test:443 HTTP/1.1\r\nHost');
    half.resetAndDestroy();
    const { socket } = await keyveil.connect(session, 'api.test:443');
    socket.write(Buffer.from([0x16, 3, 1, 2, 0, 1, 0]));
    socket.resetAndDestroy();
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write('POST /cut HTTP/1.1\r\nHost: api.test\r\nContent-Length: 1000000\r\n\r\nabc');
    tls.destroy();
  }
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write('GET /after HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(tls), /^HTTP\/1\.1 200 /);
  t.same(
    api.received.filter(({ url }) => url === '/cut'),
    [],
  );
  tls.destroy();
});

test('an upstream that can not be reached is a 502 in the tunnel', async (t) => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const authority = createTestAuthority();
  const lonely = await startTestDaemon({ authority, overrides: { 'gone.test': port } });
  t.teardown(() => lonely.close());
  const guest = await lonely.createSession({ vault_ids: [] });
  const tls = await lonely.tunnel(guest, 'gone.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: gone.test\r\n\r\n');
  const head = await readHead(tls);
  t.match(head, /^HTTP\/1\.1 502 /);
  t.match(head, /Proxy-Status: keyveil; error=connection_refused; details="upstream_connect_failed: gone\.test"/);
  tls.destroy();
});
