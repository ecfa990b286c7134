// What is not intercepted: tunnels relayed unread, and plain HTTP in absolute form.
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import t, { test } from 'tap';
import { createHostSet } from '../../model/host-pattern.ts';
import { basicLogin, readAll } from '../support/daemon.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

const authority = createTestAuthority();
const leaf = authority.leafFor(['pinned.test']);
t.setTimeout(90_000);

test('a pass-through host is relayed unread and recorded so, and its server name must be that of the tunnel', async (t) => {
  const server = await openRawServer((socket, received) => void (received === 'hello' && socket.end('bye')), {
    tls: leaf,
  });
  const keyveil = await startTestProxy({
    authority,
    overrides: { 'pinned.test:443': server.port },
    policy: sessionPolicy([]),
    settings: { passthroughHosts: createHostSet(['pinned.test']) },
  });
  t.teardown(async () => {
    await keyveil.close();
    await server.close();
  });
  const { socket } = await keyveil.connect('pinned.test:443');
  const tls = connectTls({ socket, servername: 'pinned.test', ca: authority.caPem });
  const event = keyveil.nextEvent();
  tls.write('hello');
  t.equal(await readAll(tls), 'bye');
  t.match(await event, { outcome: 'relayed', reason: null, host: 'pinned.test' });
  t.equal(server.received[0], 'hello');

  const mismatch = keyveil.nextEvent();
  const other = await keyveil.connect('pinned.test:443');
  const foreign = connectTls({ socket: other.socket, servername: 'evil.test', rejectUnauthorized: false });
  foreign.on('error', () => undefined);
  t.match(await mismatch, { outcome: 'refused', reason: 'sni_mismatch' });
});

test('plain HTTP in absolute form: nothing is swapped, the miss is told, and a refusal is recorded', async (t) => {
  const placeholder = placeholderOf('P');
  const server = await startUpstream({ leaf: null });
  const policy = sessionPolicy([{ placeholder, value: 'a-value-that-stays-here' }]);
  const keyveil = await startTestProxy({ authority, overrides: { 'plain.test:80': server.port }, policy });
  t.teardown(async () => {
    await keyveil.close();
    await server.close();
  });
  const sessionId = (await probe()).sessionId ?? '';
  const ask = (host: string): Promise<string> => {
    const socket = connectTcp(keyveil.port, '127.0.0.1');
    const login = basicLogin(sessionId, 'test-token');
    socket.write(
      `GET http://${host}/x HTTP/1.1\r\nHost: ${host}\r\nProxy-Authorization: ${login}\r\nX-Key: ${placeholder}\r\nConnection: close\r\n\r\n`,
    );
    return readAll(socket);
  };
  const answer = await ask('plain.test');
  t.match(answer, /^HTTP\/1\.1 200 /);
  t.match(answer, /Proxy-Status: keyveil; details="SECRET_1 not swapped: plain_http"/);
  t.equal(server.received.at(-1)?.header('x-key'), placeholder);
  t.equal(server.received.at(-1)?.header('proxy-authorization'), undefined);

  keyveil.setPolicy({ ...policy, admission: createHostSet(['other.test']) });
  const refused = keyveil.nextEvent();
  t.match(await ask('plain.test'), /^HTTP\/1\.1 403 /);
  t.match(await refused, { outcome: 'refused', reason: 'environment_denied', host: 'plain.test', scheme: 'http' });

  /** The event of a plain tunnel tells the id of the session that the support made. */
  async function probe(): Promise<{ sessionId: string | null }> {
    const event = keyveil.nextEvent();
    const { socket } = await keyveil.connect('plain.test:80');
    socket.write('GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n');
    socket.resume();
    return event;
  }
});
