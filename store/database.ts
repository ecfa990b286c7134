// Opens SQLite files, the only importer of better-sqlite3: safe files, the same settings on every connection, clear errors.
import {
  chmodSync,
  closeSync,
  constants,
  fsyncSync,
  lstatSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  type Stats,
} from 'node:fs';
import { dirname } from 'node:path';
import Sqlite, { type Database } from 'better-sqlite3';
import { KeyveilError, StartError } from '../model/errors.ts';
import { foreignNote, giveTo, ownerFor, type FileOwner } from './file-owner.ts';

export type { Database, Statement } from 'better-sqlite3';

/** What a file of ours is known by. */
export interface DatabaseKind {
  /** SQLite's application_id, so that another program's database is recognised. */
  readonly applicationId: number;
  /** Whether freed pages can be given back to the file system in small steps. */
  readonly incrementalVacuum: boolean;
  /** Largest file that is checked whole at each start, in bytes; a larger one would make starts slow. */
  readonly checkedBytesMax: number;
}

const MIB = 1024 * 1024;

/** `keyveil.db`: application_id is `KVLC`. */
export const CONTROL_DATABASE: DatabaseKind = {
  applicationId: 0x4b564c43,
  incrementalVacuum: false,
  checkedBytesMax: 1024 * MIB,
};

/** `audit.db`: application_id is `KVLA`. */
export const AUDIT_DATABASE: DatabaseKind = {
  applicationId: 0x4b564c41,
  incrementalVacuum: true,
  checkedBytesMax: 64 * MIB,
};

const HEADER = 'SQLite format 3\0';
const BUSY_TIMEOUT_MS = 5000;

function statOrNull(path: string): Stats | null {
  return lstatSync(path, { throwIfNoEntry: false }) ?? null;
}

/** Flushes a directory's entries to the disk. */
export function syncDirectory(path: string): void {
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Makes an empty file of mode 0600; fails when anything, a symbolic link included, has that name. */
export function createPrivateFile(path: string, owner: FileOwner | null = null): void {
  const descriptor = openPrivateFile(path);
  try {
    if (owner !== null) giveTo(descriptor, owner, { path });
  } finally {
    closeSync(descriptor);
  }
}

/** The same, left open for writing; the caller closes it. */
export function openPrivateFile(path: string): number {
  return openSync(path, constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_WRONLY, 0o600);
}

// The file appears under its name only when its first page is whole: an empty file there is damage, never a new database.
function createDatabaseFile(path: string, kind: DatabaseKind): void {
  const draft = `${path}.new`;
  rmSync(draft, { force: true });
  createPrivateFile(draft, ownerFor(path));
  const database = new Sqlite(draft);
  try {
    if (kind.incrementalVacuum) database.pragma('auto_vacuum = INCREMENTAL');
    database.pragma(`application_id = ${kind.applicationId}`);
  } finally {
    database.close();
  }
  renameSync(draft, path);
  syncDirectory(dirname(path));
}

/**
 * Refuses what is not a plain file and takes rights away from other users; returns a line per corrected mode. Missing
 * files are fine.
 */
export function securePrivateFiles(paths: readonly string[]): readonly string[] {
  const warnings: string[] = [];
  for (const path of paths) {
    const stats = statOrNull(path);
    if (stats === null) continue;
    if (!stats.isFile())
      throw new StartError(`${path} is not a plain file (symbolic links are not followed). Put the file itself there.`);
    const mode = stats.mode & 0o777;
    if ((mode & 0o077) === 0) continue;
    chmodSync(path, 0o600);
    warnings.push(`${path} could be read by other users (mode 0${mode.toString(8)}); its mode is 0600 now.`);
  }
  return warnings;
}

/**
 * Throws a StartError unless the file begins as an SQLite database does. Only for files that this process has not open
 * as a database: closing any descriptor of a file drops all of the process's POSIX locks on it.
 */
function requireSqliteHeader(path: string): void {
  const bytes = Buffer.alloc(HEADER.length);
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    readSync(descriptor, bytes, 0, bytes.length, 0);
  } finally {
    closeSync(descriptor);
  }
  if (bytes.toString('latin1') !== HEADER) throw new Damage('it is not an SQLite database');
}

/** What is wrong with a file; whoever opens it knows what to do about it. */
class Damage extends Error {}

const ADVICE_FOR_OWN = 'move it away, or restore a backup with keyveil restore';
const ADVICE_FOR_BACKUP = 'take another backup';

function withAdvice<Result>(path: string, advice: string, open: () => Result): Result {
  try {
    return open();
  } catch (error) {
    if (!(error instanceof Damage)) throw error;
    throw new StartError(
      `The database ${path} can't be used: ${error.message}. Nothing was changed; ${advice}.`,
      error.cause === undefined ? {} : { cause: error.cause },
    );
  }
}

// What the file's owner or mode forbids is no damage.
const FORBIDDEN = /^SQLITE_(?:CANTOPEN|READONLY|PERM)/;

function cannotOpen(path: string, error: unknown): Error {
  const code = faultCodeOf(error);
  const note = FORBIDDEN.test(code) ? foreignNote([path, `${path}-wal`, `${path}-shm`]) : '';
  return note === ''
    ? new Damage(`opening it failed with ${code}`, { cause: error })
    : new StartError(`The database ${path} can't be opened (${code}).${note}`, { cause: error });
}

function requireOurs(database: Database, kind: DatabaseKind): void {
  const found = database.pragma('application_id', { simple: true });
  if (found !== kind.applicationId) throw new Damage('another program made it, or it is another of Keyveil’s files');
}

function requireSound(database: Database, kind: DatabaseKind): void {
  if (databaseBytes(database) > kind.checkedBytesMax) return;
  const [first] = database.pragma('quick_check(1)') as { quick_check: string }[];
  if (first?.quick_check !== 'ok') throw new Damage('it is damaged (quick_check)');
}

function applySettings(database: Database, isReader: boolean): void {
  database.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
  database.pragma('trusted_schema = OFF');
  if (isReader) return;
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.pragma('foreign_keys = ON');
  database.pragma('secure_delete = ON');
}

/** A connection and what was corrected while it was opened. */
export interface OpenedDatabase {
  readonly database: Database;
  readonly warnings: readonly string[];
}

/**
 * Opens a database for the first time in this process: makes the file when it is missing, refuses a foreign or damaged
 * one with a StartError and leaves it as it is. Only the holder of the data directory's lock may call it.
 */
export function openOwnedDatabase(path: string, kind: DatabaseKind): OpenedDatabase {
  const warnings = securePrivateFiles([path, `${path}-wal`, `${path}-shm`, `${path}-journal`]);
  if (statOrNull(path) === null) {
    requireNoRemains(path);
    createDatabaseFile(path, kind);
  } else {
    withAdvice(path, ADVICE_FOR_OWN, () => requireSqliteHeader(path));
  }
  return { database: withAdvice(path, ADVICE_FOR_OWN, () => openChecked(path, kind, false)), warnings };
}

// A log without its database is what is left when the database itself was lost: to start anew would hide that.
function requireNoRemains(path: string): void {
  if (statOrNull(`${path}-wal`) === null) return;
  throw new StartError(
    `${path} is missing, but its log ${path}-wal is there. Restore a backup with keyveil restore, or move the log away.`,
  );
}

// A copy that is only looked at is left without the settings of a database in use, which would write to it.
function openChecked(path: string, kind: DatabaseKind, readonly: boolean): Database {
  const database = new Sqlite(path, { fileMustExist: true, readonly });
  try {
    requireOurs(database, kind);
    if (!readonly) applySettings(database, false);
    requireSound(database, kind);
    return database;
  } catch (error) {
    database.close();
    throw error instanceof Damage ? error : cannotOpen(path, error);
  }
}

/** Opens another connection to a database that this or another process has opened and checked already. */
export function openConnection(path: string, options: { readonly readonly: boolean }): Database {
  const database = new Sqlite(path, { fileMustExist: true, readonly: options.readonly });
  applySettings(database, options.readonly);
  return database;
}

/** The same for reading and writing, as the first of a process; throws a StartError when it can't be opened. */
export function openExisting(path: string): Database {
  return withAdvice(path, ADVICE_FOR_OWN, () => {
    try {
      return openConnection(path, { readonly: false });
    } catch (error) {
      throw cannotOpen(path, error);
    }
  });
}

/** Opens a database of ours that is at rest, to look at or to copy; throws a StartError when it isn't one. */
export function openForeignCopy(path: string, kind: DatabaseKind): Database {
  if (statOrNull(path)?.isFile() !== true) throw new StartError(`${path} is not there or not a plain file.`);
  return withAdvice(path, ADVICE_FOR_BACKUP, () => {
    requireSqliteHeader(path);
    return openChecked(path, kind, true);
  });
}

/** Makes a database that nobody else has open whole without a second file: a copy is in WAL mode as its source is. */
export function singleFile(path: string): void {
  const database = openConnection(path, { readonly: false });
  database.pragma('journal_mode = DELETE');
  database.close();
}

/** Opens a file as a bare database, for nothing but its locks. */
export function openLockFile(path: string): Database {
  return new Sqlite(path, { fileMustExist: true, timeout: 0 });
}

/** Size of the pages in use, in bytes. */
export function databaseBytes(database: Database): number {
  const read = (name: string): number => Number(database.pragma(name, { simple: true }));
  return (read('page_count') - read('freelist_count')) * read('page_size');
}

/** SQLite's name of an error, such as `SQLITE_BUSY`; null for errors of other kinds. */
function sqliteCodeOf(error: unknown): string | null {
  return error instanceof Sqlite.SqliteError ? error.code : null;
}

/** SQLite's or the system's name of an error, such as `SQLITE_FULL` or `EACCES`, for messages. */
export function faultCodeOf(error: unknown): string {
  return sqliteCodeOf(error) ?? (error as NodeJS.ErrnoException).code ?? 'unknown';
}

/** Turns an error of SQLite into `store_unavailable`; others pass through as they are. */
export function toStoreError(error: unknown): unknown {
  const code = sqliteCodeOf(error);
  if (code === null) return error;
  return new KeyveilError(
    'store_unavailable',
    `The database did not take part (${code}). Try again; the daemon's log says more.`,
    {
      cause: error,
    },
  );
}
