// The data directory: its name for each file, its mode, and the lock that lets one daemon at a time serve it.
import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StartError } from '../model/errors.ts';
import { createPrivateFile, openLockFile, faultCodeOf, securePrivateFiles, type Database } from './database.ts';
import { foreignNote, ownerFor } from './file-owner.ts';

/** Names of the files in a data directory. */
export interface DataPaths {
  readonly controlDatabase: string;
  readonly auditDatabase: string;
  readonly masterKey: string;
  readonly lock: string;
}

export function dataPathsOf(directory: string): DataPaths {
  return {
    controlDatabase: join(directory, 'keyveil.db'),
    auditDatabase: join(directory, 'audit.db'),
    masterKey: join(directory, 'master.key'),
    lock: join(directory, 'keyveil.lock'),
  };
}

// Not Node's own recursive mkdir, which never returns where a folder can't be made for want of its parent (/proc).
function makeDirectory(directory: string): void {
  if (existsSync(directory)) return;
  makeDirectory(dirname(directory));
  mkdirSync(directory, { mode: 0o700 });
}

/**
 * Makes the directory with mode 0700 when it is missing, takes rights away from other users, and tries to write to it.
 * Returns a line per corrected mode; throws a StartError when it can't be used.
 */
export function prepareDataDirectory(directory: string): readonly string[] {
  try {
    makeDirectory(directory);
    const mode = statSync(directory).mode & 0o777;
    const isTooWide = (mode & 0o077) !== 0;
    if (isTooWide) chmodSync(directory, 0o700);
    const probe = join(directory, `.probe-${process.pid}`);
    writeFileSync(probe, '', { flag: 'wx', mode: 0o600 });
    rmSync(probe);
    if (!isTooWide) return [];
    return [`${directory} could be entered by other users (mode 0${mode.toString(8)}); its mode is 0700 now.`];
  } catch (error) {
    throw new StartError(
      `The data directory ${directory} can't be used (${faultCodeOf(error)}). Give one that this user can write: KEYVEIL_DATA_DIR or --data-dir.${noteOf(directory)}`,
      { cause: error },
    );
  }
}

// A folder that can't be looked at has nothing to add.
function noteOf(directory: string): string {
  try {
    return foreignNote([directory]);
  } catch {
    return '';
  }
}

/** A held lock. */
export interface DataLock {
  /** Idempotent. */
  release(): void;
}

/**
 * Takes the directory's lock: a lock of the operating system on a file, so that it ends with the process however that
 * ends. Throws a StartError when another process has it.
 */
export function acquireDataLock(directory: string): DataLock {
  const path = dataPathsOf(directory).lock;
  if (existsSync(path)) securePrivateFiles([path]);
  else createLockFile(path);
  let opened: Database | null = null;
  try {
    const database = (opened = openLockFile(path));
    database.pragma('journal_mode = MEMORY');
    database.pragma('locking_mode = EXCLUSIVE');
    database.exec('BEGIN EXCLUSIVE');
    return {
      release() {
        if (database.open) database.close();
      },
    };
  } catch (error) {
    opened?.close();
    if (faultCodeOf(error) !== 'SQLITE_BUSY') {
      throw new StartError(
        `The lock ${path} can't be taken (${faultCodeOf(error)}). Remove the file if no daemon runs.${foreignNote([path])}`,
        {
          cause: error,
        },
      );
    }
    throw new StartError(
      `Another Keyveil process uses the data directory ${directory}. Stop it first, or give another directory.`,
      {
        cause: error,
      },
    );
  }
}

function createLockFile(path: string): void {
  try {
    createPrivateFile(path, ownerFor(path));
  } catch (error) {
    // Another process was faster; who holds the lock is decided by the lock.
    if (faultCodeOf(error) === 'EEXIST') securePrivateFiles([path]);
    else throw error;
  }
}
