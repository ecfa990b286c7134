// Placeholders: the random stand-ins that a sandbox holds in place of secret values.
import { randomBytes } from 'node:crypto';

/** Every placeholder holds this marker, so that one `indexOf` tells text without placeholders. */
export const PLACEHOLDER_MARKER = 'kvph_';

/** Random base-62 characters after the marker: 190 bits. */
export const PLACEHOLDER_RANDOM_CHARACTERS = 32;

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Longest prefix a credential may ask for, in characters. */
export const PLACEHOLDER_PREFIX_CHARACTERS_MAX = 32;

/** What a `placeholder_prefix` may look like. */
export const PLACEHOLDER_PREFIX_PATTERN = /^[A-Za-z0-9_.-]{0,32}$/;

/** What a whole placeholder looks like. */
export const PLACEHOLDER_PATTERN = /^[A-Za-z0-9_.-]{0,32}kvph_[0-9A-Za-z]{32}$/;

/** Makes `prefix + kvph_ + 32 random base-62 characters`, each drawn without bias. */
export function createPlaceholder(prefix = ''): string {
  let random = '';
  while (random.length < PLACEHOLDER_RANDOM_CHARACTERS) {
    for (const byte of randomBytes(PLACEHOLDER_RANDOM_CHARACTERS)) {
      // 248 is the largest multiple of 62 in a byte: larger values would favour the first characters.
      if (byte < 248 && random.length < PLACEHOLDER_RANDOM_CHARACTERS) random += BASE62.charAt(byte % 62);
    }
  }
  return `${prefix}${PLACEHOLDER_MARKER}${random}`;
}
