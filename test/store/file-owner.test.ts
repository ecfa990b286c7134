// Whose files are: root leaves them to the owner of what they replace, and errors say whose a file is.
import { chmodSync, chownSync, closeSync, mkdirSync, openSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'tap';
import { acquireDataLock, dataPathsOf, prepareDataDirectory } from '../../store/data-directory.ts';
import { AUDIT_DATABASE, CONTROL_DATABASE, openExisting, openOwnedDatabase } from '../../store/database.ts';
import { foreignNote, giveTo, ownerFor, requireOwner } from '../../store/file-owner.ts';
import { writePrivateFile } from '../../store/key-file.ts';
import { openStore } from '../../store/open-store.ts';
import { createTemporaryDirectory, openTestStore } from '../support/store.ts';

const SELF = process.geteuid?.() ?? 0;
const IS_ROOT = SELF === 0;
/** Any user that this process is not. */
const OTHER = 1000;

/** Runs synchronous work as another user, or, where this one can't become another, as one that looks like it. */
function asOther<Result>(work: () => Result): Result {
  const { geteuid } = process;
  if (IS_ROOT) process.seteuid?.(OTHER);
  else process.geteuid = () => OTHER;
  try {
    return work();
  } finally {
    if (IS_ROOT) process.seteuid?.(0);
    else Object.assign(process, { geteuid });
  }
}

/** Takes a file away from that user. */
function takeAway(path: string): void {
  if (IS_ROOT) chownSync(path, 0, 0);
  else chmodSync(path, 0);
}

void test('a file goes to the owner of what it replaces, else of its folder; by root alone', (t) => {
  const directory = createTemporaryDirectory(t);
  const path = join(directory, 'file');
  const folder = statSync(directory);
  t.strictSame(ownerFor(path), { uid: folder.uid, gid: folder.gid });
  writeFileSync(path, '');
  const { uid, gid } = statSync(path);
  t.strictSame(ownerFor(path), { uid, gid });
  const descriptor = openSync(path, 'r');
  giveTo(descriptor, { uid: uid + 1, gid }, { path, userId: 1 });
  t.equal(statSync(path).uid, uid, 'left alone by others');
  giveTo(descriptor, { uid, gid }, { path, userId: 0 });
  closeSync(descriptor);
  t.throws(() => giveTo(descriptor, { uid, gid }, { path, userId: 0 }), {
    name: 'StartError',
    message: /file can't be given to user \d+, .*\(EBADF\)\. Run the command as that user\.$/,
  });
  for (const userId of [uid, 0, undefined]) requireOwner(path, userId ?? SELF);
  requireOwner(join(directory, 'none'), uid + 1);
  t.throws(() => requireOwner(path, uid + 1), {
    name: 'StartError',
    message: /file belongs to user \d+, and this is user/,
  });
  t.equal(foreignNote([join(directory, 'none'), path], uid), '');
  t.match(foreignNote([path], uid + 1), /file belongs to user \d+, and this is user/);
  t.end();
});

void test('what root makes in the directory of another user, that user can go on with; what is out of reach is named', async (t) => {
  const { store, options, directory } = await openTestStore(t);
  await store.close();
  const data = createTemporaryDirectory(t);
  if (IS_ROOT) chownSync(data, OTHER, OTHER);
  const owner = statSync(data).uid;
  const paths = dataPathsOf(data);
  const made = await openStore({ ...options, directory: data });
  await made.control.vaults.create({ displayName: 'x', metadata: {} });
  for (const path of [paths.controlDatabase, `${paths.controlDatabase}-wal`, paths.auditDatabase, paths.lock])
    t.equal(statSync(path).uid, owner, path);
  await made.close();
  writePrivateFile(join(data, 'token.new'), 'x', paths.lock);
  t.equal(ownerFor(join(data, 'token.new')).uid, owner);
  asOther(() => {
    openOwnedDatabase(paths.controlDatabase, CONTROL_DATABASE).database.close();
    acquireDataLock(data).release();
  });

  const whose = new RegExp(` belongs to user ${SELF}, and this is user ${OTHER}: run the command`);
  const refused = (path: string, work: () => unknown): string => {
    takeAway(path);
    try {
      asOther(work);
    } catch (error) {
      t.equal((error as Error).name, 'StartError');
      return (error as Error).message;
    }
    return 'not refused';
  };
  const noLock = refused(paths.lock, () => acquireDataLock(data));
  t.match(noLock, /keyveil\.lock can't be taken \(SQLITE_\w+\)\./);
  t.match(noLock, whose);
  takeAway(paths.auditDatabase);
  t.throws(() => asOther(() => openOwnedDatabase(paths.auditDatabase, AUDIT_DATABASE)), { code: 'EACCES' });
  const noDatabase = refused(paths.controlDatabase, () => openExisting(paths.controlDatabase));
  t.match(noDatabase, /keyveil\.db can't be opened \(SQLITE_CANTOPEN\)\./);
  t.match(noDatabase, whose);
  const noDirectory = refused(directory, () => prepareDataDirectory(directory));
  t.match(noDirectory, /can't be used \(E\w+\)\. Give one that this user can write/);
  t.match(noDirectory, whose);
  chmodSync(directory, 0o700);
  const closed = join(data, 'closed');
  mkdirSync(join(closed, 'inner'), { recursive: true, mode: 0o700 });
  if (!IS_ROOT) chmodSync(closed, 0);
  t.throws(() => asOther(() => prepareDataDirectory(join(closed, 'inner', 'deep'))), { message: /can't be used \(E/ });
  chmodSync(closed, 0o700);
});
