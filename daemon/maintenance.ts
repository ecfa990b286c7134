// What an operator does to a data directory from the command line: backup, restore, new keys and tokens.
import { existsSync, lstatSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from '../model/errors.ts';
import type { Logger } from '../model/ports.ts';
import { backupStore, restoreStore } from '../store/backup.ts';
import { dataPathsOf } from '../store/data-directory.ts';
import { syncDirectory } from '../store/database.ts';
import { createMasterKeyText, parseMasterKey, writePrivateFile } from '../store/key-file.ts';
import { createKeyRing, type KeyRing } from '../store/key-ring.ts';
import { openStore } from '../store/open-store.ts';
import type { RewrapResult } from '../store/rewrap.ts';
import { adminTokenPathOf, createAdminTokenText } from './admin-token.ts';
import type { Config } from './config.ts';
import { nextMasterKeyPathOf, openKeys } from './keys.ts';

/** Copies the control database into a new file, with the daemon running or not. Rejects with a StartError. */
export async function backupData(config: Pick<Config, 'dataDir'>, file: string): Promise<void> {
  await backupStore(config.dataDir, file);
}

/** Where `restoreData` left the database that was there before; null when there was none. */
export type PutAside = string | null;

/**
 * Puts a backup into the data directory. With `putAside` a database that is there is renamed; without, it refuses.
 * Throws a StartError and changes nothing when a daemon runs there, or the file or the key does not fit.
 */
export function restoreData(
  config: Pick<Config, 'dataDir' | 'masterKey' | 'masterKeysPrevious'>,
  options: { readonly file: string; readonly putAside: boolean; readonly nowMs: number },
): PutAside {
  const { controlDatabase, masterKey } = dataPathsOf(config.dataDir);
  if (config.masterKey === null && !existsSync(masterKey)) {
    throw new StartError(
      `The backup holds no master key, and there is none in ${config.dataDir}: put the key that it was made with at ${masterKey}, or name it by KEYVEIL_MASTER_KEY_FILE`,
    );
  }
  const keys = openKeys(config);
  const suffix = `.before-restore-${new Date(options.nowMs).toISOString().replaceAll(/[:.]/g, '-')}`;
  const hadDatabase = existsSync(controlDatabase);
  restoreStore({
    directory: config.dataDir,
    file: options.file,
    keys: keys.ring,
    keySource: keys.source,
    ...(options.putAside ? { asideSuffix: suffix } : {}),
  });
  return hadDatabase ? controlDatabase + suffix : null;
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
  const draft = `${path}.new`;
  // One that a crash left behind was never in force.
  rmSync(draft, { force: true });
  writePrivateFile(draft, `${createAdminTokenText()}\n`);
  renameSync(draft, path);
  syncDirectory(config.dataDir);
  return path;
}

async function rewrap(
  config: Config,
  ring: KeyRing,
  role: { logger: Logger; isOwner: boolean; source: string },
): Promise<RewrapResult> {
  const store = await openStore({
    directory: config.dataDir,
    keys: ring,
    keySource: role.source,
    clock: { now: () => Date.now() },
    logger: role.logger,
    defaultNetworking: config.defaultNetworking,
    role: role.isOwner ? 'owner' : 'member',
    auditRetention: { days: config.auditRetentionDays, bytesMax: config.auditBytesMax },
  });
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
  writePrivateFile(draft, createMasterKeyText());
  renameSync(draft, path);
  syncDirectory(dataDir);
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
  const keys = openKeys(config);
  if (config.masterKey !== null) {
    if ((config.masterKeysPrevious ?? []).length === 0) {
      throw new StartError(
        'The master key is configured: set KEYVEIL_MASTER_KEY_FILE to the new key and KEYVEIL_MASTER_KEY_PREVIOUS_FILE to the old one, restart the daemon with both, and repeat this command with both',
      );
    }
    return rewrap(config, keys.ring, { logger, isOwner: false, source: keys.source });
  }
  const nextPath = nextMasterKeyPathOf(config.dataDir);
  if (!existsSync(nextPath)) writeNextKey(config.dataDir, nextPath);
  const next = parseMasterKey(readFileSync(nextPath, 'latin1'), nextPath);
  const old = parseMasterKey(readFileSync(current.masterKey, 'latin1'), current.masterKey);
  const ring = createKeyRing(next, [old, ...(config.masterKeysPrevious ?? [])]);
  const result = await rewrap(config, ring, { logger, isOwner: true, source: join(config.dataDir, 'master.key') });
  renameSync(nextPath, current.masterKey);
  syncDirectory(config.dataDir);
  return result;
}
