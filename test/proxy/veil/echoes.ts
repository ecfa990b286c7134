// How servers echo a value, and chunkings of bytes; for the veil's tests.
import { policyCredential } from '../../support/policies.ts';
import { compileVeil } from '../../../proxy/veil/compile.ts';
import type { Veil } from '../../../proxy/veil/veil.ts';
import { sessionPolicy } from '../../support/policies.ts';

export const PLACEHOLDER = 'kvph_00010001000100010001000100010001';
/** Holds a character of each kind that some form treats in its own way. */
export const VALUE = 'se/cr+et "é☃\'&\\<value>~😀';

/** The veil of credentials with these values, with numbered placeholders. */
export function veilOf(...values: readonly (string | Buffer)[]): Veil {
  const veil = compileVeil(
    sessionPolicy(values.map((value, index) => ({ value, placeholder: placeholderOf(index) }))),
    'api.test',
  );
  if (veil === null) throw new Error('no value can be veiled');
  return veil;
}

export function placeholderOf(index: number): string {
  return PLACEHOLDER.slice(0, -4) + String(index + 1).padStart(4, '0');
}

export function credentialsOf(...values: readonly (string | Buffer)[]) {
  return values.map((value, index) => {
    const credential = policyCredential({ value, placeholder: placeholderOf(index) }, index + 1);
    const { id, placeholder } = credential;
    return { id, placeholder, value: Buffer.from(credential.open().reveal()) };
  });
}

const hex4 = (unit: number): string => unit.toString(16).padStart(4, '0');

/** The forms that become the placeholder, by name. */
export function textForms(value: string): Record<string, string> {
  const bytes = [...Buffer.from(value)];
  const units = Array.from({ length: value.length }, (_, index) => value.charCodeAt(index));
  const points = [...value].map((character) => character.codePointAt(0) as number);
  return {
    raw: value,
    'percent-encoded': encodeURIComponent(value),
    'percent-encoded whole, lower case': bytes.map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
    'percent-encoded every other byte, upper case': bytes
      .map((byte, index) =>
        index % 2 === 0 && byte < 128
          ? String.fromCharCode(byte)
          : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`,
      )
      .join(''),
    'form-encoded': new URLSearchParams({ v: value }).toString().slice(2),
    JSON: JSON.stringify(value).slice(1, -1),
    'JSON with escaped slashes': JSON.stringify(value).slice(1, -1).replaceAll('/', '\\/'),
    'JSON in ASCII': units
      .map((unit) => (unit < 128 ? JSON.stringify(String.fromCharCode(unit)).slice(1, -1) : `\\u${hex4(unit)}`))
      .join(''),
    'JSON, every unit escaped, upper case': units.map((unit) => `\\u${hex4(unit).toUpperCase()}`).join(''),
    'HTML, named': value
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
      .replaceAll("'", '&apos;'),
    'HTML, decimal': points.map((point) => `&#${point};`).join(''),
    'HTML, hexadecimal': points.map((point) => `&#x${point.toString(16)};`).join(''),
    'HTML, hexadecimal with zeros, upper case': points.map((point) => `&#X${hex4(point).toUpperCase()};`).join(''),
    hex: Buffer.from(value).toString('hex'),
    'hex in upper case': Buffer.from(value).toString('hex').toUpperCase(),
  };
}

/** Splits bytes at offsets. */
export function cut(bytes: Buffer, ...offsets: readonly number[]): Buffer[] {
  const all = [0, ...offsets, bytes.length];
  return all.slice(1).map((end, index) => Buffer.from(bytes.subarray(all[index], end)));
}

export function oneByteEach(bytes: Buffer): Buffer[] {
  return Array.from({ length: bytes.length }, (_, index) => Buffer.from([bytes[index] as number]));
}
