// Reads one escape of percent-encoding (RFC 3986 section 2.1), JSON (RFC 8259 section 7) or HTML (character references).

const PERCENT = 0x25;
const AMPERSAND = 0x26;
const PLUS = 0x2b;
const SEMICOLON = 0x3b;
const BACKSLASH = 0x5c;
const HASH = 0x23;
const LETTER_U = 0x75;

/** What an escape is packed into: the code point or byte, the escape's length, and whether it is a byte. */
const LENGTH_SHIFT = 21;
const BYTE_FLAG = 1 << 25;
const CODE_MASK = (1 << LENGTH_SHIFT) - 1;

/** Longest escape of a character, by the first byte of its UTF-8: the sum over a value's bytes bounds its escaped length. */
const ASCII_ESCAPED_BYTES_MAX = 8;
const TWO_BYTE_LEAD_ESCAPED_BYTES_MAX = 5;
const OTHER_BYTE_ESCAPED_BYTES_MAX = 3;

/** Value of each hexadecimal digit in either case; 255 for other bytes. */
const HEX = new Uint8Array(256).fill(255);
[...'0123456789abcdef'].forEach((character, digit) => {
  HEX[character.charCodeAt(0)] = digit;
  HEX[character.toUpperCase().charCodeAt(0)] = digit;
});

/** What the character after a backslash stands for (all but `u`); 0 for none. */
const SHORT = new Uint8Array(256);
for (const [letter, character] of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t'].map((pair) => [...pair])) {
  SHORT[(letter as string).charCodeAt(0)] = (character as string).charCodeAt(0);
}

/** Named references that every escaping function writes; each without its ampersand. */
const NAMED: readonly (readonly [Buffer, number])[] = (
  [
    ['amp;', '&'],
    ['lt;', '<'],
    ['gt;', '>'],
    ['quot;', '"'],
    ['apos;', "'"],
  ] as const
).map(([name, character]) => [Buffer.from(name, 'latin1'), character.charCodeAt(0)]);

/** Bytes that begin an escape; a plus is one for a space. */
export const INTRODUCERS: readonly number[] = [PERCENT, AMPERSAND, BACKSLASH, PLUS];

/** Whether a byte begins an escape. */
export function isIntroducer(byte: number): boolean {
  return byte === PERCENT || byte === AMPERSAND || byte === BACKSLASH || byte === PLUS;
}

function tableOf(isIn: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (isIn(byte) ? 1 : 0));
}

const HEX_DIGITS = tableOf((byte) => (HEX[byte] as number) < 16);
const REFERENCE_STARTS = tableOf((byte) => byte === HASH || NAMED.some(([name]) => name[0] === byte));
const BACKSLASH_LETTERS = tableOf((byte) => SHORT[byte] !== 0 || byte === LETTER_U);

/**
 * A one for each byte that can follow an introducer in an escape; null where any byte can, or none. In data that is no
 * text most introducers begin nothing, and this tells at the least cost.
 */
export function followersOf(introducer: number): Uint8Array | null {
  switch (introducer) {
    case PERCENT:
      return HEX_DIGITS;
    case BACKSLASH:
      return BACKSLASH_LETTERS;
    case AMPERSAND:
      return REFERENCE_STARTS;
    default:
      return null;
  }
}

/** The packed escape that begins at an offset; -1 when none does. */
export function readEscape(data: Buffer, offset: number): number {
  switch (data[offset]) {
    case PERCENT:
      return readPercent(data, offset);
    case BACKSLASH:
      return readBackslash(data, offset);
    case AMPERSAND:
      return readReference(data, offset);
    default:
      return pack(0x20, 1) | BYTE_FLAG;
  }
}

/** Length in bytes of a packed escape. */
export function escapeLength(escape: number): number {
  return (escape >> LENGTH_SHIFT) & 0xf;
}

/** First byte, in UTF-8, of what a packed escape stands for. */
export function firstByte(escape: number): number {
  const code = escape & CODE_MASK;
  if (code < 0x80 || (escape & BYTE_FLAG) !== 0) return code;
  if (code < 0x800) return 0xc0 | (code >> 6);
  return code < 0x10000 ? 0xe0 | (code >> 12) : 0xf0 | (code >> 18);
}

/** How many bytes of a value at an offset a packed escape stands for; 0 when they are others. */
export function matchedBytes(escape: number, value: Buffer, offset: number): number {
  if (value[offset] !== firstByte(escape)) return 0;
  const code = escape & CODE_MASK;
  if (code < 0x80 || (escape & BYTE_FLAG) !== 0) return 1;
  const length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (let index = 1; index < length; index += 1) {
    if (value[offset + index] !== (0x80 | ((code >> (6 * (length - 1 - index))) & 0x3f))) return 0;
  }
  return length;
}

/** Most bytes that a value can take with each of its characters escaped in any of the ways. */
export function escapedLengthMax(value: Buffer): number {
  let sum = 0;
  for (const byte of value) {
    if (byte < 0x80) sum += ASCII_ESCAPED_BYTES_MAX;
    else sum += byte >= 0xc0 && byte < 0xe0 ? TWO_BYTE_LEAD_ESCAPED_BYTES_MAX : OTHER_BYTE_ESCAPED_BYTES_MAX;
  }
  return sum;
}

function pack(code: number, length: number): number {
  return code | (length << LENGTH_SHIFT);
}

/** Hexadecimal digit at an offset; 255 for another byte or the end. */
function hexAt(data: Buffer, offset: number): number {
  return offset < data.length ? (HEX[data[offset] as number] as number) : 255;
}

function readPercent(data: Buffer, offset: number): number {
  const high = hexAt(data, offset + 1);
  const low = hexAt(data, offset + 2);
  return high > 15 || low > 15 ? -1 : pack((high << 4) | low, 3) | BYTE_FLAG;
}

function readBackslash(data: Buffer, offset: number): number {
  if (offset + 1 >= data.length) return -1;
  const letter = data[offset + 1] as number;
  const short = SHORT[letter] as number;
  if (short !== 0) return pack(short, 2);
  const unit = readUnit(data, offset);
  if (unit < 0xd800 || unit > 0xdfff) return unit < 0 ? -1 : pack(unit, 6);
  const second = readUnit(data, offset + 6);
  if (unit > 0xdbff || second < 0xdc00 || second > 0xdfff) return -1;
  return pack(0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00), 12);
}

/** The UTF-16 unit of a `\uXXXX` at an offset; -1 when there is none. */
function readUnit(data: Buffer, offset: number): number {
  if (data[offset] !== BACKSLASH || data[offset + 1] !== LETTER_U) return -1;
  let unit = 0;
  for (let index = 2; index < 6; index += 1) {
    const digit = hexAt(data, offset + index);
    if (digit > 15) return -1;
    unit = (unit << 4) | digit;
  }
  return unit;
}

function readReference(data: Buffer, offset: number): number {
  if (data[offset + 1] === HASH) return readNumericReference(data, offset);
  for (const [name, code] of NAMED) {
    if (data[offset + 1] === name[0] && data.subarray(offset + 1, offset + 1 + name.length).equals(name)) {
      return pack(code, 1 + name.length);
    }
  }
  return -1;
}

/** `&#65;`, `&#x41;`, with leading zeros as far as they fit in 8 bytes (10 for a code point beyond U+FFFF). */
function readNumericReference(data: Buffer, offset: number): number {
  const isHex = ((data[offset + 2] as number) | 0x20) === 0x78;
  const radix = isHex ? 16 : 10;
  let code = 0;
  let end = offset + (isHex ? 3 : 2);
  const firstDigit = end;
  for (; end < offset + 9; end += 1) {
    const digit = hexAt(data, end);
    if (digit >= radix) break;
    code = code * radix + digit;
  }
  const length = end + 1 - offset;
  const lengthMax = code < 0x10000 ? 8 : 10;
  const isWhole = end > firstDigit && data[end] === SEMICOLON && length <= lengthMax && code <= 0x10ffff;
  return isWhole ? pack(code, length) : -1;
}
