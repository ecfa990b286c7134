// Veils a stream of bytes; how much of it is held back depends on lengths and on ends of events or lines, never on a match.
import type { VeilRecord } from '../../model/audit.ts';
import type { Hit, Veil } from './veil.ts';

/** For the audit. */
export function recordsOf(counts: HitCounts): VeilRecord[] {
  return [...counts].map(([credentialId, count]) => ({ credentialId, count }));
}

const EMPTY = Buffer.alloc(0);
const ASTERISK = 0x2a;

/** Number of occurrences that were veiled, by the credential's id. */
export type HitCounts = Map<string, number>;

export interface ScannerOptions {
  /** Overwrite what is found with `*`, so that no length changes. */
  readonly sameLength: boolean;
  readonly counts: HitCounts;
}

/**
 * Occurrences that overlap are veiled as one: every byte that belongs to any of them is hidden, and what takes their
 * place is what the first (of several, the longest) becomes. Occurrences that touch stay apart.
 */
export class VeilScanner {
  readonly #veil: Veil;
  readonly #sameLength: boolean;
  readonly #counts: HitCounts;
  #carry: Buffer = EMPTY;
  /** Bytes at the beginning of the carry that belong to an occurrence that has begun before it. */
  #veiled = 0;
  #hits = 0;

  constructor(veil: Veil, options: ScannerOptions) {
    this.#veil = veil;
    this.#sameLength = options.sameLength;
    this.#counts = options.counts;
  }

  /** Occurrences that were veiled. */
  get hits(): number {
    return this.#hits;
  }

  /** Bytes that are held back. */
  get held(): number {
    return this.#carry.length;
  }

  /**
   * Takes bytes (which are the scanner's from then on) and gives those that may leave: all but the last
   * (longest form − 1). Where an event or a line ended in the chunk, `sinceEnd` is the number of bytes after it, and
   * no more than these are held back.
   */
  push(chunk: Buffer, sinceEnd = Number.POSITIVE_INFINITY): Buffer {
    return this.pushAll([chunk], sinceEnd);
  }

  /** As `push`, for chunks that came together. */
  pushAll(chunks: readonly Buffer[], sinceEnd: number): Buffer {
    const all = this.#carry.length === 0 ? chunks : [this.#carry, ...chunks];
    const data = all.length === 1 ? (all[0] as Buffer) : Buffer.concat(all);
    return this.#letOut(data, Math.max(0, data.length - Math.min(this.#veil.longest - 1, sinceEnd)));
  }

  /** Gives all that is held back. What begins in it and goes on afterwards is not found. */
  release(): Buffer {
    return this.#letOut(this.#carry, this.#carry.length);
  }

  /** Veils a body that is complete; the same buffer when nothing was found. */
  whole(data: Buffer): Buffer {
    return this.#letOut(data, data.length);
  }

  #letOut(data: Buffer, limit: number): Buffer {
    this.#carry = limit === data.length ? EMPTY : data.subarray(limit);
    if (limit === 0) return EMPTY;
    const hits = this.#veil.find(data);
    const out = limit === data.length ? data : data.subarray(0, limit);
    if (hits === null && this.#veiled === 0) return out;
    return this.#sameLength ? this.#overwrite(out, hits ?? []) : this.#replace(out, hits ?? []);
  }

  #replace(out: Buffer, hits: readonly Hit[]): Buffer {
    const pieces: Buffer[] = [];
    let until = this.#veiled;
    for (const hit of hits) {
      if (hit.start >= out.length) break;
      if (hit.start >= until) {
        pieces.push(out.subarray(until, hit.start), hit.replacement ?? Buffer.alloc(hit.end - hit.start, ASTERISK));
        this.#count(hit);
      }
      until = Math.max(until, hit.end);
    }
    pieces.push(out.subarray(Math.min(until, out.length)));
    this.#veiled = Math.max(0, until - out.length);
    return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
  }

  #overwrite(out: Buffer, hits: readonly Hit[]): Buffer {
    let until = this.#veiled;
    out.fill(ASTERISK, 0, Math.min(until, out.length));
    for (const hit of hits) {
      if (hit.start >= out.length) break;
      if (hit.start >= until) this.#count(hit);
      until = Math.max(until, hit.end);
      out.fill(ASTERISK, hit.start, Math.min(hit.end, out.length));
    }
    this.#veiled = Math.max(0, until - out.length);
    return out;
  }

  #count({ credential }: Hit): void {
    this.#hits += 1;
    const id = this.#veil.credentialId(credential);
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
  }
}
