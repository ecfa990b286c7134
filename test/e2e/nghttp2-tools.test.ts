// The tools of nghttp2, a foreign implementation of HTTP/2, against the HTTP/2 inside a tunnel.
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { test } from 'tap';
import { openConnectBridge } from '../support/connect-bridge.ts';
import { startTestDaemon, type TestDaemon } from '../support/daemon.ts';
import { startFullUpstream, type FullUpstream } from '../support/full-upstream.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const run = promisify(execFile);
const VALUE = 'nghttp-real-secret-value-0001';
const REQUESTS = 2000;
const isThere = spawnSync('h2load', ['--version']).status === 0 && spawnSync('nghttp', ['--version']).status === 0;
const skip = isThere ? false : 'h2load and nghttp are not installed (scripts/install-clients.sh)';

let upstream: FullUpstream;
let keyveil: TestDaemon;
let bridge: Awaited<ReturnType<typeof openConnectBridge>>;
let placeholder = '';

t.setTimeout(300_000);

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startFullUpstream({
    leaf: authority.leafFor(['api.test']),
    route(request, response) {
      if (request.url !== '/') return false;
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.end(`saw ${String(request.headers['x-key'])} and ${request.body.length}`);
      return true;
    },
  });
  keyveil = await startTestDaemon({ authority, overrides: { 'api.test': upstream.port } });
  const vaultId = await keyveil.createVault();
  ({ placeholder } = await keyveil.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
  }));
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  bridge = await openConnectBridge(async () => (await keyveil.connect(session, 'api.test:443')).socket);
});

t.teardown(async () => {
  await bridge.close();
  await keyveil.close();
  await upstream.close();
});

test('h2load: four connections with 32 streams each, and every answer is whole', { skip }, async (t) => {
  const { stdout } = await run('h2load', [
    ...['-n', String(REQUESTS), '-c', '4', '-m', '32', '--connect-to', `127.0.0.1:${bridge.port}`],
    ...['-H', `x-key: ${placeholder}`, 'https://api.test/'],
  ]);
  t.match(stdout, new RegExp(`${REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout`), stdout);
  t.match(stdout, new RegExp(`status codes: ${REQUESTS} 2xx`));
  t.equal(upstream.received.length, REQUESTS);
  t.ok(upstream.received.every(({ headers, httpVersion }) => headers['x-key'] === VALUE && httpVersion === '2.0'));
});

test('nghttp: an upload with trailers and a placeholder in a field', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kvn-'));
  const file = join(directory, 'body');
  writeFileSync(file, Buffer.alloc(300_000, 'x'));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const { stdout } = await run('nghttp', [
    ...['-d', file, '-H', ':authority: api.test', '-H', `x-key: ${placeholder}`, '--trailer', 'x-sum: 1'],
    `https://127.0.0.1:${bridge.port}/`,
  ]).catch((error: unknown) => error as { stdout: string });
  t.equal(upstream.received.at(-1)?.headers['x-key'], VALUE, 'the upstream got the value');
  t.equal(upstream.received.at(-1)?.body.length, 300_000);
  // What the upstream repeats comes back as the placeholder.
  t.match(stdout, `saw ${placeholder} and 300000`);
});
