// How a value is written where it lands: in a header field, in a JSON string, in a form field, or as it is.
import { KeyveilError } from '../../model/errors.ts';
import { isHeaderSafe } from '../../model/credential.ts';
import type { Secret } from '../../model/secret.ts';
import type { PlanEntry } from './plan.ts';

/** The ways in which a value is written into a body. */
export type BodyForm = 'raw' | 'json' | 'form';

// Forms are copies: the secret itself may be wiped while a long body that needs its form is still under way. They live
// as long as the secret that the policy reader keeps, so that a rotation leaves them to the garbage collector.
const headerForms = new WeakMap<Secret, string>();
const bodyForms: Readonly<Record<BodyForm, WeakMap<Secret, Buffer>>> = {
  raw: new WeakMap(),
  json: new WeakMap(),
  form: new WeakMap(),
};

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const JSON_SHORT_ESCAPES: Readonly<Record<number, string>> = {
  0x08: '\\b',
  0x09: '\\t',
  0x0a: '\\n',
  0x0c: '\\f',
  0x0d: '\\r',
  [QUOTE]: '\\"',
  [BACKSLASH]: '\\\\',
};

function jsonEscape(byte: number): string {
  if (byte >= 0x20 && byte !== QUOTE && byte !== BACKSLASH) return String.fromCharCode(byte);
  return JSON_SHORT_ESCAPES[byte] ?? `\\u${byte.toString(16).padStart(4, '0')}`;
}

const FORM_PLAIN = /[A-Za-z0-9*._-]/;

/** The percent-encode set of application/x-www-form-urlencoded in the WHATWG URL standard. */
function formEscape(byte: number): string {
  const character = String.fromCharCode(byte);
  if (FORM_PLAIN.test(character)) return character;
  return character === ' ' ? '+' : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
}

function escapeBytes(bytes: Buffer, escape: (byte: number) => string): Buffer {
  let escaped = '';
  for (const byte of bytes) escaped += escape(byte);
  return Buffer.from(escaped, 'latin1');
}

/** The inside of a JSON string (RFC 8259 section 7): only what must be escaped is, so text of any plane stays UTF-8. */
export function escapeJson(bytes: Buffer): Buffer {
  return escapeBytes(bytes, jsonEscape);
}

/** One value of application/x-www-form-urlencoded, space as `+`. */
export function escapeForm(bytes: Buffer): Buffer {
  return escapeBytes(bytes, formEscape);
}

function writeForm(bytes: Buffer, form: BodyForm): Buffer {
  switch (form) {
    case 'raw':
      return Buffer.from(bytes);
    case 'json':
      return escapeJson(bytes);
    case 'form':
      return escapeForm(bytes);
  }
}

/** The value of an entry as it is written into a body. Throws `credential_unreadable`. */
export function bodyFormOf(entry: PlanEntry, form: BodyForm): Buffer {
  const secret = entry.open();
  const known = bodyForms[form].get(secret);
  if (known !== undefined) return known;
  const written = writeForm(secret.reveal(), form);
  bodyForms[form].set(secret, written);
  return written;
}

/**
 * The value of an entry as it is written into a header field: its UTF-8 bytes as a Latin-1 string. Throws
 * `credential_unreadable`, or `swap_value_refused` for a control character (RFC 9110 section 5.5).
 */
export function headerFormOf(entry: PlanEntry): string {
  const secret = entry.open();
  const known = headerForms.get(secret);
  if (known !== undefined) return known;
  if (!isHeaderSafe(secret)) {
    throw new KeyveilError(
      'swap_value_refused',
      `The value of credential ${entry.credentialId} (${entry.secretName}) holds a control character and can't stand in a header field. Give it another value, or switch its header location off.`,
    );
  }
  const written = secret.reveal().toString('latin1');
  headerForms.set(secret, written);
  return written;
}
