// Files of the data directory: made privately, never overwritten, refused with one clear line when they are not ours.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { test } from 'tap';
import { Secret } from '../../model/secret.ts';
import { backupStore } from '../../store/backup.ts';
import { acquireDataLock, dataPathsOf, prepareDataDirectory } from '../../store/data-directory.ts';
import { AUDIT_DATABASE, CONTROL_DATABASE, openOwnedDatabase, faultCodeOf } from '../../store/database.ts';
import { createMasterKeyText, openMasterKeyFile, parseMasterKey } from '../../store/key-file.ts';
import { migrate, readMigrations, requireCurrentSchema } from '../../store/migrate.ts';
import { openStore } from '../../store/open-store.ts';
import { restoreStore } from '../../store/restore.ts';
import {
  createRandomKeyRing,
  createTemporaryDirectory,
  newCredential,
  openTestStore,
  START_MS,
} from '../support/store.ts';

const modeOf = (path: string) => statSync(path).mode & 0o777;

test('a database is made privately and keeps its settings', async (t) => {
  const path = join(createTemporaryDirectory(t), 'a.db');
  const { database, warnings } = openOwnedDatabase(path, AUDIT_DATABASE);
  t.strictSame(warnings, []);
  const read = (name: string): unknown => database.pragma(name, { simple: true });
  database.exec('CREATE TABLE a (b) STRICT'.replace('(b)', '(b INTEGER)'));
  t.strictSame(
    ['journal_mode', 'synchronous', 'foreign_keys', 'secure_delete', 'trusted_schema', 'auto_vacuum'].map(read),
    ['wal', 2, 1, 1, 0, 2],
  );
  t.strictSame(
    ['', '-wal', '-shm'].map((ending) => modeOf(path + ending)),
    [0o600, 0o600, 0o600],
  );
  database.close();
  chmodSync(path, 0o644);
  const again = openOwnedDatabase(path, AUDIT_DATABASE);
  again.database.close();
  t.match(again.warnings, [/a\.db could be read by other users \(mode 0644\); its mode is 0600 now/]);
  t.equal(modeOf(path), 0o600);
});

test('what is not our database is refused and left as it is', async (t) => {
  const directory = createTemporaryDirectory(t);
  const path = join(directory, 'a.db');
  const refuse = (what: string, message: RegExp) => {
    const before = readFileSync(path);
    t.throws(() => openOwnedDatabase(path, CONTROL_DATABASE), { name: 'StartError', message }, what);
    t.strictSame(readFileSync(path), before, 'nothing was changed');
    rmSync(path, { recursive: true });
    rmSync(`${path}-wal`, { force: true });
    rmSync(`${path}-shm`, { force: true });
  };
  writeFileSync(path, 'text', { mode: 0o600 });
  refuse('text', /it is not an SQLite database/);
  writeFileSync(path, '', { mode: 0o600 });
  refuse('an empty file', /it is not an SQLite database/);
  const foreign = new Sqlite(path);
  foreign.exec('CREATE TABLE a (b)');
  foreign.close();
  refuse('of another program', /another program made it/);
  openOwnedDatabase(path, AUDIT_DATABASE).database.close();
  refuse('another file of ours', /another of Keyveil/);
  const damaged = openOwnedDatabase(path, CONTROL_DATABASE).database;
  damaged.exec('CREATE TABLE a (b TEXT)');
  const insert = damaged.prepare('INSERT INTO a VALUES (?)');
  for (let n = 0; n < 100; n += 1) insert.run('x'.repeat(500));
  damaged.close();
  const bytes = readFileSync(path);
  const whole = Buffer.from(bytes);
  bytes.fill(0x5a, 8192, 16384);
  writeFileSync(path, bytes);
  refuse('damaged pages', /it is damaged|opening it failed with SQLITE_CORRUPT/);
  whole.fill(0x5a, 4096);
  whole.fill(0x5a, 100, 4096);
  writeFileSync(path, whole);
  refuse('a damaged schema', /opening it failed with SQLITE_/);
  const target = join(directory, 'target');
  writeFileSync(target, 'x');
  symlinkSync(target, path);
  refuse('a symbolic link', /not a plain file/);
  writeFileSync(`${path}-wal`, 'x');
  t.throws(() => openOwnedDatabase(path, CONTROL_DATABASE), { name: 'StartError', message: /is missing, but its log/ });
  t.notOk(existsSync(path));
});

test('a file too large to check at each start is opened all the same', async (t) => {
  const path = join(createTemporaryDirectory(t), 'a.db');
  const kind = { ...CONTROL_DATABASE, checkedBytesMax: 0 };
  openOwnedDatabase(path, kind).database.close();
  openOwnedDatabase(path, kind).database.close();
  t.equal(faultCodeOf(new Error('x')), 'unknown');
});

/** Writes the list of a folder's migrations, as a release has it. */
function writeSums(folder: string): void {
  const names = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  const sums = names.sort().map((name) => {
    const digest = createHash('sha256').update(readFileSync(join(folder, name)));
    return `${digest.digest('hex')}  ${name}\n`;
  });
  writeFileSync(join(folder, 'SHA256SUMS'), sums.join(''));
}

test('migrations run once, each as a whole, and must stay as they were', async (t) => {
  const directory = createTemporaryDirectory(t);
  const folder = join(directory, 'migrations');
  mkdirSync(folder);
  const release = (files: Readonly<Record<string, string | null>>): void => {
    for (const [name, sql] of Object.entries(files)) {
      if (sql === null) rmSync(join(folder, name));
      else writeFileSync(join(folder, name), sql);
    }
    writeSums(folder);
  };
  const { database } = openOwnedDatabase(join(directory, 'a.db'), CONTROL_DATABASE);
  t.teardown(() => database.close());
  release({ '0001_first.sql': 'CREATE TABLE a (b INTEGER) STRICT;' });
  t.throws(() => {
    requireCurrentSchema(database, folder);
  }, /has an older schema/);
  t.equal(migrate(database, folder, 7), 1);
  t.equal(migrate(database, folder, 8), 0);
  requireCurrentSchema(database, folder);
  t.match(database.prepare('SELECT * FROM schema_migrations').all(), [
    { version: 1, name: '0001_first.sql', applied_at: 7 },
  ]);
  release({ '0002_second.sql': 'CREATE TABLE c (d INTEGER) STRICT; CREATE TABLE a (again INTEGER);' });
  t.throws(() => migrate(database, folder, 9), {
    name: 'StartError',
    message: /0002_second.sql of .* failed \(SQLITE_ERROR\)/,
  });
  t.equal(database.prepare("SELECT count(*) FROM sqlite_schema WHERE name = 'c'").pluck().get(), 0, 'nothing of it');
  release({ '0002_second.sql': 'CREATE TABLE c (d INTEGER) STRICT;' });
  t.equal(migrate(database, folder, 9), 1);
  release({ '0002_second.sql': null });
  t.throws(() => migrate(database, folder, 9), {
    name: 'StartError',
    message: /newer Keyveil \(schema 2, this program knows 1\)/,
  });
  release({ '0002_second.sql': 'CREATE TABLE c (d INTEGER) STRICT;', '0001_first.sql': 'CREATE TABLE a (b) STRICT;' });
  t.throws(() => migrate(database, folder, 9), { name: 'StartError', message: /0001_first.sql is not the one/ });
  release({ '0001_first.sql': 'CREATE TABLE a (b INTEGER) STRICT;' });
  t.equal(migrate(database, folder, 9), 0);
  const edits = [
    "UPDATE schema_migrations SET name = 'another' WHERE version = 1",
    'DELETE FROM schema_migrations WHERE version = 1',
    'ALTER TABLE schema_migrations DROP COLUMN sha256',
  ];
  for (const edit of edits) {
    database.exec(edit);
    t.throws(() => migrate(database, folder, 9), { name: 'StartError', message: /is damaged or was edited/ }, edit);
  }
});

test('a folder of migrations that is not as it was released is refused', (t) => {
  const folder = createTemporaryDirectory(t);
  const refuse = (message: RegExp): void =>
    void t.throws(() => readMigrations(folder), { name: 'StartError', message });
  refuse(/SHA256SUMS can't be read \(ENOENT\)/);
  writeSums(folder);
  refuse(/SHA256SUMS names none/);
  writeFileSync(join(folder, '0001_first.sql'), 'SELECT 1;');
  refuse(/0001_first.sql is not in SHA256SUMS/);
  writeSums(folder);
  t.match(readMigrations(folder), [{ version: 1, name: '0001_first.sql', sql: 'SELECT 1;' }]);
  writeFileSync(join(folder, '0001_first.sql'), 'SELECT 1');
  refuse(/0001_first.sql is not as it was released/);
  rmSync(join(folder, '0001_first.sql'));
  refuse(/0001_first.sql can't be read \(ENOENT\)/);
  writeFileSync(join(folder, '0002_second.sql'), 'SELECT 2;');
  writeSums(folder);
  refuse(/line 1 of SHA256SUMS is out of sequence/);
  writeFileSync(join(folder, 'SHA256SUMS'), readFileSync(join(folder, 'SHA256SUMS'), 'latin1').trimEnd());
  refuse(/SHA256SUMS is cut short/);
  writeFileSync(join(folder, 'SHA256SUMS'), 'no sum\n');
  refuse(/line 1 of SHA256SUMS is out of sequence/);
  t.end();
});

test('the data directory is made private, or refused', async (t) => {
  const parent = createTemporaryDirectory(t);
  const directory = join(parent, 'deep', 'data');
  t.strictSame(prepareDataDirectory(directory), []);
  t.equal(modeOf(directory), 0o700);
  chmodSync(directory, 0o755);
  t.match(prepareDataDirectory(directory), [/mode 0755.*0700 now/]);
  t.equal(modeOf(directory), 0o700);
  t.strictSame(readdirSync(directory), []);
  writeFileSync(join(parent, 'file'), '');
  t.throws(() => prepareDataDirectory(join(parent, 'file')), { name: 'StartError', message: /KEYVEIL_DATA_DIR/ });
  t.throws(() => prepareDataDirectory('/proc/none'), { name: 'StartError', message: /ENOENT/ });
});

test('one process at a time has the lock, until it ends in any way', async (t) => {
  const directory = createTemporaryDirectory(t);
  const lock = acquireDataLock(directory);
  t.throws(() => acquireDataLock(directory), { name: 'StartError', message: /Another Keyveil process/ });
  lock.release();
  lock.release();
  const script = `
    import { acquireDataLock } from ${JSON.stringify(new URL('../../store/data-directory.ts', import.meta.url).href)};
    acquireDataLock(${JSON.stringify(directory)});
    process.stdout.write('locked');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import=./scripts/ts-register.mjs', '--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  t.throws(() => acquireDataLock(directory), { message: /Another Keyveil process/ });
  child.kill('SIGKILL');
  await once(child, 'exit');
  acquireDataLock(directory).release();
  rmSync(dataPathsOf(directory).lock);
  writeFileSync(
    dataPathsOf(directory).lock,
    'this is not a lock of ours, and long enough to be no database'.repeat(20),
  );
  t.throws(() => acquireDataLock(directory), { name: 'StartError', message: /can't be taken \(SQLITE_NOTADB\)/ });
  rmSync(dataPathsOf(directory).lock);
  symlinkSync('/nowhere', dataPathsOf(directory).lock);
  t.throws(() => acquireDataLock(directory), { name: 'StartError', message: /not a plain file/ });
  t.throws(() => acquireDataLock('/proc/none'), { code: 'ENOENT' });
});

test('the master key file is made once and never again', async (t) => {
  const directory = createTemporaryDirectory(t);
  const { masterKey, controlDatabase } = dataPathsOf(directory);
  const made = openMasterKeyFile(directory);
  t.match(made, { isNew: true, warnings: [], path: masterKey });
  t.equal(modeOf(masterKey), 0o600);
  const again = openMasterKeyFile(directory);
  t.strictSame(again.key.reveal(), made.key.reveal());
  t.equal(again.isNew, false);
  chmodSync(masterKey, 0o640);
  t.match(openMasterKeyFile(directory).warnings, [/mode 0640/]);
  writeFileSync(masterKey, 'c2hvcnQ=');
  t.throws(() => openMasterKeyFile(directory), {
    name: 'StartError',
    message: /master\.key must hold 32 bytes in base64/,
  });
  rmSync(masterKey);
  writeFileSync(controlDatabase, 'x');
  t.throws(() => openMasterKeyFile(directory), {
    name: 'StartError',
    message: /is missing, and .*keyveil.db was sealed with it/,
  });
  t.notOk(existsSync(masterKey));
  symlinkSync('/etc/hostname', masterKey);
  t.throws(() => openMasterKeyFile(directory), { name: 'StartError', message: /symbolic links are not followed/ });
  t.equal(parseMasterKey(createMasterKeyText(), 'x').byteLength, 32);
  let message = '';
  try {
    parseMasterKey('not base64 at all but a pasted secret', 'KEYVEIL_MASTER_KEY');
  } catch (error) {
    message = String(error);
  }
  t.match(message, /^StartError: KEYVEIL_MASTER_KEY must hold 32 bytes/);
  t.notMatch(message, /pasted/);
});

test('a second daemon, a member, and an audit log that is damaged', async (t) => {
  const { store, options, directory } = await openTestStore(t);
  await t.rejects(openStore(options), { name: 'StartError', message: /Another Keyveil process/ });
  const member = await openStore({ ...options, role: 'member' });
  await store.control.vaults.create({ displayName: 'seen', metadata: {} });
  t.equal((await member.control.vaults.list({ limit: 1, after: null, includeArchived: false })).items.length, 1);
  t.equal(await member.audit.prune(), 0, 'the owner prunes');
  await member.close();
  await t.rejects(openStore({ ...options, role: 'member', keys: createRandomKeyRing() }), { name: 'StartError' });
  await store.close();
  const { auditDatabase } = dataPathsOf(directory);
  const whole = readFileSync(auditDatabase);
  truncateSync(auditDatabase, 50);
  await t.rejects(openStore(options), { name: 'StartError', message: /audit\.db can't be used/ });
  t.equal(statSync(auditDatabase).size, 50);
  writeFileSync(auditDatabase, whole);
  const database = new Sqlite(auditDatabase);
  database.exec('DROP TABLE audit_entries');
  database.close();
  await t.rejects(openStore(options), {
    name: 'StartError',
    message: /writer of the audit log .*audit\.db did not start/,
  });
  writeFileSync(auditDatabase, whole);
  await (await openStore(options)).close();
});

test('a backup taken while serving restores into an empty directory', async (t) => {
  const { store, options, directory } = await openTestStore(t);
  const files = createTemporaryDirectory(t);
  const file = join(files, 'backup.db');
  const vault = await store.control.vaults.create({ displayName: 'kept', metadata: {} });
  await store.control.credentials.create(newCredential(vault.id));
  await store.sealedItems.put('ca', Secret.fromText('root'));
  await backupStore(directory, file);
  t.equal(modeOf(file), 0o600);
  t.strictSame(readdirSync(files), ['backup.db'], 'one file');
  await store.control.vaults.create({ displayName: 'later', metadata: {} });
  await t.rejects(backupStore(directory, file), { name: 'StartError', message: /exists already/ });
  await t.rejects(backupStore(files, join(files, 'b')), { name: 'StartError', message: /no database/ });
  await t.rejects(backupStore(directory, join(files, 'none', 'b')), { name: 'StartError', message: /ENOENT/ });

  const keySource = 'the test';
  const { keys } = options;
  const target = join(files, 'restored');
  restoreStore({ directory: target, file, keys, keySource, nowMs: START_MS });
  const restored = await openStore({ ...options, directory: target });
  t.strictSame((await restored.control.vaults.list({ limit: 9, after: null, includeArchived: true })).items, [vault]);
  t.equal((await restored.sealedItems.get('ca'))?.reveal().toString(), 'root');
  t.throws(() => {
    restoreStore({ directory: target, file, keys, keySource, nowMs: START_MS });
  }, /Another Keyveil process/);
  await restored.close();
  t.throws(() => {
    restoreStore({ directory: target, file, keys, keySource, nowMs: START_MS });
  }, /exists already. Restore into an empty directory/);
  restoreStore({ directory: target, file, keys, keySource, nowMs: START_MS, asideSuffix: '.before' });
  t.ok(existsSync(join(target, 'keyveil.db.before')));

  const refuse = (name: string, message: RegExp) => {
    const empty = join(files, `to-${name}`);
    t.throws(
      () => {
        restoreStore({ directory: empty, file: join(files, name), keys, keySource, nowMs: START_MS });
      },
      { name: 'StartError', message },
      name,
    );
    t.notOk(existsSync(join(empty, 'keyveil.db')));
  };
  refuse('missing', /is not there/);
  writeFileSync(join(files, 'text'), 'x');
  refuse('text', /not an SQLite database/);
  openOwnedDatabase(join(files, 'audit'), AUDIT_DATABASE).database.close();
  refuse('audit', /another of Keyveil/);
  copyFileSync(file, join(files, 'newer'));
  const newer = new Sqlite(join(files, 'newer'));
  newer.exec("INSERT INTO schema_migrations VALUES (99, 'x', 'y', 1)");
  newer.close();
  refuse('newer', /newer Keyveil/);
  const bytes = readFileSync(file);
  bytes.fill(0x5a, 4096);
  writeFileSync(join(files, 'damaged'), bytes);
  refuse('damaged', /can't be used/);
  t.throws(() => {
    restoreStore({
      directory: join(files, 'key'),
      file,
      keys: createRandomKeyRing(),
      keySource: 'KEYVEIL_MASTER_KEY',
      nowMs: START_MS,
    });
  }, /KEYVEIL_MASTER_KEY does not fit/);
});
