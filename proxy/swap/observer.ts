// Looks at the start of a body that passes unchanged, so that the audit can say which placeholders were in it.
import type { MissRecord } from '../../model/audit.ts';
import { OBSERVED_BODY_BYTES_MAX } from '../../model/limits.ts';
import type { RawHeaders } from '../exchange.ts';
import { codingOf } from './content-coding.ts';
import { createDecoder, type Decoder } from './decoder.ts';
import type { PlanEntry, SwapPlan } from './plan.ts';
import { SwapTally } from './tally.ts';

export interface BodyObserver {
  /** Doesn't keep or change the chunk. */
  push(chunk: Buffer): void;
  /** What was seen until now. */
  misses(): readonly MissRecord[];
}

/** Finds placeholders in what may be cut anywhere. */
function createFinder(plan: SwapPlan, tally: SwapTally): (chunk: Buffer) => void {
  let carry = Buffer.alloc(0);
  return (chunk) => {
    const bytes = carry.length === 0 ? chunk : Buffer.concat([carry, chunk]);
    let searched = 0;
    let match = plan.scanner.find(bytes, 0);
    while (match !== null) {
      const entry = plan.entries[match.index] as PlanEntry;
      // Where it would be swapped, the body is only observed because lengths in it would become wrong.
      tally.missed(entry, 'body', entry.body === 'swap' ? 'binary_framing' : entry.body);
      searched = match.end;
      match = plan.scanner.find(bytes, searched);
    }
    carry = Buffer.from(bytes.subarray(plan.scanner.heldFrom(bytes, searched)));
  };
}

/**
 * Observes the first MiB of a body, after decoding where that is possible. Decoding happens beside the body's way and
 * never slows it: a body that comes faster than it is decoded is observed up to there.
 */
export function createBodyObserver(plan: SwapPlan, headers: RawHeaders): BodyObserver {
  const tally = new SwapTally();
  const find = createFinder(plan, tally);
  const coding = codingOf(headers);
  let room = OBSERVED_BODY_BYTES_MAX;
  const observe = (chunk: Buffer): void => {
    if (room > 0) find(chunk.subarray(0, room));
    room -= chunk.length;
  };
  if (coding === 'unsupported') return { push: () => undefined, misses: () => tally.misses() };
  if (coding === null) return { push: observe, misses: () => tally.misses() };
  const decoder: Decoder = createDecoder(coding);
  decoder.on('data', observe);
  // Not ours to judge: the body goes on as it is.
  decoder.on('error', () => undefined);
  return {
    push(chunk) {
      if (room > 0 && decoder.writable && !decoder.writableNeedDrain) decoder.write(Buffer.from(chunk));
      else decoder.destroy();
    },
    misses: () => tally.misses(),
  };
}
