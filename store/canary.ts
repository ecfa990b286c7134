// A known value that is sealed at the first start and opened at each later one: it tells whether the master key fits.
import { StartError } from '../model/errors.ts';
import { Secret } from '../model/secret.ts';
import type { Database } from './database.ts';
import type { KeyRing } from './key-ring.ts';
import { bindItem, seal, unseal, UnsealError } from './seal.ts';

const ASSOCIATED = bindItem('canary', 'canary');
const TEXT = 'keyveil';

interface CanaryRow {
  readonly sealing_key: string;
  readonly sealed_value: Buffer;
}

/** Seals the canary under the ring's writing key, in place of an earlier one. */
export function sealCanary(database: Database, keys: KeyRing): void {
  const sealed = seal(keys, Secret.fromText(TEXT), ASSOCIATED);
  database
    .prepare<[string, Buffer]>(
      `INSERT INTO canary (one, sealing_key, sealed_value) VALUES (1, ?, ?)
       ON CONFLICT (one) DO UPDATE SET sealing_key = excluded.sealing_key, sealed_value = excluded.sealed_value`,
    )
    .run(sealed.keyId, sealed.bytes);
}

/** Whether nothing has been sealed in this database yet. */
function isFresh(database: Database): boolean {
  const count = database
    .prepare<[], number>(
      'SELECT EXISTS (SELECT 1 FROM credentials WHERE sealed_value IS NOT NULL) OR EXISTS (SELECT 1 FROM sealed_items)',
    )
    .pluck()
    .get();
  return count === 0;
}

/** Id of the key that sealed the canary; null when there is none. */
export function readCanaryKeyId(database: Database): string | null {
  return database.prepare<[], string>('SELECT sealing_key FROM canary').pluck().get() ?? null;
}

/**
 * Throws a StartError unless the ring opens the canary. `keySource` names where the key came from, such as
 * `KEYVEIL_MASTER_KEY_FILE (/run/secrets/key)`.
 */
export function requireKeyFits(database: Database, keys: KeyRing, keySource: string): void {
  const row = database.prepare<[], CanaryRow>('SELECT sealing_key, sealed_value FROM canary').get();
  if (row === undefined) {
    throw new StartError(
      `The database ${database.name} has lost its canary, so it can't be told whether the master key fits. Restore a backup with keyveil restore.`,
    );
  }
  try {
    unseal(keys, { keyId: row.sealing_key, bytes: row.sealed_value }, ASSOCIATED).wipe();
  } catch (error) {
    if (!(error instanceof UnsealError)) throw error;
    throw new StartError(
      `The master key from ${keySource} does not fit the database ${database.name}, which was sealed with the key ${row.sealing_key} (given: ${keys.writing.id}). Give that key; nothing was changed.`,
      { cause: error },
    );
  }
}

/** The same, after sealing the canary of a database in which nothing was ever sealed. */
export function establishCanary(database: Database, keys: KeyRing, keySource: string): void {
  database
    .transaction(() => {
      if (readCanaryKeyId(database) === null && isFresh(database)) sealCanary(database, keys);
    })
    .immediate();
  requireKeyFits(database, keys, keySource);
}
