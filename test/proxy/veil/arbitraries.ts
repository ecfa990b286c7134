// Random values, bodies that echo them in random forms, and chunkings, for property tests and the fuzzer.
import fc from 'fast-check';
import { textForms } from './echoes.ts';

/** Text that looks like parts of forms. */
const noise = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 8 }),
  fc.constantFrom(
    '%',
    '%2',
    '&',
    '&#',
    '\\',
    '\\u',
    '\\u00',
    '+',
    '=',
    '/',
    '"',
    '\n',
    '*',
    'A',
    'kvph_',
    '\\\\',
    '%25',
  ),
  fc.stringMatching(/^[A-Za-z0-9+/_-]{0,5}$/),
);

const randomBytes = fc.uint8Array({ maxLength: 12 }).map((array) => Buffer.from(array));

/** Values of every UTF-8 plane, and ones that are full of escapes or repeat themselves. */
const secretValue = fc
  .oneof(
    fc.string({ unit: 'grapheme', minLength: 3, maxLength: 24 }),
    fc.stringMatching(/^[A-Za-z0-9_-]{8,40}$/),
    fc.stringMatching(/^[a%\\&+25;/ ]{8,20}$/),
    fc.stringMatching(/^[ab]{8,12}$/),
    fc.stringMatching(/^[a-f0-9]{8,16}$/),
  )
  .filter((value) => Buffer.byteLength(value) >= 8 && !value.includes('\0'));

/** Ways to write one character, by number. */
function writeCharacter(character: string, way: number): string {
  const bytes = [...Buffer.from(character)];
  const point = character.codePointAt(0) as number;
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  const hex = (number: number, width: number): string => number.toString(16).padStart(width, '0');
  switch (way) {
    case 0:
      return bytes.map((byte) => `%${hex(byte, 2)}`).join('');
    case 1:
      return bytes.map((byte) => `%${hex(byte, 2).toUpperCase()}`).join('');
    case 2:
      return units.map((unit) => `\\u${hex(unit, 4)}`).join('');
    case 3:
      return JSON.stringify(character).slice(1, -1);
    case 4:
      return `&#${point};`;
    case 5:
      return `&#x${hex(point, 4)};`;
    case 6:
      return character === ' ' ? '+' : character === '/' ? '\\/' : character;
    default:
      return character;
  }
}

/** The value, written in a random form. */
function echoOf(value: string): fc.Arbitrary<Buffer> {
  const bytes = Buffer.from(value);
  const mixed = fc
    .array(fc.nat({ max: 12 }), { minLength: 1, maxLength: 12 })
    .map((ways) =>
      [...value].map((character, index) => writeCharacter(character, ways[index % ways.length] as number)).join(''),
    );
  const base64 = fc
    .tuple(
      fc.string({ maxLength: 5 }),
      fc.string({ maxLength: 5 }),
      fc.constantFrom('base64', 'base64url' as const),
      fc.boolean(),
    )
    .map(([before, after, encoding, isBare]) => {
      const text = Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]).toString(encoding);
      return isBare ? text.replaceAll('=', '') : text;
    });
  const text = fc.oneof(fc.constantFrom(...Object.values(textForms(value))), mixed, base64);
  // Sometimes with a byte lost at one end.
  return fc.tuple(text, fc.constantFrom(0, 0, 0, 1), fc.constantFrom(0, 0, 0, 1)).map(([form, from, less]) => {
    const all = Buffer.from(form);
    return all.subarray(from, all.length - less);
  });
}

export interface EchoCase {
  readonly values: readonly string[];
  readonly body: Buffer;
  readonly chunks: readonly Buffer[];
}

/** Bodies that echo values in random forms among noise, cut in random places. */
export const echoCase: fc.Arbitrary<EchoCase> = fc
  .array(secretValue, { minLength: 1, maxLength: 3 })
  .chain((values) => {
    const echoes = fc.oneof(...values.map(echoOf));
    const pieces = fc.array(
      fc.oneof(
        echoes,
        noise.map((text) => Buffer.from(text)),
        randomBytes,
      ),
      { maxLength: 8 },
    );
    return fc.tuple(fc.constant(values), pieces, fc.array(fc.nat({ max: 2000 }), { maxLength: 12 }), fc.boolean());
  })
  .map(([values, pieces, cuts, isByteByByte]) => {
    const body = Buffer.concat(pieces);
    const places = isByteByByte ? Array.from({ length: body.length }, (_, at) => at) : cuts;
    const offsets = [0, ...places.filter((at) => at < body.length).sort((a, b) => a - b), body.length];
    const chunks = offsets.slice(1).map((end, index) => Buffer.from(body.subarray(offsets[index], end)));
    return { values, body, chunks };
  });
