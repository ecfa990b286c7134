// A machine in trouble: a full disk, a read-only one, no file descriptors, a stalled process, a clock that jumps. The daemon
// answers clearly meanwhile, and serves again without a restart when the cause is gone.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import t, { test, type Test } from 'tap';
import { startTestDaemon } from '../support/daemon.ts';
import { startDaemonProcess, type DaemonProcess } from '../support/daemon-process.ts';
import { createFaultyDisk, skipWithoutFaultyDisk } from '../support/disk-faults.ts';
import { createManualClock } from '../support/manual-clock.ts';
import { readHead, type Operator, type TestSession } from '../support/operator.ts';
import { skipWithout } from '../support/programs.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const VALUE = 'the-value-on-a-machine-in-trouble';
const DAY_MS = 24 * 3600 * 1000;
const STALL_MS = 5000;
const TRIES = 600;
const skipOffLinux = process.platform === 'linux' ? false : 'it reads /proc';

const authority = createTestAuthority();
let api: TestUpstream;

t.before(async () => {
  api = await startUpstream({ leaf: authority.leafFor(['api.test', 'other.test']) });
});

t.teardown(() => api.close());

interface Scene {
  readonly session: TestSession;
  readonly placeholder: string;
}

async function openScene(operator: Operator): Promise<Scene> {
  const vaultId = await operator.createVault();
  const { placeholder } = await operator.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: VALUE,
    networking: { type: 'unrestricted' },
    injection_location: { header: true, body: true },
  });
  return { placeholder, session: await operator.createSession({ vault_ids: [vaultId] }) };
}

/** Sends a request by a tunnel of its own; gives the head of the answer, or why there was none. */
async function ask(operator: Operator, { session, placeholder }: Scene, run: { host?: string; body?: string } = {}) {
  const { host = 'api.test', body } = run;
  try {
    const tls = await operator.tunnel(session, `${host}:443`);
    const length = body === undefined ? '' : `Content-Type: text/plain\r\nContent-Length: ${body.length}\r\n`;
    tls.write(
      `${body === undefined ? 'GET' : 'POST'} / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n${length}\r\n${body ?? ''}`,
    );
    const head = await readHead(tls);
    tls.destroy();
    return head.split('\r\n', 1)[0] ?? '';
  } catch (error) {
    return String(error);
  }
}

/** Waits until a condition holds; false when it never did. */
async function becomes(condition: () => Promise<boolean>): Promise<boolean> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    if (await condition()) return true;
    await delay(50);
  }
  return false;
}

async function auditCount(operator: Operator): Promise<number> {
  const { status, body } = await operator.admin('GET', '/v1/audit_events?limit=100');
  return status === 200 ? (body['data'] as { kind?: string }[]).length : -1;
}

for (const kind of ['full', 'read-only'] as const) {
  test(`a disk that is ${kind}`, { skip: skipWithoutFaultyDisk() }, async (t) => {
    const directory = mkdtempSync(join(tmpdir(), 'kv-disk-'));
    const dataDirectory = join(directory, 'data');
    const disk = createFaultyDisk(directory, dataDirectory);
    const keyveil = await startDaemonProcess({
      authority,
      overrides: { 'api.test': api.port },
      environment: { ...disk.environment, KEYVEIL_DATA_DIR: dataDirectory },
    });
    t.teardown(async () => {
      await keyveil.close();
      rmSync(directory, { recursive: true, force: true });
    });
    const scene = await openScene(keyveil);
    const { pid } = keyveil;
    const large = { body: scene.placeholder.padEnd(3 * 1024 * 1024, '.') };
    t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/);
    await becomes(async () => (await auditCount(keyveil)) > 0);
    const before = await auditCount(keyveil);

    disk.fail(kind);
    const refused = await keyveil.admin('POST', '/v1/vaults', { display_name: 'not stored' });
    t.match(refused, { status: 503, body: { error: { code: 'store_unavailable' } } }, 'a write is refused, not lost');
    t.match(await keyveil.admin('GET', '/v1/vaults'), { status: 200 }, 'reads go on');
    t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/, 'requests go on');
    t.match(await ask(keyveil, scene, large), /^HTTP\/1\.1 503/, 'but not those that the spool would have to hold');
    t.equal(api.received.at(-1)?.header('x-key'), VALUE);

    disk.mend();
    t.ok(
      await becomes(async () => (await keyveil.admin('POST', '/v1/vaults', { display_name: 'stored' })).status === 200),
    );
    t.match(await ask(keyveil, scene, large), /^HTTP\/1\.1 200/);
    // Two writes that were stored, and four requests, of which two came while nothing could be written.
    t.ok(await becomes(async () => (await auditCount(keyveil)) >= before + 4), 'no audit event was lost');
    t.equal(keyveil.pid, pid, 'without a restart');
    const names = ((await keyveil.admin('GET', '/v1/vaults')).body['data'] as { display_name: string }[]).map(
      ({ display_name: name }) => name,
    );
    t.notOk(names.includes('not stored'));
    t.equal(await keyveil.stop(), 0);
  });
}

test('a start on a disk that can not be written', { skip: skipWithoutFaultyDisk() }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kv-disk-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const dataDirectory = join(directory, 'data');
  mkdirSync(dataDirectory, { mode: 0o700 });
  const disk = createFaultyDisk(directory, dataDirectory);
  disk.fail('read-only');
  const environment = { ...disk.environment, KEYVEIL_DATA_DIR: dataDirectory };
  await t.rejects(startDaemonProcess({ authority, environment }), /ended with 1:[\s\S]*can't be used \(EROFS\)/);
  t.strictSame(readdirSync(dataDirectory), []);
});

function openFiles(keyveil: DaemonProcess): number {
  return readdirSync(`/proc/${keyveil.pid}/fd`).length;
}

async function startProcess(t: Test, overrides: Record<string, number>): Promise<DaemonProcess> {
  const keyveil = await startDaemonProcess({ authority, overrides });
  t.teardown(() => keyveil.close());
  return keyveil;
}

test('no file descriptor left', { skip: skipOffLinux || skipWithout('prlimit') }, async (t) => {
  const keyveil = await startProcess(t, { 'api.test': api.port });
  const scene = await openScene(keyveil);
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/);
  const limit = (count: number): void => {
    const { status } = spawnSync('prlimit', ['--pid', String(keyveil.pid), `--nofile=${count}:4096`]);
    if (status !== 0) throw new Error('prlimit failed');
  };
  limit(openFiles(keyveil) + 4);
  const sockets: Socket[] = [];
  for (let count = 0; count < 40; count += 1) {
    const socket = connect(keyveil.proxyPort, '127.0.0.1');
    socket.on('error', () => undefined);
    sockets.push(socket);
  }
  await delay(300);
  t.notMatch(
    await Promise.race([ask(keyveil, scene), delay(3000, 'no answer')]),
    /^HTTP\/1\.1 200/,
    'nothing is served',
  );
  for (const socket of sockets) socket.destroy();
  limit(4096);
  t.ok(await becomes(async () => /^HTTP\/1\.1 200/.test(await ask(keyveil, scene))), 'served again without a restart');
  t.equal((await keyveil.admin('GET', '/v1/vaults')).status, 200);
  t.equal(await keyveil.stop(), 0);
});

test(`a stall of ${STALL_MS} ms`, { skip: skipOffLinux }, async (t) => {
  const keyveil = await startProcess(t, { 'api.test': api.port });
  const scene = await openScene(keyveil);
  const tls = await keyveil.tunnel(scene.session, 'api.test:443');
  process.kill(keyveil.pid, 'SIGSTOP');
  tls.write(`GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: ${scene.placeholder}\r\n\r\n`);
  const whileStopped = [ask(keyveil, scene), keyveil.admin('POST', '/v1/vaults', { display_name: 'waited' })] as const;
  await delay(STALL_MS);
  process.kill(keyveil.pid, 'SIGCONT');
  t.match(await readHead(tls), /^HTTP\/1\.1 200/, 'a request on an open connection is answered late');
  tls.destroy();
  const [answer, written] = await Promise.all(whileStopped);
  t.match(answer, /^HTTP\/1\.1 200/, 'so is one on a new connection');
  t.equal(written.status, 200);
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/);
});

test('a clock that jumps a day ahead and two days back', async (t) => {
  const clock = createManualClock(Date.now());
  const environment = { KEYVEIL_SESSION_REQUESTS_PER_SECOND: '1000' };
  const overrides = { 'api.test': api.port, 'other.test': api.port };
  const keyveil = await startTestDaemon({ authority, overrides, clock, environment });
  t.teardown(() => keyveil.close());
  const scene = await openScene(keyveil);
  const short = { ...scene, session: await keyveil.createSession({ vault_ids: [], expires_in: 3600 }) };
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/);
  t.match(await ask(keyveil, short), /^HTTP\/1\.1 200/);

  clock.advance(DAY_MS);
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/, 'a day ahead');
  t.match(await ask(keyveil, scene, { host: 'other.test' }), /^HTTP\/1\.1 200/, 'with a new certificate');
  t.match(await ask(keyveil, short), /407|403/, 'a session whose time is over by the clock has ended');
  t.equal((await keyveil.admin('POST', '/v1/vaults', { display_name: 'ahead' })).status, 200);

  clock.advance(-2 * DAY_MS);
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/, 'a day back');
  t.match(await ask(keyveil, scene, { host: 'other.test' }), /^HTTP\/1\.1 200/);
  t.match(await ask(keyveil, short), /^HTTP\/1\.1 200/, 'and has not, when the clock says so');
  t.equal((await keyveil.admin('POST', '/v1/vaults', { display_name: 'behind' })).status, 200);

  clock.advance(DAY_MS);
  t.match(await ask(keyveil, scene), /^HTTP\/1\.1 200/, 'right again');
  t.ok(await becomes(async () => (await auditCount(keyveil)) >= 9), 'every request and write is in the audit log');
  const { body } = await keyveil.admin('GET', '/v1/audit_events?limit=100');
  const durations = (body['data'] as { duration_ms?: number }[]).map(({ duration_ms: ms = 0 }) => ms);
  t.ok(durations.every((ms) => ms >= 0 && ms < DAY_MS));
  t.strictSame(
    keyveil.log.filter((line) => line.startsWith('error')),
    [],
  );
});
