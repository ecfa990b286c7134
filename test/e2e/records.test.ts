// What is told of a request afterwards: Proxy-Status of placeholders in bodies, the audit row, the debug line.
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { test, type Test } from 'tap';
import { readAll, readHead, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const VALUE = 'the-real-secret-value-0001';
const POLL_INTERVAL_MS = 20;
const ROW_WITHIN_MS = 60_000;

interface Scene {
  readonly keyveil: TestDaemon;
  readonly api: TestUpstream;
  readonly session: TestSession;
  readonly placeholder: string;
}

/** A port on which every connection is cut at once: TLS fails there. */
async function openCuttingPort(t: Test): Promise<number> {
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}

async function openScene(t: Test, body = false): Promise<Scene> {
  const authority = createTestAuthority();
  const api = await startUpstream({ leaf: authority.leafFor(['api.test', 'other.test']) });
  const plain = await startUpstream({ leaf: null });
  const cutting = await openCuttingPort(t);
  const keyveil = await startTestDaemon({
    authority,
    overrides: { 'api.test': api.port, 'other.test': api.port, 'plain.test:80': plain.port, 'broken.test': cutting },
  });
  t.teardown(async () => {
    await keyveil.close();
    await api.close();
    await plain.close();
  });
  const vaultId = await keyveil.createVault();
  const { placeholder } = await keyveil.createCredential(vaultId, {
    secret_name: 'MY_KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test', 'broken.test', 'gone.invalid'] },
    injection_location: { header: true, body },
  });
  return { keyveil, api, placeholder, session: await keyveil.createSession({ vault_ids: [vaultId] }) };
}

/** Sends one request in a tunnel of its own; resolves with the head of the answer. */
async function send(
  { keyveil, session }: Scene,
  host: string,
  request: { readonly head: string; readonly body?: Buffer },
): Promise<string> {
  const tls = await keyveil.tunnel(session, `${host}:443`);
  tls.write(`${request.head}\r\nHost: ${host}\r\nContent-Length: ${request.body?.length ?? 0}\r\n\r\n`);
  tls.write(request.body ?? '');
  const head = await readHead(tls);
  tls.destroy();
  return head;
}

interface Row {
  readonly path: string;
  readonly outcome: string;
  readonly reason: string | null;
  readonly swaps: readonly { location: string; count: number }[];
  readonly misses: readonly { location: string; reason: string; count?: number }[];
}

/** The audit row of a path, once it is written. */
async function rowOf({ keyveil }: Scene, path: string): Promise<Row> {
  for (const start = Date.now(); Date.now() - start < ROW_WITHIN_MS;) {
    const { body } = await keyveil.admin('GET', '/v1/audit_events?limit=100');
    const row = (body['data'] as Row[]).find((each) => each.path === path);
    if (row !== undefined) return row;
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
  throw new Error(`no audit row of ${path}`);
}

void test('Proxy-Status names what was seen in a body and not swapped, and the audit counts it once', async (t) => {
  const scene = await openScene(t);
  const json = Buffer.from(JSON.stringify({ k: scene.placeholder }));
  const said = /^Proxy-Status: keyveil; details="MY_KEY not swapped: location_disabled"$/im;
  const off = await send(scene, 'api.test', {
    head: 'POST /off HTTP/1.1\r\nContent-Type: application/json',
    body: json,
  });
  t.match(off, said);
  t.equal(scene.api.received.at(-1)?.body.toString(), json.toString(), 'the body went on as it was');
  const { misses } = await rowOf(scene, '/off');
  t.match(misses, [{ location: 'body', reason: 'location_disabled' }]);
  t.equal(misses.length, 1);
  const elsewhere = await send(scene, 'other.test', { head: 'POST /other HTTP/1.1', body: json });
  t.match(elsewhere, /details="MY_KEY not swapped: host_not_covered"/);
  const both = { head: `POST /both?k=${scene.placeholder} HTTP/1.1`, body: json };
  t.match(await send(scene, 'api.test', both), /MY_KEY not swapped: in_url, MY_KEY not swapped: location_disabled/);
  t.notMatch(await send(scene, 'api.test', { head: 'POST /none HTTP/1.1', body: Buffer.from('{}') }), /proxy-status/i);
});

void test('the same where bodies are swapped, for those that can not be', async (t) => {
  const scene = await openScene(t, true);
  const body = Buffer.from(scene.placeholder);
  const grpc = { head: 'POST /framed HTTP/1.1\r\nContent-Type: application/x-protobuf', body };
  t.match(await send(scene, 'api.test', grpc), /MY_KEY not swapped: binary_framing/);
  const elsewhere = { head: 'POST /packed HTTP/1.1\r\nContent-Encoding: gzip', body: gzipSync(body) };
  t.match(await send(scene, 'api.test', elsewhere), /^HTTP\/1\.1 200 /);
  t.match((await rowOf(scene, '/packed')).swaps, [{ location: 'body' }]);
});

void test('a swap is recorded only when the request was handed to an upstream', async (t) => {
  const scene = await openScene(t, true);
  const { placeholder } = scene;
  const body = Buffer.from(`{"k":"${placeholder}"}`);
  for (const host of ['broken.test', 'gone.invalid']) {
    const head = `POST /${host} HTTP/1.1\r\nX-Key: ${placeholder}\r\nContent-Type: application/json`;
    const { socket, head: answer } = await scene.keyveil.connect(scene.session, `${host}:443`);
    socket.destroy();
    if (!answer.startsWith('HTTP/1.1 200')) continue; // The name was refused before.
    t.match(await send(scene, host, { head, body }), /^HTTP\/1\.1 502 /);
    t.match(await rowOf(scene, `/${host}`), { outcome: 'failed', swaps: [] });
  }
  t.match((await rowOf(scene, '/broken.test')).reason, 'upstream_tls_failed');
  const head = `POST /sent HTTP/1.1\r\nX-Key: ${placeholder}\r\nContent-Type: application/json`;
  t.match(await send(scene, 'api.test', { head, body }), /^HTTP\/1\.1 200 /);
  const { swaps } = await rowOf(scene, '/sent');
  t.same(
    swaps.map(({ location }) => location),
    ['header', 'body'],
  );
});

void test('the row of a request in absolute form has its path, whatever became of it', async (t) => {
  const scene = await openScene(t);
  const ask = async (target: string): Promise<string> => {
    const socket: Socket = connect(scene.keyveil.daemon.proxyAddress.port, '127.0.0.1');
    const { host } = new URL(target);
    const login = `Proxy-Authorization: ${scene.session.authorization}`;
    socket.write(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${login}\r\nConnection: close\r\n\r\n`);
    return readAll(socket);
  };
  t.match(await ask('http://plain.test/good?q=1'), /^HTTP\/1\.1 200 /);
  t.match(await ask('http://169.254.169.254/refused?q=1'), /^HTTP\/1\.1 403 /);
  t.match(
    await ask('http://gone.invalid/failed'),
    /^HTTP\/1\.1 502 [^]*Proxy-Status: keyveil; error=dns_(?:error|timeout);/i,
  );
  t.match(await ask('http://127.0.0.1'), /^HTTP\/1\.1 403 /);
  t.equal((await rowOf(scene, '/good')).outcome, 'forwarded');
  t.equal((await rowOf(scene, '/refused')).outcome, 'refused');
  t.equal((await rowOf(scene, '/failed')).outcome, 'failed');
  t.equal((await rowOf(scene, '/')).outcome, 'refused');
});

void test('at the level debug each request is one line, without path, placeholder or value', async (t) => {
  const scene = await openScene(t);
  await send(scene, 'api.test', { head: `GET /secret-path?k=v HTTP/1.1\r\nX-Key: ${scene.placeholder}` });
  await rowOf(scene, '/secret-path');
  const lines = scene.keyveil.log.filter((line) => line.startsWith('debug Request '));
  t.equal(lines.length, 1);
  const fields = JSON.parse(lines[0]?.slice('debug Request '.length) ?? '') as Record<string, unknown>;
  t.match(fields, {
    sessionId: scene.session.id,
    method: 'GET',
    host: 'api.test',
    port: 443,
    status: 200,
    outcome: 'forwarded',
  });
  t.same(Object.keys(fields).sort(), ['durationMs', 'host', 'method', 'outcome', 'port', 'sessionId', 'status']);
});
