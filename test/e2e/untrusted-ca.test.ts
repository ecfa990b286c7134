// A handshake that the client gives up is recorded: another version of TLS, or a CA that it does not trust.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { probeProgram } from '../clients/client.ts';

const ROW = { outcome: 'refused', reason: 'tls_handshake_failed', host: 'api.test', method: 'CONNECT' };
const hasCurl = !('missing' in probeProgram('curl', ['--version'], /^curl (\S+)/));

test('a client that speaks no TLS of ours, and one that does not trust the CA, leave a row each', async (t) => {
  const authority = createTestAuthority();
  const keyveil = await startTestProxy({ authority, overrides: { 'api.test:443': 1 }, policy: sessionPolicy([]) });
  const directory = mkdtempSync(join(tmpdir(), 'kv-ca-'));
  t.teardown(async () => {
    await keyveil.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const old = keyveil.nextEvent();
  await t.rejects(keyveil.tunnel('api.test:443', { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1' }));
  const { sessionId, ...row } = await old;
  t.match(row, ROW);
  if (!hasCurl) return;
  writeFileSync(join(directory, 'ca.pem'), authority.caPem);
  const proxy = `http://${String(sessionId)}:test-token@127.0.0.1:${keyveil.port}`;
  const distrusted = keyveil.nextEvent();
  const curl = spawn('curl', ['-sS', '-x', proxy, '--cacert', join(directory, 'ca.pem'), 'https://api.test/'], {
    stdio: 'ignore',
  });
  const [code] = (await once(curl, 'close')) as [number];
  t.equal(code, 60, 'curl: the certificate can not be verified');
  t.match(await distrusted, ROW);
});
