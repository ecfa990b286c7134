// Counts what was swapped and what was missed, one record for each credential and place.
import type { MissLocation, MissReason, MissRecord, SwapLocation, SwapRecord } from '../../model/audit.ts';
import type { PlanEntry } from './plan.ts';

type Counted = { -readonly [Key in keyof SwapRecord]: SwapRecord[Key] };

/** Collects the records of one request, or of one WebSocket connection. */
export class SwapTally {
  readonly #swaps: Counted[] = [];
  readonly #misses: MissRecord[] = [];

  /** Notes that a placeholder was swapped; `headerName` as the client wrote it. */
  swapped(entry: PlanEntry, location: SwapLocation, headerName?: string): void {
    const { credentialId, secretName, secretVersion } = entry;
    for (const record of this.#swaps) {
      if (
        record.credentialId === credentialId &&
        record.secretVersion === secretVersion &&
        record.location === location &&
        record.headerName === headerName
      ) {
        record.count += 1;
        return;
      }
    }
    this.#swaps.push(
      headerName === undefined
        ? { credentialId, secretName, secretVersion, location, count: 1 }
        : { credentialId, secretName, secretVersion, location, headerName, count: 1 },
    );
  }

  /** Notes that a placeholder was seen and left; once for each place and reason. */
  missed(entry: PlanEntry, location: MissLocation, reason: MissReason): void {
    const { credentialId, secretName } = entry;
    const isKnown = this.#misses.some(
      (miss) => miss.credentialId === credentialId && miss.location === location && miss.reason === reason,
    );
    if (!isKnown) this.#misses.push({ credentialId, secretName, location, reason });
  }

  swaps(): readonly SwapRecord[] {
    return this.#swaps;
  }

  misses(): readonly MissRecord[] {
    return this.#misses;
  }
}
