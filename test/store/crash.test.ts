// Kill -9 in the middle of writes: everything that was answered is there, nothing is half there, and the next start serves.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { Secret } from '../../model/secret.ts';
import { openConnection } from '../../store/database.ts';
import { createKeyRing } from '../../store/key-ring.ts';
import { openStore } from '../../store/open-store.ts';
import { createMemoryLogger, createTemporaryDirectory, newSession, SESSION_SETTINGS } from '../support/store.ts';

const WRITER = fileURLToPath(new URL('../support/crash-writer.ts', import.meta.url));

test('every answered write survives a kill, and nothing is half written', async (t) => {
  const directory = createTemporaryDirectory(t);
  const key = randomBytes(32);
  const keys = createKeyRing(Secret.fromBytes(Buffer.from(key)));
  const answered: [string, string][] = [];
  const auditRetention = { days: 30, bytesMax: 1e9 };
  const { logger } = createMemoryLogger();
  const defaultNetworking = { type: 'unrestricted' as const };
  for (const kills of [10, 23, 37]) {
    const args = ['--import=./scripts/ts-register.mjs', WRITER, directory, key.toString('hex')];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const exited = once(child, 'exit');
    let lines = 0;
    for await (const line of createInterface({ input: child.stdout })) {
      const [vaultId = '', id = ''] = line.split(' ');
      answered.push([vaultId, id]);
      lines += 1;
      if (lines === kills) child.kill('SIGKILL');
    }
    await exited;
    t.ok(lines >= kills);

    const store = await openStore({
      directory,
      keys,
      keySource: 'x',
      clock: Date,
      logger,
      defaultNetworking,
      auditRetention,
    });
    const { vaults, credentials, sessions } = store.control;
    for (const [vaultId, id] of answered) {
      t.equal((await vaults.get(vaultId)).id, vaultId);
      t.equal((await credentials.get(vaultId, id)).id, id);
    }
    const last = answered.at(-1)?.[0] ?? '';
    const { session } = await sessions.create(newSession([last]), SESSION_SETTINGS);
    const policies = store.openPolicies();
    const value = (await policies.read(session.id))?.credentials[0]?.open().reveal().toString() ?? '';
    t.match(value, /^(a value of some length|rotated by the child)$/);
    await policies.close();
    await store.close();

    for (const name of ['keyveil.db', 'audit.db']) {
      const database = openConnection(join(directory, name), { readonly: true });
      t.equal(database.pragma('integrity_check', { simple: true }), 'ok');
      if (name === 'audit.db') {
        const counts = database
          .prepare(
            'SELECT (SELECT count(*) FROM audit_entries) AS entries, (SELECT count(*) FROM audit_credentials) AS links',
          )
          .get() as { entries: number; links: number };
        t.equal(counts.entries, counts.links, 'no entry without its credential');
      }
      database.close();
    }
  }
});
