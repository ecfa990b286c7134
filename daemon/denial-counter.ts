// Counts the denials of each session, and suspends a session that has too many.
import { DENIAL_TOTAL_FACTOR, DENIAL_WINDOW_MS } from '../model/limits.ts';
import type { Clock, Logger } from '../model/ports.ts';
import type { DenialSink } from '../proxy/denials.ts';

export interface DenialCounterOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The session's own limit, else the daemon's; null for none. */
  readonly limitOf: (sessionId: string) => Promise<number | null>;
  readonly suspend: (sessionId: string, reason: string) => Promise<void>;
}

interface Count {
  consecutive: number;
  /** Times of the denials in the window, oldest first; never more than the total limit needs. */
  times: number[];
  isSuspending: boolean;
}

// Sessions without a denial for a whole window are forgotten.
const SESSIONS_MAX = 10_000;

/** Suspends after `limit` denials in a row, or `DENIAL_TOTAL_FACTOR × limit` of them within the window. */
export class DenialCounter implements DenialSink {
  readonly #options: DenialCounterOptions;
  readonly #counts = new Map<string, Count>();

  constructor(options: DenialCounterOptions) {
    this.#options = options;
  }

  served(sessionId: string): void {
    if (this.#counts.size === 0) return;
    const count = this.#counts.get(sessionId);
    if (count !== undefined) count.consecutive = 0;
  }

  denied(sessionId: string): void {
    const count = this.#counts.get(sessionId) ?? { consecutive: 0, times: [], isSuspending: false };
    // The oldest entry goes first: a Map keeps the order of insertion.
    this.#counts.delete(sessionId);
    this.#counts.set(sessionId, count);
    if (this.#counts.size > SESSIONS_MAX) this.#counts.delete(this.#counts.keys().next().value as string);
    const now = this.#options.clock.now();
    count.consecutive += 1;
    count.times.push(now);
    // Those ahead of a clock that was set back are over, too.
    const isOver = (time: number): boolean => time <= now - DENIAL_WINDOW_MS || time > now;
    while (isOver(count.times[0] as number)) count.times.shift();
    if (!count.isSuspending) void this.#decide(sessionId, count);
  }

  async #decide(sessionId: string, count: Count): Promise<void> {
    const { limitOf, suspend, logger } = this.#options;
    count.isSuspending = true;
    try {
      const limit = await limitOf(sessionId);
      if (limit === null) return;
      const isOver = count.consecutive >= limit || count.times.length >= DENIAL_TOTAL_FACTOR * limit;
      if (!isOver) return;
      await suspend(sessionId, `${count.consecutive} refusals in a row, ${count.times.length} within the window`);
      this.#counts.delete(sessionId);
      logger.warn({ sessionId, count: count.times.length }, 'A session was suspended after too many refusals.');
    } catch (error) {
      // Archived or deleted meanwhile, or the store can't be written: what comes next is refused by policy anyway.
      logger.warn({ sessionId, error }, 'A session could not be suspended.');
    } finally {
      count.isSuspending = false;
    }
  }
}
