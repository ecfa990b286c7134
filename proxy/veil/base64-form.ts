// Base64 forms of a value (RFC 4648 sections 4 and 5): what of them is the same whatever stands around the value.

/** A value's base64 as it looks with `alignment` bytes before it in its group of three. */
export interface Base64Form {
  /** The characters that depend on the value alone, in one of the two alphabets. */
  readonly core: Buffer;
  /** The alphabet has `-` and `_`; false also where the core has no character that differs. */
  readonly isUrlSafe: boolean;
  /** 0, 1 or 2. */
  readonly alignment: number;
  /** Low bits of the character before the core; it mixes them with bits of what stands before the value. */
  readonly leadBits: number;
  readonly leadMask: number;
  /** High bits of the character after the core; -1 when the value ends with the core. */
  readonly tailBits: number;
  /** How many low bits of the character after the core belong to what stands behind the value. */
  readonly tailShift: number;
}

/** Characters around a core that belong to the value's form or decide it: lead, tail, two of padding, one behind. */
export const BASE64_EDGE_BYTES = 5;

const EQUALS_SIGN = 0x3d;

/** Value of each base64 character of both alphabets; 255 for other bytes. */
const DIGIT = new Uint8Array(256).fill(255);
[...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'].forEach((character, digit) => {
  DIGIT[character.charCodeAt(0)] = digit;
});
for (const [character, digit] of [
  ['+', 62],
  ['-', 62],
  ['/', 63],
  ['_', 63],
] as const) {
  DIGIT[character.charCodeAt(0)] = digit;
}

/** The forms of a value of at least 8 bytes at all three alignments, in the URL-safe alphabet where it differs. */
export function base64Forms(value: Buffer): Base64Form[] {
  return [0, 1, 2].flatMap((alignment) => {
    const shifted = Buffer.concat([Buffer.alloc(alignment), value]);
    const first = Math.ceil((alignment * 8) / 6);
    const last = Math.floor((shifted.length * 8) / 6);
    const restBits = (shifted.length * 8) % 6;
    const leadMask = (1 << ((first * 6) % 8)) - 1;
    const form = {
      alignment,
      leadMask,
      leadBits: alignment === 0 ? 0 : (value[0] as number) >> (8 - ((first * 6) % 8)),
      tailBits: restBits === 0 ? -1 : (value.at(-1) as number) & ((1 << restBits) - 1),
      tailShift: 6 - restBits,
    };
    const standard = shifted.toString('base64').slice(first, last);
    const urlSafe = shifted.toString('base64url').slice(first, last);
    const forms: Base64Form[] = [{ ...form, core: Buffer.from(standard, 'latin1'), isUrlSafe: false }];
    if (urlSafe !== standard) forms.push({ ...form, core: Buffer.from(urlSafe, 'latin1'), isUrlSafe: true });
    return forms;
  });
}

/** Where a form stands, and what to put there; a null replacement means `*` of the same length. */
export interface Base64Extent {
  readonly start: number;
  readonly end: number;
  readonly replacement: Buffer | null;
}

/**
 * Extends a core that was found at an offset by the characters beside it that hold bits of the value. The replacement
 * is base64 of the placeholder where the value begins and ends with its groups of three.
 */
export function base64Extent(
  form: Base64Form,
  placeholder: Buffer,
  at: { data: Buffer; offset: number },
): Base64Extent {
  const { data, offset } = at;
  const coreEnd = offset + form.core.length;
  const hasLead = form.alignment > 0 && offset > 0 && isLead(form, data[offset - 1] as number);
  const hasTail = form.tailBits >= 0 && isTail(form, data[coreEnd]);
  const start = hasLead ? offset - 1 : offset;
  const end = hasTail ? coreEnd + 1 : coreEnd;
  if (form.alignment > 0) return { start, end, replacement: null };
  if (form.tailBits < 0) return { start, end, replacement: wholeGroups(form, placeholder, data[end]) };
  if (!hasTail || !isTerminal(form, data, coreEnd)) return { start, end, replacement: null };
  const padding = form.tailShift === 4 ? 2 : 1;
  const isPadded = data[end] === EQUALS_SIGN && (padding === 1 || data[end + 1] === EQUALS_SIGN);
  return {
    start,
    end: isPadded ? end + padding : end,
    replacement: encode(placeholder, { isUrlSafe: form.isUrlSafe, isPadded }),
  };
}

function isLead(form: Base64Form, byte: number): boolean {
  const digit = DIGIT[byte] as number;
  return digit !== 255 && (digit & form.leadMask) === form.leadBits;
}

function isTail(form: Base64Form, byte: number | undefined): boolean {
  const digit = byte === undefined ? 255 : (DIGIT[byte] as number);
  return digit !== 255 && digit >> form.tailShift === form.tailBits;
}

/** The tail's other bits are zero, and no further base64 follows it: the encoded text ends with the value. */
function isTerminal(form: Base64Form, data: Buffer, tail: number): boolean {
  const digit = DIGIT[data[tail] as number] as number;
  return (digit & ((1 << form.tailShift) - 1)) === 0 && !isDigit(data[tail + 1]);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && DIGIT[byte] !== 255;
}

/** A value of whole groups: only a placeholder of whole groups can stand in the middle of more base64. */
function wholeGroups(form: Base64Form, placeholder: Buffer, next: number | undefined): Buffer | null {
  if (isDigit(next) && placeholder.length % 3 !== 0) return null;
  return encode(placeholder, { isUrlSafe: form.isUrlSafe, isPadded: !form.isUrlSafe });
}

function encode(placeholder: Buffer, how: { isUrlSafe: boolean; isPadded: boolean }): Buffer {
  const padded = placeholder.toString('base64');
  const text = how.isPadded ? padded : padded.replace(/=+$/, '');
  return Buffer.from(how.isUrlSafe ? text.replaceAll('+', '-').replaceAll('/', '_') : text, 'latin1');
}
