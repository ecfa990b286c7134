// Envelope encryption: each value under a data key of its own, the data key under a master key, both bound to where the value belongs.
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  randomBytes,
  type KeyObject,
} from 'node:crypto';
import { Secret } from '../model/secret.ts';
import type { KeyRing, MasterKey } from './key-ring.ts';

// Layout: version (1), wrapped data key (nonce 12, key 32, tag 16), value (nonce 12, tag 16, ciphertext). AES-256-GCM is
// NIST SP 800-38D; its 96-bit random nonces are used once per data key and far fewer than 2^32 times per master key.
const FORMAT_VERSION = 1;
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const VALUE_START = 1 + WRAPPED_BYTES;
const CIPHERTEXT_START = VALUE_START + NONCE_BYTES + TAG_BYTES;

/** A sealed value and the id of the master key that its data key is wrapped under. */
export interface Sealed {
  readonly keyId: string;
  readonly bytes: Buffer;
}

/** The value does not open: another key, damaged bytes, or a row that was moved or edited. Holds no detail of the value. */
export class UnsealError extends Error {
  override readonly name = 'UnsealError';
}

/** Joins fields so that no two different lists give the same bytes: each is preceded by its length. */
export function encodeFields(fields: readonly (string | Buffer)[]): Buffer {
  const parts: Buffer[] = [];
  for (const field of fields) {
    const bytes = typeof field === 'string' ? Buffer.from(field, 'utf8') : field;
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    parts.push(length, bytes);
  }
  return Buffer.concat(parts);
}

/** What a credential's value is bound to, as the row has it. */
export interface CredentialBinding {
  readonly vaultId: string;
  readonly credentialId: string;
  readonly secretVersion: number;
  readonly secretName: string;
  readonly placeholder: string | null;
  /** The stored text. */
  readonly networking: string;
  readonly header: number | null;
  readonly body: number | null;
}

/** Associated data of a credential's value. */
export function bindCredential(binding: CredentialBinding): Buffer {
  const { vaultId, credentialId, secretVersion, secretName, placeholder, networking, header, body } = binding;
  const place = [placeholder === null ? '0' : `1${placeholder}`, networking, String(header), String(body)];
  const digest = createHash('sha256')
    .update(encodeFields([secretName, ...place]))
    .digest();
  return encodeFields([
    'keyveil credential',
    String(FORMAT_VERSION),
    vaultId,
    credentialId,
    String(secretVersion),
    digest,
  ]);
}

/** Associated data of a sealed item or the canary. */
export function bindItem(kind: 'item' | 'canary', name: string): Buffer {
  return encodeFields([`keyveil ${kind}`, String(FORMAT_VERSION), name]);
}

function encrypt(
  key: KeyObject,
  plain: Buffer,
  associated: Buffer,
): { nonce: Buffer; tag: Buffer; ciphertext: Buffer } {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(associated);
  const ciphertext = Buffer.concat([cipher.update(plain), cipher.final()]);
  return { nonce, tag: cipher.getAuthTag(), ciphertext };
}

interface Ciphertext {
  readonly nonce: Buffer;
  readonly tag: Buffer;
  readonly ciphertext: Buffer;
}

function decrypt(key: KeyObject, sealed: Ciphertext, associated: Buffer): Buffer {
  const decipher = createDecipheriv(CIPHER, key, sealed.nonce, { authTagLength: TAG_BYTES }).setAAD(associated);
  decipher.setAuthTag(sealed.tag);
  const plain = decipher.update(sealed.ciphertext);
  // GCM gives all of the text before `final`, which only checks the tag: what is not authentic must not stay around.
  try {
    decipher.final();
  } catch (error) {
    plain.fill(0);
    throw new UnsealError('A sealed value does not open.', { cause: error });
  }
  return plain;
}

function wrapDataKey(master: MasterKey, dataKey: Buffer, associated: Buffer): Buffer {
  const { nonce, tag, ciphertext } = encrypt(master.key, dataKey, encodeFields(['data key', associated]));
  return Buffer.concat([nonce, ciphertext, tag]);
}

function unwrapDataKey(ring: KeyRing, sealed: Sealed, associated: Buffer): Buffer {
  const master = ring.find(sealed.keyId);
  if (master === undefined) throw new UnsealError('A value is sealed under a master key that was not given.');
  const { bytes } = sealed;
  if (bytes.length < CIPHERTEXT_START || bytes[0] !== FORMAT_VERSION)
    throw new UnsealError('A sealed value is cut or unknown.');
  const ciphertext = bytes.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + KEY_BYTES);
  const wrapped = {
    nonce: bytes.subarray(1, 1 + NONCE_BYTES),
    ciphertext,
    tag: bytes.subarray(VALUE_START - TAG_BYTES, VALUE_START),
  };
  return decrypt(master.key, wrapped, encodeFields(['data key', associated]));
}

/** Seals a value under the ring's writing key. */
export function seal(ring: KeyRing, value: Secret, associated: Buffer): Sealed {
  const dataKey = randomBytes(KEY_BYTES);
  try {
    const { nonce, tag, ciphertext } = encrypt(createSecretKey(dataKey), value.reveal(), associated);
    const wrapped = wrapDataKey(ring.writing, dataKey, associated);
    return {
      keyId: ring.writing.id,
      bytes: Buffer.concat([Buffer.of(FORMAT_VERSION), wrapped, nonce, tag, ciphertext]),
    };
  } finally {
    dataKey.fill(0);
  }
}

/** Opens a value; throws an UnsealError. */
export function unseal(ring: KeyRing, sealed: Sealed, associated: Buffer): Secret {
  const dataKey = unwrapDataKey(ring, sealed, associated);
  const { bytes } = sealed;
  const value = {
    nonce: bytes.subarray(VALUE_START, VALUE_START + NONCE_BYTES),
    tag: bytes.subarray(VALUE_START + NONCE_BYTES, CIPHERTEXT_START),
    ciphertext: bytes.subarray(CIPHERTEXT_START),
  };
  try {
    return Secret.fromBytes(decrypt(createSecretKey(dataKey), value, associated));
  } finally {
    dataKey.fill(0);
  }
}

/** Size of the value that is sealed in these bytes: it can be told without a key. */
export function sealedByteLength(bytes: Buffer): number {
  return Math.max(0, bytes.length - CIPHERTEXT_START);
}

/** Wraps the data key under the ring's writing key; the value's own ciphertext stays. Throws an UnsealError. */
export function rewrap(ring: KeyRing, sealed: Sealed, associated: Buffer): Sealed {
  const dataKey = unwrapDataKey(ring, sealed, associated);
  try {
    const wrapped = wrapDataKey(ring.writing, dataKey, associated);
    return {
      keyId: ring.writing.id,
      bytes: Buffer.concat([Buffer.of(FORMAT_VERSION), wrapped, sealed.bytes.subarray(VALUE_START)]),
    };
  } finally {
    dataKey.fill(0);
  }
}
