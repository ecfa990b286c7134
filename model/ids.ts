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

const CHARACTER_CODES = Buffer.from(ALPHABET, 'latin1');
// One id is made per request: random bytes are drawn for many at a time, and the text is written in one place.
const POOLED_IDS = 256;
const idText = Buffer.alloc(TIME_CHARACTERS + RANDOM_CHARACTERS);
let pool = Buffer.alloc(0);
let poolOffset = 0;

function writeTime(timeMs: number): void {
  let rest = timeMs;
  for (let index = TIME_CHARACTERS - 1; index >= 0; index -= 1) {
    idText[index] = CHARACTER_CODES[rest % 32] as number;
    rest = Math.floor(rest / 32);
  }
}

function writeRandom(): void {
  if (poolOffset === pool.length) {
    pool = randomBytes(POOLED_IDS * RANDOM_CHARACTERS);
    poolOffset = 0;
  }
  for (let index = 0; index < RANDOM_CHARACTERS; index += 1) {
    idText[TIME_CHARACTERS + index] = CHARACTER_CODES[(pool[poolOffset + index] as number) & 31] as number;
  }
  poolOffset += RANDOM_CHARACTERS;
}

/**
 * Makes an id such as `vlt_01jd…`: 50 bits of time in milliseconds, then 80 random bits (the layout of a ULID).
 * Ids of one kind made in different milliseconds sort by time.
 */
export function createId(kind: IdKind, timeMs: number): string {
  writeTime(timeMs);
  writeRandom();
  return `${ID_PREFIXES[kind]}_${idText.toString('latin1')}`;
}

/** Whether the text has the form of an id of this kind. */
export function isId(kind: IdKind, text: string): boolean {
  const prefix = `${ID_PREFIXES[kind]}_`;
  return text.startsWith(prefix) && /^[0-9a-hjkmnp-tv-z]{26}$/.test(text.slice(prefix.length));
}
