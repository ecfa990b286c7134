// A clock that moves only when a test moves it.
import type { Clock } from '../../model/ports.ts';

export interface ManualClock extends Clock {
  /** Milliseconds; negative sets the clock back. */
  advance(ms: number): void;
}

export function createManualClock(start: number): ManualClock {
  let now = start;
  return {
    now: () => now,
    advance: (ms) => {
      now += ms;
    },
  };
}
