// What ends at once when a session, a token or an environment changes; and the limits of a session.
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import t, { test } from 'tap';
import { readHead, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type Responder, type TestUpstream } from '../support/upstream.ts';

// "Within a second", and as much again for a machine that is busy with other tests.
const CUT_MS_MAX = 4000;
const VALUE = 'a-secret-value-for-the-cuts';

let respond: Responder = (_request, response) => response.end('ok');
let upstream: TestUpstream;
let keyveil: TestDaemon;

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    respond: (request, response) => respond(request, response),
  });
  keyveil = await startTestDaemon({ authority, overrides: { 'api.test': upstream.port } });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

async function mustPost(path: string, body: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
  const answer = await keyveil.admin('POST', path, body);
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** A response that has begun and never ends. */
async function openDownload(session: TestSession): Promise<TLSSocket> {
  respond = (_request, response: ServerResponse) => {
    response.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    response.write('begin');
  };
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write('GET /download HTTP/1.1\r\nHost: api.test\r\n\r\n');
  await readHead(tls);
  tls.resume();
  return tls;
}

async function closedWithin(socket: Socket, ms: number): Promise<boolean> {
  if (socket.destroyed) return true;
  // A cut is a reset, so `once` of node:events would reject with it.
  const closed = new Promise<boolean>((resolve) => socket.once('close', () => resolve(true)));
  return Promise.race([closed, delay(ms, false, { ref: false })]);
}

const ENDS: readonly (readonly [string, (session: TestSession) => Promise<unknown>])[] = [
  ['is archived', (session) => mustPost(`/v1/sessions/${session.id}/archive`)],
  ['gets a new token', (session) => mustPost(`/v1/sessions/${session.id}/rotate_token`)],
  ['expires', (session) => mustPost(`/v1/sessions/${session.id}`, { expires_in: 1 })],
];

for (const [name, end] of ENDS) {
  test(`when a session ${name}, a download and an idle tunnel are cut, and the next CONNECT gets 407`, async (t) => {
    const session = await keyveil.createSession({ vault_ids: [] });
    const download = await openDownload(session);
    const idle = await keyveil.tunnel(session, 'api.test:443');
    await end(session);
    t.ok(await closedWithin(download, CUT_MS_MAX), 'the download');
    t.ok(await closedWithin(idle, CUT_MS_MAX), 'the idle tunnel');
    const { head } = await keyveil.connect(session, 'api.test:443');
    t.match(head, /^HTTP\/1\.1 407 /);
  });
}

test('a host that is removed from an environment is cut, and refused from the next request on', async (t) => {
  const environment = await mustPost('/v1/environments', {
    name: 'e',
    config: { type: 'cloud', networking: { type: 'limited', allowed_hosts: ['api.test'] } },
  });
  const id = environment['id'] as string;
  const session = await keyveil.createSession({ vault_ids: [], environment_id: id });
  const download = await openDownload(session);
  await mustPost(`/v1/environments/${id}`, {
    config: { type: 'cloud', networking: { type: 'limited', allowed_hosts: ['other.test'] } },
  });
  t.ok(await closedWithin(download, CUT_MS_MAX));
  const { head } = await keyveil.connect(session, 'api.test:443');
  t.match(head, /^HTTP\/1\.1 403 /);
  t.match(head, /environment_denied/);
});

test('an address range that is taken out of an environment cuts what is open to it, and nothing else', async (t) => {
  const plain = await startUpstream({
    leaf: null,
    respond: (_request, response) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('begun');
    },
  });
  t.teardown(() => plain.close());
  const networking = (cidrs: string[]) => ({
    config: {
      type: 'cloud',
      networking: { type: 'limited', allowed_hosts: ['127.0.0.1', 'api.test'] },
      allowed_private_cidrs: cidrs,
    },
  });
  const environment = await mustPost('/v1/environments', { name: 'n', ...networking(['127.0.0.0/8', '10.0.0.0/8']) });
  const id = environment['id'] as string;
  const session = await keyveil.createSession({ vault_ids: [], environment_id: id });
  const begin = async () => {
    const { socket } = await keyveil.connect(session, `127.0.0.1:${plain.port}`);
    socket.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1:${plain.port}\r\n\r\n`);
    await readHead(socket);
    return socket.resume();
  };
  const inside = await begin();
  const elsewhere = await openDownload(session);
  await mustPost(`/v1/environments/${id}`, networking(['127.0.0.1/32']));
  await delay(1500);
  t.equal(inside.destroyed, false, 'an address that is admitted still stays');
  await mustPost(`/v1/environments/${id}`, networking(['10.0.0.0/8']));
  t.ok(await closedWithin(inside, CUT_MS_MAX));
  t.equal(elsewhere.destroyed, false, 'a host that an operator has sent elsewhere');
  elsewhere.destroy();
  const { head } = await keyveil.connect(session, `127.0.0.1:${plain.port}`);
  t.match(head, /^HTTP\/1\.1 403 /);
  t.match(head, /address_denied/);
});

test('an emergency stop refuses what would need a swap, lets all else pass, and survives a restart', async (t) => {
  respond = (request, response) => response.end(request.header('x-key') ?? 'none');
  const vaultId = await keyveil.createVault();
  const credential = await keyveil.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
    injection_location: { header: true, body: true },
  });
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  const ask = async (head: string, body = ''): Promise<string> => {
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write(`POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: ${body.length}\r\n${head}\r\n${body}`);
    const answer = await readHead(tls);
    tls.destroy();
    return answer;
  };
  await mustPost('/v1/emergency_stop', { active: true, reason: 'drill' });
  const received = upstream.received.length;
  t.match(await ask(`X-Key: ${credential.placeholder}\r\n`), /^HTTP\/1\.1 503 [^]*emergency_stop/);
  t.match(await ask('', credential.placeholder), /^HTTP\/1\.1 503 [^]*emergency_stop/);
  t.equal(upstream.received.length, received, 'nothing of it reached the upstream');
  t.match(await ask(''), /^HTTP\/1\.1 200 /);
  await keyveil.restart();
  t.match(await ask(`X-Key: ${credential.placeholder}\r\n`), /^HTTP\/1\.1 503 /);
  await mustPost('/v1/emergency_stop', { active: false });
  t.match(await ask(`X-Key: ${credential.placeholder}\r\n`), /^HTTP\/1\.1 200 /);
  t.equal(upstream.received.at(-1)?.header('x-key'), VALUE);
});

test('a session with too many denials is suspended, cut, and resumed by an operator', async (t) => {
  const session = await keyveil.createSession({ vault_ids: [], denial_limit: 3 });
  const open = await keyveil.tunnel(session, 'api.test:443');
  for (let round = 0; round < 3; round += 1) {
    const { head } = await keyveil.connect(session, '10.0.0.1:443');
    t.match(head, /^HTTP\/1\.1 403 /);
  }
  t.ok(await closedWithin(open, CUT_MS_MAX));
  t.equal((await keyveil.admin('GET', `/v1/sessions/${session.id}`)).body['status'], 'suspended');
  t.match((await keyveil.connect(session, 'api.test:443')).head, /^HTTP\/1\.1 407 [^]*session_inactive/);
  await mustPost(`/v1/sessions/${session.id}/resume`);
  t.match((await keyveil.connect(session, 'api.test:443')).head, /^HTTP\/1\.1 200 /);
  const { body } = await keyveil.admin('GET', '/v1/audit_events?limit=100');
  t.match(JSON.stringify(body), /"session\.suspend"/);
});

test('a session may begin so many requests per second, and have so many under way', async (t) => {
  await keyveil.restart({ KEYVEIL_SESSION_REQUESTS_PER_SECOND: '5', KEYVEIL_SESSION_REQUESTS_MAX: '2' });
  const session = await keyveil.createSession({ vault_ids: [] });
  respond = (_request, response) => response.end('ok');
  const tls = await keyveil.tunnel(session, 'api.test:443');
  const statuses: string[] = [];
  for (let round = 0; round < 12; round += 1) {
    tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
    statuses.push((await readHead(tls)).slice(9, 12));
    tls.read();
  }
  t.ok(statuses.includes('429'), statuses.join(' '));
  t.equal(statuses[0], '200');
  tls.destroy();
  await delay(1100);
  const downloads = [await openDownload(session), await openDownload(session)];
  const third = await keyveil.tunnel(session, 'api.test:443');
  third.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(third), /^HTTP\/1\.1 429 /);
  for (const socket of [...downloads, third]) socket.destroy();
});
