// The master keys: from the configuration, or from the file in the data directory.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SETTINGS } from './config-schema.ts';
import type { Config } from './config.ts';
import { openMasterKeyFile, parseMasterKey } from '../store/key-file.ts';
import { createKeyRing, type KeyRing } from '../store/key-ring.ts';
import type { Secret } from '../model/secret.ts';

export interface OpenedKeys {
  readonly ring: KeyRing;
  /** Names where the writing key came from, for error messages. */
  readonly source: string;
  readonly warnings: readonly string[];
}

/** Path of the key that a rotation is about to put in force. */
export function nextMasterKeyPathOf(dataDir: string): string {
  return join(dataDir, 'master.key.next');
}

// While a rotation was cut off, values lie under both keys; `keyveil master-key rotate` takes it up again.
function keysOfUnfinishedRotation(dataDir: string): readonly Secret[] {
  const path = nextMasterKeyPathOf(dataDir);
  return existsSync(path) ? [parseMasterKey(readFileSync(path, 'latin1'), path)] : [];
}

/** Opens the keys; makes `<data>/master.key` at the very first start. Throws a StartError. */
export function openKeys(config: Pick<Config, 'dataDir' | 'masterKey' | 'masterKeysPrevious'>): OpenedKeys {
  const earlier = config.masterKeysPrevious ?? [];
  if (config.masterKey !== null) {
    const { variable } = SETTINGS.masterKey;
    return { ring: createKeyRing(config.masterKey, earlier), source: `${variable} or ${variable}_FILE`, warnings: [] };
  }
  const file = openMasterKeyFile(config.dataDir);
  const warning =
    `The master key lies beside the data it protects (${file.path}): a copy of the directory is a copy of every ` +
    'secret. Keep the key elsewhere and name it by KEYVEIL_MASTER_KEY_FILE.';
  return {
    ring: createKeyRing(file.key, [...earlier, ...keysOfUnfinishedRotation(config.dataDir)]),
    source: file.path,
    warnings: [...file.warnings, warning],
  };
}
