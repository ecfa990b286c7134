// Swaps placeholders in the bytes of one body or message, chunk by chunk, wherever the chunks are cut.
import type { SwapLocation } from '../../model/audit.ts';
import { KeyveilError } from '../../model/errors.ts';
import { BODY_BATCH_BYTES } from '../../model/limits.ts';
import { startsLikeJson, type BodyClass } from './body-class.ts';
import { bodyFormOf, type BodyForm } from './escaping.ts';
import type { PlanEntry, SwapPlan } from './plan.ts';
import type { SwapTally } from './tally.ts';

export interface BodySwapperOptions {
  readonly plan: SwapPlan;
  /** `text`: JSON if it starts like it, else raw. */
  readonly bodyClass: Exclude<BodyClass, 'binary'> | 'text';
  readonly location: Extract<SwapLocation, 'body' | 'websocket'>;
  /** Most bytes by which the body may grow. */
  readonly growthBytes: number;
  readonly tally: SwapTally;
}

const NOTHING = Buffer.alloc(0);

/**
 * Gives a body back in pieces: views of what was pushed, and the values. Nothing that was inserted is searched, and no
 * piece may be changed by whoever takes it. What may be the start of a placeholder waits for the next chunk.
 */
export class BodySwapper {
  readonly #options: BodySwapperOptions;
  readonly #forms = new Map<PlanEntry, Buffer>();
  #form: BodyForm | null;
  #carry: Buffer = NOTHING;
  #grownBytes = 0;
  #swapCount = 0;

  constructor(options: BodySwapperOptions) {
    this.#options = options;
    const { bodyClass } = options;
    this.#form = bodyClass === 'json' || bodyClass === 'raw' ? bodyClass : null;
  }

  /** Number of placeholders that were swapped so far. */
  get swapCount(): number {
    return this.#swapCount;
  }

  /**
   * Takes a chunk. The pieces are made as they are asked for, and must all be asked for before the next chunk. Throws
   * `credential_unreadable`, or `swap_too_large` when the body grows too much.
   */
  *push(chunk: Buffer): Generator<Buffer, void> {
    const bytes = this.#carry.length === 0 ? chunk : Buffer.concat([this.#carry, chunk]);
    this.#carry = NOTHING;
    this.#form ??= this.#formByStart(bytes);
    const { plan, location, tally } = this.#options;
    let taken = 0;
    let searched = 0;
    for (let match = plan.scanner.find(bytes, 0); match !== null; match = plan.scanner.find(bytes, searched)) {
      searched = match.end;
      const entry = plan.entries[match.index] as PlanEntry;
      if (entry.body !== 'swap') {
        tally.missed(entry, location, entry.body);
        continue;
      }
      const value = this.#valueOf(entry);
      if (match.start > taken) yield bytes.subarray(taken, match.start);
      taken = match.end;
      tally.swapped(entry, location);
      this.#swapCount += 1;
      if (value.length > 0) yield value;
    }
    const held = plan.scanner.heldFrom(bytes, searched);
    // A copy, so that a few bytes don't keep a whole chunk in memory.
    if (held < bytes.length) this.#carry = Buffer.from(bytes.subarray(held));
    if (held > taken) yield bytes.subarray(taken, held);
  }

  /** The rest: what could have become a placeholder, and didn't. */
  *end(): Generator<Buffer, void> {
    if (this.#carry.length > 0) yield this.#carry;
    this.#carry = NOTHING;
  }

  #formByStart(bytes: Buffer): BodyForm | null {
    const isJson = startsLikeJson(bytes);
    if (isJson === null) return null;
    if (isJson) return 'json';
    return this.#options.bodyClass === 'form' ? 'form' : 'raw';
  }

  #valueOf(entry: PlanEntry): Buffer {
    let value = this.#forms.get(entry);
    if (value === undefined) {
      // A placeholder isn't blank, so the form is known here.
      value = bodyFormOf(entry, this.#form as BodyForm);
      this.#forms.set(entry, value);
    }
    this.#grownBytes += value.length - entry.placeholder.length;
    if (this.#grownBytes > this.#options.growthBytes) throw tooLarge(this.#options.growthBytes);
    return value;
  }
}

function tooLarge(growthBytes: number): KeyveilError {
  return new KeyveilError(
    'swap_too_large',
    `The secret values would add more than ${growthBytes} bytes to the request. Send fewer placeholders, or raise KEYVEIL_SWAP_GROWTH_BYTES.`,
  );
}

/** Joins small pieces, so that each costs no write of its own. Lazy: no more is made than is asked for. */
export function* joinPieces(pieces: Iterable<Buffer>): Generator<Buffer, void> {
  let batch: Buffer[] = [];
  let bytes = 0;
  for (const piece of pieces) {
    if (bytes > 0 && bytes + piece.length > BODY_BATCH_BYTES) {
      yield joined(batch, bytes);
      batch = [];
      bytes = 0;
    }
    batch.push(piece);
    bytes += piece.length;
  }
  if (bytes > 0) yield joined(batch, bytes);
}

/** Several pieces as one; a single one is not copied. */
export function joined(batch: readonly Buffer[], bytes: number): Buffer {
  return batch.length === 1 ? (batch[0] as Buffer) : Buffer.concat(batch, bytes);
}
