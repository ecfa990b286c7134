// The keys that a daemon holds, as needles: found in no place but the files that are theirs.
import { createPrivateKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Secret } from '../../model/secret.ts';
import { openConnection } from '../../store/database.ts';
import { createKeyRing } from '../../store/key-ring.ts';
import { bindItem, unseal } from '../../store/seal.ts';
import { keyNeedles, type Needles } from './canary.ts';

/** The bytes of the master key that lies in the data directory. */
export function masterKeyIn(dataDirectory: string): Buffer {
  return Buffer.from(readFileSync(join(dataDirectory, 'master.key'), 'latin1').trim(), 'base64');
}

/** The bytes of the master key, and the private number of each key of the CA. */
export function keysOf(dataDirectory: string, master: Buffer): Needles {
  const ring = createKeyRing(Secret.fromBytes(Buffer.from(master)));
  const database = openConnection(join(dataDirectory, 'keyveil.db'), { readonly: true });
  const rows = database
    .prepare<[], { name: string; sealing_key: string; sealed_value: Buffer }>('SELECT * FROM sealed_items')
    .all();
  database.close();
  const needles: Record<string, Readonly<Record<string, string>>> = { ...keyNeedles('master key', master) };
  for (const { name, sealing_key: keyId, sealed_value: bytes } of rows) {
    const pem = unseal(ring, { keyId, bytes }, bindItem('item', name)).reveal().toString();
    for (const [index, block] of (
      pem.match(/-----BEGIN PRIVATE KEY-----[^]*?-----END PRIVATE KEY-----/g) ?? []
    ).entries()) {
      const { d } = createPrivateKey(block).export({ format: 'jwk' });
      Object.assign(needles, keyNeedles(`key ${String(index)} of ${name}`, Buffer.from(d as string, 'base64url')));
    }
  }
  return needles;
}
