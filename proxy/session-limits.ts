// What one session may have under way at once, and how many requests it may begin per second.
import { KeyveilError } from '../model/errors.ts';
import type { Clock } from '../model/ports.ts';

export interface SessionLimitsOptions {
  readonly clock: Clock;
  readonly requestsInFlightMax: number;
  /** Null for no limit. */
  readonly requestsPerSecondMax: number | null;
}

interface Usage {
  inFlight: number;
  /** Requests that may begin now; refilled with time up to one second's worth. */
  tokens: number;
  refilledAt: number;
}

/** A token bucket and a count for each session that has a request under way, or had one lately. */
export class SessionLimits {
  readonly #options: SessionLimitsOptions;
  readonly #usage = new Map<string, Usage>();

  constructor(options: SessionLimitsOptions) {
    this.#options = options;
  }

  /** Counts a request in; throws `too_many_requests`. Whoever was let in calls `leave` once. */
  enter(sessionId: string): void {
    const usage = this.#usageOf(sessionId);
    const { requestsInFlightMax, requestsPerSecondMax } = this.#options;
    if (usage.inFlight >= requestsInFlightMax) {
      throw new KeyveilError(
        'too_many_requests',
        `The session has ${requestsInFlightMax} requests under way (KEYVEIL_SESSION_REQUESTS_MAX). Wait for one to end.`,
      );
    }
    if (requestsPerSecondMax !== null) this.#takeToken(usage, requestsPerSecondMax);
    usage.inFlight += 1;
  }

  leave(sessionId: string): void {
    const usage = this.#usage.get(sessionId);
    // What is not needed any more is swept out with others: a Map that entries come to and go from holds old ones back.
    if (usage !== undefined) usage.inFlight -= 1;
  }

  // Without a rate nothing has to be remembered; with one, a full bucket is what a new session gets too.
  #isForgettable(usage: Usage): boolean {
    const { requestsPerSecondMax, clock } = this.#options;
    return requestsPerSecondMax === null || Math.abs(clock.now() - usage.refilledAt) >= 1000;
  }

  #usageOf(sessionId: string): Usage {
    let usage = this.#usage.get(sessionId);
    if (usage === undefined) {
      const { requestsPerSecondMax, clock } = this.#options;
      usage = { inFlight: 0, tokens: requestsPerSecondMax ?? 0, refilledAt: clock.now() };
      // Before it goes in: it looks forgettable itself until its request is counted.
      if (this.#usage.size % SWEEP_EVERY === SWEEP_EVERY - 1) this.#sweep();
      this.#usage.set(sessionId, usage);
    }
    return usage;
  }

  #sweep(): void {
    for (const [id, usage] of this.#usage) {
      if (usage.inFlight === 0 && this.#isForgettable(usage)) this.#usage.delete(id);
    }
  }

  #takeToken(usage: Usage, perSecond: number): void {
    const now = this.#options.clock.now();
    // A clock that was set back refills nothing, and starts anew from there.
    const elapsedMs = Math.max(0, now - usage.refilledAt);
    usage.tokens = Math.min(perSecond, usage.tokens + (elapsedMs * perSecond) / 1000);
    usage.refilledAt = now;
    if (usage.tokens < 1) {
      throw new KeyveilError(
        'too_many_requests',
        `The session may begin ${perSecond} requests per second (KEYVEIL_SESSION_REQUESTS_PER_SECOND). Try again in a moment.`,
      );
    }
    usage.tokens -= 1;
  }
}

const SWEEP_EVERY = 1024;
