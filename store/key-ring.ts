// Master keys: one that seals, and any number that still open what they sealed before.
import { createHash, createSecretKey, type KeyObject } from 'node:crypto';
import { StartError } from '../model/errors.ts';
import type { Secret } from '../model/secret.ts';

/** AES-256. */
export const MASTER_KEY_BYTES = 32;
const KEY_ID_BYTES = 8;

export interface MasterKey {
  /** Beginning of the key's SHA-256 in hexadecimal; stored beside what the key sealed. */
  readonly id: string;
  readonly key: KeyObject;
}

export interface KeyRing {
  readonly writing: MasterKey;
  find(id: string): MasterKey | undefined;
}

function createMasterKey(secret: Secret): MasterKey {
  if (secret.byteLength !== MASTER_KEY_BYTES) {
    throw new StartError(`A master key must be ${MASTER_KEY_BYTES} bytes, not ${secret.byteLength}.`);
  }
  const id = createHash('sha256').update('keyveil master key\0').update(secret.reveal()).digest('hex');
  return { id: id.slice(0, 2 * KEY_ID_BYTES), key: createSecretKey(secret.reveal()) };
}

/** Makes a ring; copies the keys, so that the caller can wipe its own. Throws a StartError for a wrong length. */
export function createKeyRing(writing: Secret, reading: readonly Secret[] = []): KeyRing {
  const first = createMasterKey(writing);
  const byId = new Map([...reading.map(createMasterKey), first].map((key) => [key.id, key]));
  return { writing: first, find: (id) => byId.get(id) };
}
