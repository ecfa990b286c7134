// One deadline for everything that a stopping daemon waits for: whoever holds a connection open longer loses it.
import { performance } from 'node:perf_hooks';

/** What can be closed gently, and whose open connections can be cut. */
interface ClosableServer {
  close(): Promise<unknown>;
  readonly server: { closeAllConnections(): void };
}

// Answers that are on their way when the deadline is over still get a moment.
const GRACE_MS_MIN = 250;

/** Begins when it is first asked for, which is when the daemon begins to stop. */
export class StopDeadline {
  readonly #graceMs: number;
  #endsAt: number | null = null;

  constructor(graceMs: number) {
    this.#graceMs = graceMs;
  }

  /** Milliseconds until it is over. */
  remainingMs(): number {
    this.#endsAt ??= performance.now() + this.#graceMs;
    return Math.max(GRACE_MS_MIN, this.#endsAt - performance.now());
  }

  /** Closes a server once its open requests have ended, or at the deadline. */
  async closeServer(closable: ClosableServer): Promise<void> {
    const timer = setTimeout(() => closable.server.closeAllConnections(), this.remainingMs());
    try {
      await closable.close();
    } finally {
      clearTimeout(timer);
    }
  }
}
