// The veil as plainly as it can be said, for whole buffers: what the fast and streaming one is compared with.
export interface ReferenceCredential {
  readonly id: string;
  readonly value: Buffer;
  readonly placeholder: string;
}

export interface ReferenceToken {
  readonly credentialId: string;
  readonly sent: string;
  readonly original: string;
}

interface Found {
  readonly start: number;
  readonly end: number;
  /** Null for asterisks. */
  readonly becomes: string | null;
}

const ALPHABETS = ['+/', '-_'].map((last) => `ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789${last}`);
const IS_BASE64 = /^[A-Za-z0-9+/_-]$/;
/** Bytes that between them have each bit set and not. */
const BYTES = [0x00, 0xff, 0x55, 0xaa, ...Array.from({ length: 64 }, (_, bits) => ((bits & 15) << 4) | (bits >> 2))];

/** The body with all occurrences replaced (or overwritten), and how many there were. */
export function referenceVeil(
  data: Buffer,
  credentials: readonly ReferenceCredential[],
  options: { readonly sameLength?: boolean; readonly tokens?: readonly ReferenceToken[] } = {},
): { readonly bytes: Buffer; readonly count: number } {
  const text = data.toString('latin1');
  const found = credentials.flatMap((credential, order) =>
    findAll(text, credential, options.tokens ?? []).map((hit) => ({ ...hit, order })),
  );
  found.sort((a, b) => a.start - b.start || b.end - a.end || a.order - b.order);
  let result = '';
  let until = 0;
  let count = 0;
  for (const { start, end, becomes } of found) {
    if (start >= until) {
      result += text.slice(until, start);
      if (options.sameLength !== true) result += becomes ?? '*'.repeat(end - start);
      count += 1;
      until = start;
    }
    if (end <= until) continue;
    if (options.sameLength === true) result += '*'.repeat(end - until);
    until = end;
  }
  return { bytes: Buffer.from(result + text.slice(until), 'latin1'), count };
}

function findAll(text: string, credential: ReferenceCredential, tokens: readonly ReferenceToken[]): Found[] {
  const { value, placeholder } = credential;
  if (value.length < 8) return [];
  const isShort = value.length <= 1024;
  const found: Found[] = [];
  const literals = [value.toString('latin1')];
  if (isShort) literals.push(value.toString('hex'), value.toString('hex').toUpperCase());
  for (const literal of literals)
    for (const start of positions(text, literal))
      found.push({ start, end: start + literal.length, becomes: placeholder });
  for (const { credentialId, sent, original } of tokens) {
    if (credentialId !== credential.id) continue;
    for (const start of positions(text, sent)) found.push({ start, end: start + sent.length, becomes: original });
  }
  for (const [alphabetIndex, alphabet] of ALPHABETS.entries()) {
    for (const alignment of [0, 1, 2])
      found.push(...findBase64(text, credential, { alphabet, isUrlSafe: alphabetIndex === 1, alignment }));
  }
  if (isShort)
    for (let start = 0; start < text.length; start += 1) {
      if (text.charCodeAt(start) !== value[0] && !/[%\\&+]/.test(text.charAt(start))) continue;
      const end = escapedEnd(text, start, value);
      if (end > 0) found.push({ start, end, becomes: placeholder });
    }
  return found;
}

function positions(text: string, literal: string): number[] {
  const result: number[] = [];
  for (let at = text.indexOf(literal); at >= 0; at = text.indexOf(literal, at + 1)) result.push(at);
  return result;
}

function encode(bytes: Buffer, isUrlSafe: boolean): string {
  return isUrlSafe ? bytes.toString('base64url') : bytes.toString('base64').replaceAll('=', '');
}

/** Tries what can stand before and behind the value, and keeps the characters that are always the same. */
function findBase64(
  text: string,
  credential: ReferenceCredential,
  how: { alphabet: string; isUrlSafe: boolean; alignment: number },
): Found[] {
  const { value } = credential;
  const { isUrlSafe, alignment } = how;
  const variants = BYTES.map((byte) =>
    encode(Buffer.concat([Buffer.alloc(alignment, byte), value, Buffer.alloc(3, byte)]), isUrlSafe),
  );
  const first = variants[0] as string;
  const stable = [...first].map((character, index) => variants.every((variant) => variant[index] === character));
  const from = stable.indexOf(true);
  const to = stable.lastIndexOf(true) + 1;
  const groups = (alignment + value.length) % 3 === 0;
  if (from < 0 || !stable.slice(from, to).every(Boolean))
    throw new Error('the reference expects one run of stable characters');
  const core = first.slice(from, to);
  if (
    isUrlSafe &&
    core === encode(Buffer.concat([Buffer.alloc(alignment), value, Buffer.alloc(3)]), false).slice(from, to)
  )
    return [];
  const edge = (index: number): Set<string> =>
    new Set(
      variants.flatMap((variant) => {
        const character = variant[index] as string;
        return [
          character,
          character.replace('+', '-').replace('/', '_').replace(/^-$/, '-'),
          { '-': '+', _: '/' }[character] ?? character,
        ];
      }),
    );
  const leads = alignment === 0 ? new Set<string>() : edge(from - 1);
  const tails = groups ? new Set<string>() : edge(to);
  return positions(text, core).map((at) => {
    const start = at > 0 && leads.has(text.charAt(at - 1)) ? at - 1 : at;
    const tail = at + core.length;
    const hasTail = !groups && tail < text.length && tails.has(text.charAt(tail));
    const end = hasTail ? tail + 1 : tail;
    if (alignment !== 0) return { start, end, becomes: null };
    if (!groups && !hasTail) return { start, end, becomes: null };
    return { start, ...wholeBase64(text, credential, { end, isUrlSafe }) };
  });
}

/** The value's own base64 ends at `end`, if what follows does not go on with it. */
function wholeBase64(
  text: string,
  { value, placeholder }: ReferenceCredential,
  how: { end: number; isUrlSafe: boolean },
): { end: number; becomes: string | null } {
  const { end, isUrlSafe } = how;
  const plain = encode(Buffer.from(placeholder), isUrlSafe);
  const padded = plain + '='.repeat((4 - (plain.length % 4)) % 4);
  const isLast = !IS_BASE64.test(text.charAt(end));
  if (value.length % 3 === 0) {
    return { end, becomes: isLast || placeholder.length % 3 === 0 ? (isUrlSafe ? plain : padded) : null };
  }
  const standard = (character: string): string => character.replace('-', '+').replace('_', '/');
  const isZeroTail = encode(value, false).at(-1) === standard(text.charAt(end - 1));
  if (!isZeroTail || !isLast) return { end, becomes: null };
  const padding = '='.repeat(3 - (value.length % 3));
  return text.startsWith(padding, end) ? { end: end + padding.length, becomes: padded } : { end, becomes: plain };
}

const SHORT: Record<string, string> = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
const NAMED: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** Readings of one escape at the beginning of a text: what it stands for, as bytes in Latin-1, and its length. */
function readEscapes(text: string): { bytes: string; length: number }[] {
  const result: { bytes: string; length: number }[] = [];
  const utf8 = (character: string): string => Buffer.from(character, 'utf8').toString('latin1');
  const percent = /^%([0-9a-f]{2})/i.exec(text);
  if (percent) result.push({ bytes: String.fromCharCode(parseInt(percent[1] as string, 16)), length: 3 });
  if (text.startsWith('+')) result.push({ bytes: ' ', length: 1 });
  const short = /^\\(["\\/bfnrt])/.exec(text);
  if (short) result.push({ bytes: SHORT[short[1] as string] as string, length: 2 });
  const units = /^(?:\\u(?:d[89ab][0-9a-f]{2})\\u(?:d[c-f][0-9a-f]{2})|\\u[0-9a-f]{4})/i.exec(text)?.[0];
  if (units !== undefined) {
    const character = JSON.parse(`"${units.replaceAll(/\\U/g, '\\u')}"`) as string;
    if (!/^[\ud800-\udfff]$/.test(character)) result.push({ bytes: utf8(character), length: units.length });
  }
  const named = /^&(amp|lt|gt|quot|apos);/.exec(text);
  if (named) result.push({ bytes: NAMED[named[1] as string] as string, length: named[0].length });
  const numeric = /^&#(?:x([0-9a-f]{1,6})|([0-9]{1,7}));/i.exec(text);
  if (numeric) {
    const code = numeric[1] === undefined ? parseInt(numeric[2] as string, 10) : parseInt(numeric[1], 16);
    const isFine =
      code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) && numeric[0].length <= (code > 0xffff ? 10 : 8);
    if (isFine) result.push({ bytes: utf8(String.fromCodePoint(code)), length: numeric[0].length });
  }
  return result;
}

/** Furthest end of the value from a start, with at least one character escaped; 0 for none. */
function escapedEnd(text: string, start: number, value: Buffer): number {
  const wanted = value.toString('latin1');
  let states = new Map<string, { offset: number; at: number; isEscaped: boolean }>();
  states.set('', { offset: 0, at: start, isEscaped: false });
  let furthest = 0;
  while (states.size > 0) {
    const next: typeof states = new Map();
    for (const { offset, at, isEscaped } of states.values()) {
      if (offset === wanted.length) {
        if (isEscaped) furthest = Math.max(furthest, at);
        continue;
      }
      const steps = readEscapes(text.slice(at, at + 12)).map((step) => ({ ...step, isEscaped: true }));
      if (at < text.length) steps.push({ bytes: text.charAt(at), length: 1, isEscaped });
      for (const step of steps) {
        if (!wanted.startsWith(step.bytes, offset)) continue;
        const state = { offset: offset + step.bytes.length, at: at + step.length, isEscaped: step.isEscaped };
        next.set(`${state.offset} ${state.at} ${state.isEscaped}`, state);
      }
    }
    states = next;
  }
  return furthest;
}
