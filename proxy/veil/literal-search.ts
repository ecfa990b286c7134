// Finds all occurrences of a fixed set of byte strings in one pass (Wu and Manber, "A fast algorithm for multi-pattern searching", 1994).

/** Bytes that are hashed together; every literal is at least this long. */
const BLOCK = 3;
/** Longer windows skip further, but fill the table with more blocks. */
const WINDOW_MAX = 64;
const TABLE_BITS_MIN = 9;
const TABLE_BITS_MAX = 16;
/** Rough size of a literal's place in its bucket. */
const BUCKET_BYTES = 80;

/** A compiled set of literals. */
export class LiteralSearch {
  readonly #literals: readonly Buffer[];
  readonly #window: number;
  /** For the hash of each three bytes, how far the window may move on when it ends with them. */
  readonly #shifts: Uint8Array;
  readonly #mask: number;
  /** By the hash of the three bytes that their windows end with: numbers of literals. */
  readonly #buckets = new Map<number, number[]>();

  /** Literals have at least 3 bytes. */
  constructor(literals: readonly Buffer[]) {
    this.#literals = literals;
    this.#window = literals.reduce((shortest, { length }) => Math.min(shortest, length), WINDOW_MAX);
    const size = 2 ** tableBits(literals.length * this.#window);
    this.#mask = size - 1;
    this.#shifts = new Uint8Array(size).fill(this.#window - BLOCK + 1);
    literals.forEach((literal, index) => this.#add(literal, index));
  }

  /** Size of the tables in memory; roughly. */
  get byteLength(): number {
    return this.#shifts.length + this.#literals.length * BUCKET_BYTES;
  }

  #add(literal: Buffer, index: number): void {
    for (let end = BLOCK - 1; end < this.#window; end += 1) {
      const hash = this.#hash(literal, end);
      this.#shifts[hash] = Math.min(this.#shifts[hash] as number, this.#window - 1 - end);
    }
    const hash = this.#hash(literal, this.#window - 1);
    const bucket = this.#buckets.get(hash);
    if (bucket === undefined) this.#buckets.set(hash, [index]);
    else bucket.push(index);
  }

  #hash(bytes: Buffer, end: number): number {
    return hashOf(bytes[end - 2] as number, bytes[end - 1] as number, bytes[end] as number) & this.#mask;
  }

  /** Number of the literal and offset of each occurrence, one after the other, in order of offset; null for none. */
  scan(data: Buffer): number[] | null {
    const shifts = this.#shifts;
    const mask = this.#mask;
    const { length } = data;
    let found: number[] | null = null;
    let end = this.#window - 1;
    while (end < length) {
      const hash = hashOf(data[end - 2] as number, data[end - 1] as number, data[end] as number) & mask;
      const shift = shifts[hash] as number;
      if (shift > 0) {
        end += shift;
        continue;
      }
      for (const index of this.#buckets.get(hash) as number[]) {
        const start = end - this.#window + 1;
        if (startsWithAt(data, start, this.#literals[index] as Buffer)) (found ??= []).push(index, start);
      }
      end += 1;
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

/** Four slots for each block keep most text at the full shift. */
function tableBits(blocks: number): number {
  return Math.min(Math.max(Math.ceil(Math.log2(Math.max(blocks, 1) * 4)), TABLE_BITS_MIN), TABLE_BITS_MAX);
}
