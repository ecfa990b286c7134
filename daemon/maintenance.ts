// What an operator does to a data directory from the command line: backup, restore, new keys and tokens.
import { existsSync, lstatSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { StartError } from '../model/errors.ts';
import type { Logger } from '../model/ports.ts';
import { backupStore } from '../store/backup.ts';
import { acquireDataLock, dataPathsOf, type DataLock } from '../store/data-directory.ts';
import { syncDirectory } from '../store/database.ts';
import { requireOwner } from '../store/file-owner.ts';
import { createMasterKeyText, parseMasterKey, writePrivateFile } from '../store/key-file.ts';
import { createKeyRing, type KeyRing } from '../store/key-ring.ts';
import { openStore, type Store } from '../store/open-store.ts';
import { restoreStore, type RestoreReport } from '../store/restore.ts';
import type { RewrapResult } from '../store/rewrap.ts';
import { adminTokenPathOf, createAdminTokenText } from './admin-token.ts';
import type { Config } from './config.ts';
import { nextMasterKeyPathOf, openKeys } from './keys.ts';

/** Copies the control database into a new file, with the daemon running or not. Rejects with a StartError. */
export async function backupData(config: Pick<Config, 'dataDir'>, file: string): Promise<void> {
  await backupStore(config.dataDir, file);
}

export interface RestoredData extends RestoreReport {
  /** Where the database that was there before is now; null when there was none. */
  readonly putAside: string | null;
}

/**
 * Puts a backup into the data directory. With `putAside` a database that is there is renamed; without, it refuses.
 * Throws a StartError and changes nothing when a daemon runs there, or the file or the key does not fit.
 */
export function restoreData(
  config: Pick<Config, 'dataDir' | 'masterKey' | 'masterKeysPrevious'>,
  options: {
    readonly file: string;
    readonly putAside: boolean;
    readonly nowMs: number;
    readonly archiveSessions: boolean;
    readonly deleteTokens: boolean;
  },
): RestoredData {
  const { controlDatabase, masterKey } = dataPathsOf(config.dataDir);
  if (config.masterKey === null && !existsSync(masterKey)) {
    throw new StartError(
      `The backup holds no master key, and there is none in ${config.dataDir}: put the key that it was made with at ${masterKey}, or name it by KEYVEIL_MASTER_KEY_FILE`,
    );
  }
  const keys = openKeys(config);
  const suffix = `.before-restore-${new Date(options.nowMs).toISOString().replaceAll(/[:.]/g, '-')}`;
  const hadDatabase = existsSync(controlDatabase);
  const { file, nowMs, archiveSessions, deleteTokens } = options;
  const report = restoreStore({
    ...{ directory: config.dataDir, file, nowMs, archiveSessions, deleteTokens },
    keys: keys.ring,
    keySource: keys.source,
    ...(options.putAside ? { asideSuffix: suffix } : {}),
  });
  return { ...report, putAside: hadDatabase ? controlDatabase + suffix : null };
}

/** Replaces `<data>/admin-token`; a running daemon takes the new one at once. Returns its path. Throws a StartError. */
export function rotateAdminToken(config: Pick<Config, 'dataDir' | 'adminToken'>): string {
  const path = adminTokenPathOf(config.dataDir);
  if (config.adminToken !== null) {
    throw new StartError(
      'The admin token comes from KEYVEIL_ADMIN_TOKEN or KEYVEIL_ADMIN_TOKEN_FILE: change it there and restart the daemon',
    );
  }
  if (lstatSync(path, { throwIfNoEntry: false })?.isFile() !== true) {
    throw new StartError(`There is no token file ${path}: name the daemon's data directory by --data-dir`);
  }
  requireOwner(path);
  const draft = `${path}.new`;
  // One that a crash left behind was never in force.
  rmSync(draft, { force: true });
  writePrivateFile(draft, `${createAdminTokenText()}\n`, path);
  renameSync(draft, path);
  syncDirectory(config.dataDir);
  return path;
}

interface RewrapRole {
  readonly logger: Logger;
  readonly source: string;
  /** The directory's lock; null where a daemon may have it. */
  readonly lock: DataLock | null;
}

function openFor(config: Config, ring: KeyRing, { logger, source, lock }: RewrapRole): Promise<Store> {
  return openStore({
    directory: config.dataDir,
    keys: ring,
    keySource: source,
    clock: { now: () => Date.now() },
    logger,
    defaultNetworking: config.defaultNetworking,
    ...(lock === null ? { role: 'member' } : { role: 'owner', lock }),
    auditRetention: { days: config.auditRetentionDays, bytesMax: config.auditBytesMax },
  });
}

async function rewrap(config: Config, ring: KeyRing, role: RewrapRole): Promise<RewrapResult> {
  const store = await openFor(config, ring, role);
  try {
    return await store.rewrapAll();
  } finally {
    await store.close();
  }
}

// Whole under its name, and there for good, before anything is wrapped under it.
function writeNextKey(dataDir: string, path: string): void {
  const draft = `${path}.draft`;
  rmSync(draft, { force: true });
  writePrivateFile(draft, createMasterKeyText(), dataPathsOf(dataDir).masterKey);
  renameSync(draft, path);
  syncDirectory(dataDir);
}

// The key in force opens the store first: what is refused is refused before there is a new key.
async function rotateKeyFile(config: Config, logger: Logger, lock: DataLock): Promise<RewrapResult> {
  const { masterKey } = dataPathsOf(config.dataDir);
  const keys = openKeys(config);
  const role = { logger, lock, source: keys.source };
  await (await openFor(config, keys.ring, role)).close();
  const nextPath = nextMasterKeyPathOf(config.dataDir);
  if (!existsSync(nextPath)) writeNextKey(config.dataDir, nextPath);
  const next = parseMasterKey(readFileSync(nextPath, 'latin1'), nextPath);
  const old = parseMasterKey(readFileSync(masterKey, 'latin1'), masterKey);
  const result = await rewrap(config, createKeyRing(next, [old, ...(config.masterKeysPrevious ?? [])]), role);
  renameSync(nextPath, masterKey);
  syncDirectory(config.dataDir);
  return result;
}

/**
 * Wraps every value under a new master key; can be repeated after a crash. With a configured key, that one is the new
 * one and `KEYVEIL_MASTER_KEY_PREVIOUS` names the old: the daemon may run (with both). With the default key file, a new
 * key is made beside it and takes its place at the end: the daemon must be stopped. Rejects with a StartError.
 */
export async function rotateMasterKey(config: Config, logger: Logger): Promise<RewrapResult> {
  const current = dataPathsOf(config.dataDir);
  if (!existsSync(current.controlDatabase)) {
    throw new StartError(`There is no database in ${config.dataDir}: name the daemon's data directory by --data-dir`);
  }
  if (config.masterKey !== null) {
    if ((config.masterKeysPrevious ?? []).length === 0) {
      throw new StartError(
        'The master key is configured: set KEYVEIL_MASTER_KEY_FILE to the new key and KEYVEIL_MASTER_KEY_PREVIOUS_FILE to the old one, restart the daemon with both, and repeat this command with both',
      );
    }
    const keys = openKeys(config);
    return rewrap(config, keys.ring, { logger, lock: null, source: keys.source });
  }
  requireOwner(current.masterKey);
  const lock = acquireDataLock(config.dataDir);
  try {
    return await rotateKeyFile(config, logger, lock);
  } finally {
    lock.release();
  }
}
