// Finds values of which at least one character is escaped, in any mixture of plain and escaped characters.
import { INTRODUCERS, escapeLength, firstByte, isIntroducer, matchedBytes, readEscape } from './escapes.ts';

/** After a hit, this many bytes are looked at one by one before the native search is asked again. */
const NEAR_BYTES = 32;
/** Pairs of bytes. */
const PAIRS = 65_536;
const SPACE = 0x20;
const PLUS = 0x2b;

/** Places in values, as pairs: number of the value, offset in it. */
type Places = number[];

/**
 * Looks for escapes, not for values: what stands before the first escape of an occurrence is the value's beginning as
 * it is, so the byte before it and the byte it stands for say at which places of which values it can be.
 */
export class EscapedSearch {
  readonly #values: readonly Buffer[];
  readonly #introducers: readonly number[];
  /** By the first byte that the escape stands for: values that begin with it. */
  readonly #first: (Places | undefined)[] = new Array<Places | undefined>(256).fill(undefined);
  /** By the byte before and the first byte that the escape stands for. */
  readonly #inner = new Map<number, Places>();
  /** A bit for each key of `#inner`: most escapes are of other text, and this tells so at once. */
  readonly #isInner = new Uint8Array(PAIRS / 8);

  constructor(values: readonly Buffer[]) {
    this.#values = values;
    const hasSpace = values.some((value) => value.includes(SPACE));
    this.#introducers = values.length === 0 ? [] : INTRODUCERS.filter((byte) => byte !== PLUS || hasSpace);
    values.forEach((value, number) => this.#add(value, number));
  }

  #add(value: Buffer, number: number): void {
    const first = value[0] as number;
    (this.#first[first] ??= []).push(number, 0);
    for (let offset = 1; offset < value.length; offset += 1) {
      const key = pairKey(value[offset - 1] as number, value[offset] as number);
      const places = this.#inner.get(key);
      if (places === undefined) this.#inner.set(key, [number, offset]);
      else places.push(number, offset);
      this.#isInner[key >> 3] = (this.#isInner[key >> 3] as number) | (1 << (key & 7));
    }
  }

  /** Number of the value, start and end of each occurrence, one after the other, in no order; null for none. */
  scan(data: Buffer): number[] | null {
    let found: number[] | null = null;
    for (const introducer of this.#introducers) {
      for (let at = data.indexOf(introducer); at >= 0; at = nextByte(data, introducer, at + 1)) {
        found = this.#examine(data, at, found);
      }
    }
    return found;
  }

  #examine(data: Buffer, at: number, found: number[] | null): number[] | null {
    const escape = readEscape(data, at);
    if (escape < 0) return found;
    const byte = firstByte(escape);
    const key = at === 0 ? 0 : pairKey(data[at - 1] as number, byte);
    const isInner = ((this.#isInner[key >> 3] as number) & (1 << (key & 7))) !== 0;
    const first = this.#first[byte];
    let result = found;
    if (first !== undefined) result = this.#tryPlaces(first, { data, at, escape, found: result });
    if (isInner) result = this.#tryPlaces(this.#inner.get(key) as Places, { data, at, escape, found: result });
    return result;
  }

  #tryPlaces(
    places: Places,
    here: { data: Buffer; at: number; escape: number; found: number[] | null },
  ): number[] | null {
    const { data, at, escape } = here;
    let { found } = here;
    for (let index = 0; index < places.length; index += 2) {
      const value = this.#values[places[index] as number] as Buffer;
      const offset = places[index + 1] as number;
      const start = at - offset;
      if (start < 0 || !endsAlike(data, start, { value, length: offset - 1 })) continue;
      const matched = matchedBytes(escape, value, offset);
      if (matched === 0) continue;
      const end = matchRest(value, offset + matched, { data, at: at + escapeLength(escape) });
      if (end < 0) continue;
      found ??= [];
      found.push(places[index] as number, start, end);
    }
    return found;
  }
}

function pairKey(before: number, byte: number): number {
  return (before << 8) | byte;
}

/** Like `indexOf`, but without a native call for each byte of text that is full of escapes. */
function nextByte(data: Buffer, byte: number, from: number): number {
  const near = Math.min(from + NEAR_BYTES, data.length);
  for (let at = from; at < near; at += 1) if (data[at] === byte) return at;
  return data.indexOf(byte, near);
}

/** Whether the data from `start` are the first `length` bytes of the value, compared from the end. */
function endsAlike(data: Buffer, start: number, prefix: { value: Buffer; length: number }): boolean {
  for (let index = prefix.length - 1; index >= 0; index -= 1) {
    if (data[start + index] !== prefix.value[index]) return false;
  }
  return true;
}

/** Where the rest of the value, from an offset in it, ends in the data; -1 when something else stands there. */
function matchRest(value: Buffer, from: number, where: { data: Buffer; at: number }): number {
  const { data } = where;
  let offset = from;
  let { at } = where;
  while (offset < value.length) {
    if (at >= data.length) return -1;
    const byte = data[at] as number;
    const isPlain = byte === value[offset];
    const escape = isIntroducer(byte) ? readEscape(data, at) : -1;
    const matched = escape < 0 ? 0 : matchedBytes(escape, value, offset);
    if (matched > 0) {
      // A value with an escape character in it can be read in two ways from here.
      if (isPlain) return matchBothWays(value, offset, { data, at });
      offset += matched;
      at += escapeLength(escape);
    } else {
      if (!isPlain) return -1;
      offset += 1;
      at += 1;
    }
  }
  return at;
}

/** As `matchRest`, but follows all readings side by side and tells the longest. */
function matchBothWays(value: Buffer, from: number, where: { data: Buffer; at: number }): number {
  const { data } = where;
  /** For each offset of the value, where in the data one can have come to. */
  const reached = new Map<number, Set<number>>([[from, new Set([where.at])]]);
  const reach = (offset: number, at: number): void => {
    const places = reached.get(offset);
    if (places === undefined) reached.set(offset, new Set([at]));
    else places.add(at);
  };
  for (let offset = from; offset < value.length; offset += 1) {
    for (const at of reached.get(offset) ?? []) {
      if (at >= data.length) continue;
      const byte = data[at] as number;
      if (byte === value[offset]) reach(offset + 1, at + 1);
      const escape = isIntroducer(byte) ? readEscape(data, at) : -1;
      const matched = escape < 0 ? 0 : matchedBytes(escape, value, offset);
      if (matched > 0) reach(offset + matched, at + escapeLength(escape));
    }
    reached.delete(offset);
  }
  return Math.max(-1, ...(reached.get(value.length) ?? []));
}
