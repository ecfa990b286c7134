// Finds values of which at least one character is escaped, in any mixture of plain and escaped characters.
import {
  INTRODUCERS,
  escapeLength,
  firstByte,
  followersOf,
  isIntroducer,
  matchedBytes,
  readEscape,
} from './escapes.ts';

/** Where escapes are no further apart, bytes are looked at one by one before the native search is asked again. */
const NEAR_BYTES = 12;
const SPACE = 0x20;
const PLUS = 0x2b;

/** No place. */
const NONE = -1;

/**
 * Looks for escapes, not for values: what stands before the first escape of an occurrence is the value's beginning as
 * it is, so the byte before it and the byte it stands for say at which places of which values it can be. The places
 * are kept in typed arrays, chained by the hash of these two bytes: a session has thousands of them.
 */
export class EscapedSearch {
  readonly #values: readonly Buffer[];
  readonly #introducers: readonly number[];
  /** By the first byte that an escape stands for: numbers of the values that begin with it. */
  readonly #first = new Map<number, number[]>();
  readonly #isFirst = new Uint8Array(256);
  /** By hash: the first place of a chain. */
  readonly #heads: Int32Array;
  /** By place: the next one of its chain, the number of its value, and its offset in it. */
  readonly #next: Int32Array;
  readonly #number: Uint16Array;
  readonly #offset: Uint16Array;

  /** Values have at most 65,535 bytes each; there are at most as many of them. */
  constructor(values: readonly Buffer[]) {
    this.#values = values;
    const hasSpace = values.some((value) => value.includes(SPACE));
    this.#introducers = values.length === 0 ? [] : INTRODUCERS.filter((byte) => byte !== PLUS || hasSpace);
    const places = values.reduce((sum, { length }) => sum + length - 1, 0);
    this.#heads = new Int32Array(2 ** Math.ceil(Math.log2(2 * places + 2))).fill(NONE);
    this.#next = new Int32Array(places);
    this.#number = new Uint16Array(places);
    this.#offset = new Uint16Array(places);
    let place = 0;
    values.forEach((value, number) => {
      const first = value[0] as number;
      this.#isFirst[first] = 1;
      this.#first.set(first, [...(this.#first.get(first) ?? []), number]);
      for (let offset = 1; offset < value.length; offset += 1, place += 1) {
        const hash = this.#hash(value[offset - 1] as number, value[offset] as number);
        this.#next[place] = this.#heads[hash] as number;
        this.#heads[hash] = place;
        this.#number[place] = number;
        this.#offset[place] = offset;
      }
    });
  }

  /** Size of the tables in memory; roughly. */
  get byteLength(): number {
    return this.#heads.byteLength + this.#next.length * (4 + 2 + 2);
  }

  #hash(before: number, byte: number): number {
    return ((before << 5) ^ (before >> 2) ^ byte) & (this.#heads.length - 1);
  }

  /** Number of the value, start and end of each occurrence, one after the other, in no order; null for none. */
  scan(data: Buffer): number[] | null {
    let found: number[] | null = null;
    for (const introducer of this.#introducers) {
      const followers = followersOf(introducer);
      let gap = Number.POSITIVE_INFINITY;
      for (let at = data.indexOf(introducer); at >= 0;) {
        if (followers === null || followers[data[at + 1] as number] === 1) found = this.#examine(data, at, found);
        const next = gap < NEAR_BYTES ? nextByte(data, introducer, at + 1) : data.indexOf(introducer, at + 1);
        gap = next - at;
        at = next;
      }
    }
    return found;
  }

  #examine(data: Buffer, at: number, found: number[] | null): number[] | null {
    const escape = readEscape(data, at);
    if (escape < 0) return found;
    const byte = firstByte(escape);
    let result = found;
    if (this.#isFirst[byte] === 1) {
      for (const number of this.#first.get(byte) as number[]) {
        result = this.#tryPlace({ data, at, escape, number, offset: 0 }, result);
      }
    }
    if (at === 0) return result;
    const before = data[at - 1] as number;
    let place = this.#heads[this.#hash(before, byte)] as number;
    for (; place !== NONE; place = this.#next[place] as number) {
      const number = this.#number[place] as number;
      const offset = this.#offset[place] as number;
      const value = this.#values[number] as Buffer;
      if (value[offset - 1] !== before || value[offset] !== byte) continue;
      result = this.#tryPlace({ data, at, escape, number, offset }, result);
    }
    return result;
  }

  #tryPlace(here: Place, found: number[] | null): number[] | null {
    const { data, at, escape, number, offset } = here;
    const value = this.#values[number] as Buffer;
    const start = at - offset;
    const matched = matchedBytes(escape, value, offset);
    if (matched === 0 || start < 0 || !startsAlike(data, start, { value, length: offset - 1 })) return found;
    const end = matchRest(value, offset + matched, { data, at: at + escapeLength(escape) });
    if (end < 0) return found;
    const result = found ?? [];
    result.push(number, start, end);
    return result;
  }
}

/** An escape in the data, and where in which value it may be. */
interface Place {
  readonly data: Buffer;
  readonly at: number;
  readonly escape: number;
  readonly number: number;
  readonly offset: number;
}

/** Like `indexOf`, but without a native call for each byte of text that is full of escapes. */
function nextByte(data: Buffer, byte: number, from: number): number {
  const near = Math.min(from + NEAR_BYTES, data.length);
  for (let at = from; at < near; at += 1) if (data[at] === byte) return at;
  return data.indexOf(byte, near);
}

/** Whether the data from `start` are the first `length` bytes of the value, compared from the end. */
function startsAlike(data: Buffer, start: number, prefix: { value: Buffer; length: number }): boolean {
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
