// Kill -9 at random moments of a mixed load: every start serves, both files are sound, and nothing that was answered is lost.
// KEYVEIL_TEST_KILLS says how often.
import { join } from 'node:path';
import { test } from 'tap';
import { openConnection } from '../../store/database.ts';
import { startDaemonProcess, type DaemonProcess } from '../support/daemon-process.ts';
import { findLostWrites, startMixedLoad } from '../support/mixed-load.ts';
import { readHead, type TestSession } from '../support/operator.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const KILLS = Number(process.env['KEYVEIL_TEST_KILLS'] ?? 4);
const LOAD_MS_MIN = 30;
const LOAD_MS_MAX = 900;
const VALUE = 'the-value-that-outlives-each-kill';

/** What is wrong with the two databases at rest, in words. */
function findDamage(dataDirectory: string): string[] {
  const faults: string[] = [];
  for (const name of ['keyveil.db', 'audit.db']) {
    const database = openConnection(join(dataDirectory, name), { readonly: false });
    try {
      const found = database.pragma('integrity_check', { simple: true });
      if (found !== 'ok') faults.push(`${name}: ${String(found)}`);
      if (name !== 'audit.db') continue;
      // A batch is an entry, its links to the credentials that it used, and when they were used last: all or nothing.
      const { unlinked, strays, unused } = database
        .prepare(
          `SELECT
             (SELECT count(*) FROM audit_entries WHERE entry LIKE '%"credentialId"%'
               AND sequence NOT IN (SELECT sequence FROM audit_credentials)) AS unlinked,
             (SELECT count(*) FROM audit_credentials WHERE sequence NOT IN (SELECT sequence FROM audit_entries)) AS strays,
             (SELECT count(*) FROM audit_credentials WHERE credential_id NOT IN (SELECT credential_id FROM credential_uses)) AS unused`,
        )
        .get() as Record<'unlinked' | 'strays' | 'unused', number>;
      if (unlinked + strays + unused > 0) faults.push(`half a batch: ${unlinked}, ${strays}, ${unused}`);
    } finally {
      database.close();
    }
  }
  return faults;
}

async function useSession(
  keyveil: DaemonProcess,
  session: TestSession,
  run: { api: TestUpstream; placeholder: string },
): Promise<string | undefined> {
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write(`GET /check HTTP/1.1\r\nHost: api.test\r\nX-Key: ${run.placeholder}\r\n\r\n`);
  const head = await readHead(tls);
  tls.destroy();
  return head.startsWith('HTTP/1.1 200 ') ? run.api.received.at(-1)?.header('x-key') : head;
}

test(`${KILLS} kills in the middle of writes and requests lose nothing that was answered`, async (t) => {
  const authority = createTestAuthority();
  const api = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  const environment = { KEYVEIL_LOG_LEVEL: 'info' };
  const keyveil = await startDaemonProcess({ authority, overrides: { 'api.test': api.port }, environment });
  t.teardown(async () => {
    await keyveil.close();
    await api.close();
  });
  const vaultId = await keyveil.createVault();
  const networking = { type: 'limited', allowed_hosts: ['api.test'] };
  const auth = { secret_name: 'KEY', secret_value: VALUE, networking };
  const { placeholder } = await keyveil.createCredential(vaultId, auth);
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  const faults: string[] = [];
  let writes = 0;
  let requests = 0;
  for (let round = 1; round <= KILLS; round += 1) {
    const load = startMixedLoad({ keyveil, session, placeholder, round });
    await new Promise((resolve) => setTimeout(resolve, LOAD_MS_MIN + Math.random() * (LOAD_MS_MAX - LOAD_MS_MIN)));
    await keyveil.kill();
    load.stop();
    await load.ended;
    faults.push(...findDamage(keyveil.dataDirectory));
    await keyveil.start();
    faults.push(...(await findLostWrites(keyveil, load.written)));
    const received = await useSession(keyveil, session, { api, placeholder });
    if (received !== VALUE) faults.push(`round ${round}: the session's request arrived with ${String(received)}`);
    writes += load.written.length;
    requests += load.answeredRequests;
    api.received.length = 0;
    keyveil.log.splice(0);
    if (faults.length > 0) break;
  }
  t.comment(`${KILLS} kills, ${writes} credentials written, ${requests} requests answered`);
  t.strictSame(faults, []);
  t.ok(writes > 0 && requests > 0, 'there was something to lose');
});
