// Backup of the control database while it is served, and its restore; the master key is never part of either.
import {
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  openSync,
  closeSync,
  renameSync,
  rmSync,
  chmodSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { StartError } from '../model/errors.ts';
import { requireKeyFits } from './canary.ts';
import { acquireDataLock, dataPathsOf, prepareDataDirectory } from './data-directory.ts';
import {
  CONTROL_DATABASE,
  createPrivateFile,
  openConnection,
  openForeignCopy,
  syncDirectory,
  faultCodeOf,
} from './database.ts';
import type { KeyRing } from './key-ring.ts';
import { CONTROL_MIGRATIONS, readMigrations, requireKnownSchema } from './migrate.ts';

// Enough to be done in one go: between two goes a writer of another process would make SQLite begin anew.
const PAGES_PER_STEP = 100_000;

function syncFile(path: string): void {
  const descriptor = openSync(path, constants.O_RDWR);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Copies `keyveil.db` of a data directory into a new file of mode 0600, as of one moment, with the daemon running or
 * not. Rejects with a StartError when the file exists or the database can't be read.
 */
export async function backupStore(directory: string, file: string): Promise<void> {
  const source = dataPathsOf(directory).controlDatabase;
  if (!existsSync(source))
    throw new StartError(`There is no database in ${directory}. Give the daemon's data directory.`);
  if (existsSync(file)) throw new StartError(`${file} exists already. Give the backup a name of its own.`);
  const draft = `${file}.part`;
  rmSync(draft, { force: true });
  try {
    createPrivateFile(draft);
    const database = openConnection(source, { readonly: true });
    try {
      await database.backup(draft, { progress: () => PAGES_PER_STEP });
    } finally {
      database.close();
    }
    singleFile(draft);
    syncFile(draft);
    renameSync(draft, file);
    syncDirectory(dirname(file));
  } catch (error) {
    rmSync(draft, { force: true });
    throw new StartError(
      `The backup of ${source} into ${file} failed (${faultCodeOf(error)}). Give a file in a folder that this user can write.`,
      {
        cause: error,
      },
    );
  }
}

/** A copy is in WAL mode as its source is; a backup must be whole without a second file. */
function singleFile(path: string): void {
  const database = openConnection(path, { readonly: false });
  database.pragma('journal_mode = DELETE');
  database.close();
}

export interface RestoreOptions {
  readonly directory: string;
  /** The backup. */
  readonly file: string;
  readonly keys: KeyRing;
  /** Where the key came from, for the error. */
  readonly keySource: string;
  /** Puts an existing database aside instead of refusing; it keeps its name and gets this ending. */
  readonly asideSuffix?: string;
}

function requireRestorable(options: RestoreOptions): void {
  const copy = openForeignCopy(options.file, CONTROL_DATABASE);
  try {
    requireKnownSchema(copy, readMigrations(CONTROL_MIGRATIONS));
    requireKeyFits(copy, options.keys, options.keySource);
  } finally {
    copy.close();
  }
}

/**
 * Puts a backup into a data directory. Throws a StartError, and changes nothing, when a process uses the directory, it
 * holds a database already, the backup is damaged or of a newer version, or the key does not fit.
 */
export function restoreStore(options: RestoreOptions): void {
  const { directory, file, asideSuffix } = options;
  prepareDataDirectory(directory);
  const lock = acquireDataLock(directory);
  try {
    const target = dataPathsOf(directory).controlDatabase;
    requireRestorable(options);
    if (existsSync(target) && asideSuffix === undefined) {
      throw new StartError(
        `${target} exists already. Restore into an empty directory, or have it renamed by --replace.`,
      );
    }
    const draft = `${target}.restoring`;
    rmSync(draft, { force: true });
    copyFileSync(file, draft, constants.COPYFILE_EXCL);
    chmodSync(draft, 0o600);
    syncFile(draft);
    for (const ending of ['', '-wal', '-shm']) {
      if (existsSync(target + ending)) renameSync(target + ending, `${target}${asideSuffix}${ending}`);
    }
    renameSync(draft, target);
    syncDirectory(directory);
  } finally {
    lock.release();
  }
}
