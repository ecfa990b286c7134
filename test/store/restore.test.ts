// Restore: what had ended since the backup is told, ended again where that is wanted, and an emergency stop stays on.
import { mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'tap';
import { Secret } from '../../model/secret.ts';
import { backupStore } from '../../store/backup.ts';
import { openStore } from '../../store/open-store.ts';
import { restoreStore, type RestoreOptions } from '../../store/restore.ts';
import {
  createTemporaryDirectory,
  newCredential,
  newSession,
  openTestStore,
  SESSION_SETTINGS,
  START_MS,
  WHOLE_LIST,
} from '../support/store.ts';

const DAY_MS = 86_400_000;

void test('what a backup brings back is counted, and can be ended on the way', async (t) => {
  const { store, options, directory } = await openTestStore(t);
  const { control } = store;
  const vault = await control.vaults.create({ displayName: 'kept', metadata: {} });
  const create = (name: string) => control.credentials.create(newCredential(vault.id, { secretName: name }));
  const [archived, rotated] = [await create('ARCHIVED'), await create('ROTATED')];
  await create('SAME');
  const open = async (expiresAt: number | null = null) =>
    (await control.sessions.create(newSession([vault.id], { expiresAt }), SESSION_SETTINGS)).session.id;
  const [ended, renewed, suspended] = [await open(), await open(), await open()];
  await open();
  await open(START_MS + DAY_MS);
  const token = async (name: string, expiresAt: number | null) =>
    (await control.adminTokens.create({ name, scope: 'admin', expiresAt })).adminToken.id;
  const deleted = await token('deleted', null);
  await token('kept', null);
  await token('over', START_MS + DAY_MS);
  const files = createTemporaryDirectory(t);
  const file = join(files, 'backup.db');
  await backupStore(directory, file);

  await control.credentials.archive(vault.id, archived.id);
  await control.credentials.update(vault.id, rotated.id, {
    secretValue: Secret.fromText('another value of some length'),
  });
  await control.sessions.archive(ended);
  await control.sessions.rotateToken(renewed);
  await control.sessions.suspend(suspended, 'denial_limit');
  await control.adminTokens.delete(deleted);
  await control.emergencyStop.set({ active: true, reason: 'a key leaked' });
  await store.close();

  const restore = (more: Partial<RestoreOptions> = {}) =>
    restoreStore({
      ...{ directory, file, keys: options.keys, keySource: 'the test', nowMs: START_MS + 2 * DAY_MS },
      asideSuffix: `.${String(readdirSync(directory).length)}`,
      ...more,
    });
  const refused = readdirSync(directory);
  t.throws(() => restore({ file: join(files, 'none') }), { name: 'StartError' });
  t.strictSame(readdirSync(directory), refused);
  t.strictSame(restore(), {
    usable: { sessions: 4, tokens: 2, credentials: 3 },
    revived: { sessions: 3, tokens: 1, credentials: 2 },
    emergencyStop: { active: true, reason: 'a key leaked' },
    emergencyStopKept: true,
  });
  t.strictSame(
    restore({ archiveSessions: true, deleteTokens: true }),
    {
      usable: { sessions: 0, tokens: 0, credentials: 3 },
      revived: { sessions: 0, tokens: 0, credentials: 0 },
      emergencyStop: { active: true, reason: 'a key leaked' },
      emergencyStopKept: true,
    },
    'the stop stays on through any number of restores',
  );
  const again = await openStore(options);
  t.ok((await again.control.sessions.list(WHOLE_LIST)).items.every(({ archivedAt }) => archivedAt !== null));
  t.strictSame((await again.control.adminTokens.list(WHOLE_LIST)).items, []);
  t.strictSame(await again.control.emergencyStop.get(), { active: true, reason: 'a key leaked' });
  await again.control.emergencyStop.set({ active: false, reason: null });
  await again.close();
  t.match(restore(), { emergencyStop: { active: false }, emergencyStopKept: false });

  // A database that can't be read is no reason to refuse: it may be why there is a restore.
  truncateSync(join(directory, 'keyveil.db'), 5000);
  t.match(restore(), { usable: { sessions: 4, tokens: 2 }, revived: null, emergencyStopKept: false });
  const empty = join(files, 'empty');
  t.match(restore({ directory: empty }), { revived: null });
});

void test('a broken backup is answered with the advice to take another one', (t) => {
  const directory = createTemporaryDirectory(t);
  const file = join(directory, 'backup.db');
  writeFileSync(file, readFileSync(join(import.meta.dirname, '../../package.json')));
  const target = join(directory, 'data');
  mkdirSync(target);
  t.throws(() => restoreStore({ directory: target, file, keys: {} as never, keySource: 'the test', nowMs: START_MS }), {
    message: /backup\.db can't be used: it is not an SQLite database\. Nothing was changed; take another backup\.$/,
  });
  t.strictSame(readdirSync(target), [], 'and nothing was made');
  t.end();
});
