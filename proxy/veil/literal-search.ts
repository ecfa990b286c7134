// Finds all occurrences of a fixed set of byte strings in one pass (Wu and Manber, "A fast algorithm for multi-pattern searching", 1994).

/** Bytes that are hashed together; every literal is at least this long. */
const BLOCK = 3;
/** Longer windows skip further, but fill the table with more blocks. */
const WINDOW_MAX = 20;
const TABLE_BITS_MIN = 9;
const TABLE_BITS_MAX = 15;

/**
 * A compiled set of literals. The table says for the hash of each three bytes how far the window may move on at least;
 * where it may not move at all, it holds the negated number of the bucket of literals whose window ends so.
 */
export class LiteralSearch {
  readonly #literals: readonly Buffer[];
  readonly #window: number;
  readonly #table: Int16Array;
  readonly #mask: number;
  readonly #buckets: number[][] = [[]];

  /** Literals have at least 3 bytes; there are at most 32,767 of them. */
  constructor(literals: readonly Buffer[]) {
    this.#literals = literals;
    this.#window = literals.reduce((shortest, { length }) => Math.min(shortest, length), WINDOW_MAX);
    const size = 2 ** tableBits(literals.length * this.#window);
    this.#mask = size - 1;
    this.#table = new Int16Array(size).fill(this.#window - BLOCK + 1);
    for (const literal of literals) this.#allowShifts(literal);
    literals.forEach((literal, index) => this.#addToBucket(literal, index));
  }

  #allowShifts(literal: Buffer): void {
    for (let end = BLOCK - 1; end < this.#window; end += 1) {
      const hash = this.#hash(literal, end);
      this.#table[hash] = Math.min(this.#table[hash] as number, this.#window - 1 - end);
    }
  }

  #addToBucket(literal: Buffer, index: number): void {
    const hash = this.#hash(literal, this.#window - 1);
    const entry = this.#table[hash] as number;
    if (entry < 0) {
      (this.#buckets[-entry] as number[]).push(index);
      return;
    }
    this.#table[hash] = -this.#buckets.length;
    this.#buckets.push([index]);
  }

  #hash(bytes: Buffer, end: number): number {
    return hashOf(bytes[end - 2] as number, bytes[end - 1] as number, bytes[end] as number) & this.#mask;
  }

  /** Number of the literal and offset of each occurrence, one after the other, in order of offset; null for none. */
  scan(data: Buffer): number[] | null {
    const table = this.#table;
    const mask = this.#mask;
    const { length } = data;
    let found: number[] | null = null;
    let end = this.#window - 1;
    while (end < length) {
      const hash = hashOf(data[end - 2] as number, data[end - 1] as number, data[end] as number);
      const shift = table[hash & mask] as number;
      if (shift > 0) {
        end += shift;
        continue;
      }
      found = this.#verify(data, { bucket: -shift, start: end - this.#window + 1, found });
      end += 1;
    }
    return found;
  }

  #verify(data: Buffer, at: { bucket: number; start: number; found: number[] | null }): number[] | null {
    let { found } = at;
    for (const index of this.#buckets[at.bucket] as number[]) {
      if (startsWithAt(data, at.start, this.#literals[index] as Buffer)) {
        found ??= [];
        found.push(index, at.start);
      }
    }
    return found;
  }
}

function hashOf(first: number, second: number, third: number): number {
  return (first << 7) ^ (second << 4) ^ third ^ (first >> 3);
}

/** Whether the literal stands in the data at that offset. */
export function startsWithAt(data: Buffer, offset: number, literal: Buffer): boolean {
  const { length } = literal;
  if (offset < 0 || offset + length > data.length) return false;
  for (let index = 0; index < length; index += 1) {
    if (data[offset + index] !== literal[index]) return false;
  }
  return true;
}

/** Eight slots for each block keep most text at the full shift. */
function tableBits(blocks: number): number {
  return Math.min(Math.max(Math.ceil(Math.log2(Math.max(blocks, 1) * 8)), TABLE_BITS_MIN), TABLE_BITS_MAX);
}
