// Puts a backup in the place of the control database, and tells what had ended since it was made and is good again.
import { closeSync, existsSync, fsyncSync, openSync, readSync, renameSync, rmSync, writeSync } from 'node:fs';
import { StartError } from '../model/errors.ts';
import { requireKeyFits } from './canary.ts';
import { acquireDataLock, dataPathsOf, prepareDataDirectory } from './data-directory.ts';
import {
  CONTROL_DATABASE,
  openConnection,
  openForeignCopy,
  openPrivateFile,
  singleFile,
  syncDirectory,
  type Database,
} from './database.ts';
import { giveTo, ownerFor, requireOwner } from './file-owner.ts';
import type { KeyRing } from './key-ring.ts';
import { CONTROL_MIGRATIONS, readMigrations, requireKnownSchema } from './migrate.ts';
import { createEmergencyStopReader } from './small-stores.ts';
import type { EmergencyStop } from '../model/ports.ts';

const COPY_BYTES = 1024 * 1024;

export interface RestoreOptions {
  readonly directory: string;
  /** The backup. */
  readonly file: string;
  readonly keys: KeyRing;
  /** Where the key came from, for the error. */
  readonly keySource: string;
  /** Milliseconds since the epoch; what has expired by then is not counted. */
  readonly nowMs: number;
  /** Puts an existing database aside instead of refusing; it keeps its name and gets this ending. */
  readonly asideSuffix?: string;
  /** Archives every session of the backup. */
  readonly archiveSessions?: boolean;
  /** Deletes every scoped token of the backup. */
  readonly deleteTokens?: boolean;
}

/** How many of each can be used. */
interface UsableCounts {
  readonly sessions: number;
  /** Scoped tokens of the admin API. */
  readonly tokens: number;
  readonly credentials: number;
}

export interface RestoreReport {
  /** What can be used in the restored database. */
  readonly usable: UsableCounts;
  /**
   * What of it could not be used, as it is now, in the database before: ended, with another token, or with a newer value.
   * Null when there was none that could be read.
   */
  readonly revived: UsableCounts | null;
  readonly emergencyStop: EmergencyStop;
  /** The stop was on, off in the backup, and has stayed on. */
  readonly emergencyStopKept: boolean;
}

interface Standing {
  /** Session and token, token, credential and version: as texts that are equal in both databases when nothing changed. */
  readonly sessions: ReadonlySet<string>;
  readonly tokens: ReadonlySet<string>;
  readonly credentials: ReadonlySet<string>;
  readonly stop: EmergencyStop;
}

const USABLE = {
  sessions: `SELECT id || hex(token_hash) FROM sessions
    WHERE archived_at IS NULL AND suspended_at IS NULL AND (expires_at IS NULL OR expires_at > @nowMs)`,
  tokens: 'SELECT hex(token_hash) FROM admin_tokens WHERE expires_at IS NULL OR expires_at > @nowMs',
  credentials: `SELECT id || ' ' || secret_version FROM credentials WHERE archived_at IS NULL AND @nowMs IS NOT NULL`,
} as const;

function readStanding(database: Database, nowMs: number): Standing {
  const select = (sql: string): ReadonlySet<string> =>
    new Set(database.prepare<[object], string>(sql).pluck().all({ nowMs }));
  return {
    sessions: select(USABLE.sessions),
    tokens: select(USABLE.tokens),
    credentials: select(USABLE.credentials),
    stop: createEmergencyStopReader(database)(),
  };
}

/** Null when the file can't be read as a database of ours: it may be why there is a restore. */
function standingBefore(path: string, nowMs: number): Standing | null {
  if (!existsSync(path)) return null;
  try {
    return standingIn(path, nowMs);
  } catch {
    return null;
  }
}

function standingIn(path: string, nowMs: number): Standing {
  const database = openForeignCopy(path, CONTROL_DATABASE);
  let standing: Standing;
  try {
    standing = readStanding(database, nowMs);
  } finally {
    database.close();
  }
  return standing;
}

function countOf({ sessions, tokens, credentials }: Standing): UsableCounts {
  return { sessions: sessions.size, tokens: tokens.size, credentials: credentials.size };
}

function countRevived(now: Standing, before: Standing): UsableCounts {
  const count = (name: 'sessions' | 'tokens' | 'credentials'): number =>
    [...now[name]].filter((key) => !before[name].has(key)).length;
  return { sessions: count('sessions'), tokens: count('tokens'), credentials: count('credentials') };
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

/** Copies a file into a new private one that belongs to the owner of `replaces`, and flushes it to the disk. */
function copyPrivately(file: string, draft: string, replaces: string): void {
  const owner = ownerFor(replaces);
  rmSync(draft, { force: true });
  const target = openPrivateFile(draft);
  try {
    giveTo(target, owner, { path: draft });
    const source = openSync(file, 'r');
    try {
      const chunk = Buffer.alloc(COPY_BYTES);
      let bytes = 0;
      while ((bytes = readSync(source, chunk)) > 0) writeSync(target, chunk, 0, bytes);
    } finally {
      closeSync(source);
    }
    fsyncSync(target);
  } finally {
    closeSync(target);
  }
}

/** Writes what the operator wants to be otherwise than in the backup, and tells what can be used then. */
function adapt(draft: string, options: RestoreOptions, before: Standing | null): RestoreReport {
  const { nowMs } = options;
  const database = openConnection(draft, { readonly: false });
  try {
    const { stop } = readStanding(database, nowMs);
    const emergencyStopKept = before?.stop.active === true && !stop.active;
    database.transaction(() => {
      if (options.archiveSessions === true)
        database
          .prepare('UPDATE sessions SET archived_at = @nowMs, updated_at = @nowMs WHERE archived_at IS NULL')
          .run({ nowMs });
      if (options.deleteTokens === true) database.prepare('DELETE FROM admin_tokens').run();
      if (emergencyStopKept)
        database.prepare('UPDATE emergency_stop SET active = 1, reason = ?').run(before.stop.reason);
    })();
    const now = readStanding(database, nowMs);
    const revived = before === null ? null : countRevived(now, before);
    return { usable: countOf(now), revived, emergencyStop: now.stop, emergencyStopKept };
  } finally {
    database.close();
  }
}

/**
 * Puts a backup into a data directory. An emergency stop that is on stays on. Throws a StartError, and changes nothing,
 * when a process uses the directory, it holds a database already, the backup is damaged or of a newer version, or the
 * key does not fit.
 */
export function restoreStore(options: RestoreOptions): RestoreReport {
  const { directory, file, asideSuffix, nowMs } = options;
  requireRestorable(options);
  const target = dataPathsOf(directory).controlDatabase;
  prepareDataDirectory(directory);
  requireOwner(target);
  const lock = acquireDataLock(directory);
  try {
    if (existsSync(target) && asideSuffix === undefined) {
      throw new StartError(
        `${target} exists already. Restore into an empty directory, or have it renamed by --replace.`,
      );
    }
    const before = standingBefore(target, nowMs);
    const draft = `${target}.restoring`;
    copyPrivately(file, draft, target);
    const report = adapt(draft, options, before);
    singleFile(draft);
    for (const ending of ['', '-wal', '-shm']) {
      if (existsSync(target + ending)) renameSync(target + ending, `${target}${asideSuffix}${ending}`);
    }
    renameSync(draft, target);
    syncDirectory(directory);
    return report;
  } finally {
    lock.release();
  }
}
