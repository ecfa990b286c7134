// Identifiers: a prefix that names the kind, and a sortable random part.
import { randomBytes } from 'node:crypto';

/** Prefix of each kind of object on the wire. */
export const ID_PREFIXES = {
  vault: 'vlt',
  credential: 'vcrd',
  environment: 'env',
  session: 'sesn',
  auditEvent: 'aud',
  adminToken: 'adtk',
  request: 'req',
} as const;

export type IdKind = keyof typeof ID_PREFIXES;

// Crockford's base 32 in lower case: sorts as its number does, and has no letters that look alike.
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const TIME_CHARACTERS = 10;
const RANDOM_CHARACTERS = 16;

function encodeTime(timeMs: number): string {
  let rest = timeMs;
  let text = '';
  for (let index = 0; index < TIME_CHARACTERS; index += 1) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

/**
 * Makes an id such as `vlt_01jd…`: 50 bits of time in milliseconds, then 80 random bits (the layout of a ULID).
 * Ids of one kind made in different milliseconds sort by time.
 */
export function createId(kind: IdKind, timeMs: number): string {
  let random = '';
  for (const byte of randomBytes(RANDOM_CHARACTERS)) random += ALPHABET.charAt(byte & 31);
  return `${ID_PREFIXES[kind]}_${encodeTime(timeMs)}${random}`;
}

/** Whether the text has the form of an id of this kind. */
export function isId(kind: IdKind, text: string): boolean {
  const prefix = `${ID_PREFIXES[kind]}_`;
  return text.startsWith(prefix) && /^[0-9a-hjkmnp-tv-z]{26}$/.test(text.slice(prefix.length));
}
