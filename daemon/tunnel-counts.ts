// Tunnels of all workers, counted in the primary, so that limits hold for the daemon and not for each process.
import { TUNNELS_MAX, TUNNELS_PER_SESSION_MAX } from '../model/limits.ts';

export interface TunnelLimits {
  readonly tunnelsMax: number;
  readonly tunnelsPerSessionMax: number;
}

/**
 * Counts by session and by worker; what a worker that died had open is given back. A worker's messages may be read after
 * its death was told (`exit` of child_process does not wait for the channel), so only one that is here is counted for.
 */
export class TunnelCounts {
  readonly #limits: TunnelLimits;
  readonly #bySession = new Map<string, number>();
  readonly #byWorker = new Map<number, Map<string, number>>();
  #count = 0;

  constructor(limits: TunnelLimits = { tunnelsMax: TUNNELS_MAX, tunnelsPerSessionMax: TUNNELS_PER_SESSION_MAX }) {
    this.#limits = limits;
  }

  get count(): number {
    return this.#count;
  }

  /** A worker that will open tunnels; to be called once, before anything that it asks for. */
  join(worker: number): void {
    this.#byWorker.set(worker, new Map());
  }

  /** Counts one more tunnel; false at a limit, and for a worker that is not here. */
  enter(worker: number, sessionId: string): boolean {
    const own = this.#byWorker.get(worker);
    if (own === undefined) return false;
    const ofSession = this.#bySession.get(sessionId) ?? 0;
    if (this.#count >= this.#limits.tunnelsMax || ofSession >= this.#limits.tunnelsPerSessionMax) return false;
    this.#add(own, sessionId, 1);
    return true;
  }

  leave(worker: number, sessionId: string): void {
    const own = this.#byWorker.get(worker);
    if (own !== undefined && (own.get(sessionId) ?? 0) > 0) this.#add(own, sessionId, -1);
  }

  /** A worker is gone, and all its tunnels with it. */
  forget(worker: number): void {
    const own = this.#byWorker.get(worker) ?? new Map<string, number>();
    for (const [sessionId, count] of own) this.#add(own, sessionId, -count);
    this.#byWorker.delete(worker);
  }

  #add(own: Map<string, number>, sessionId: string, delta: number): void {
    addTo(own, sessionId, delta);
    addTo(this.#bySession, sessionId, delta);
    this.#count += delta;
  }
}

function addTo(counts: Map<string, number>, key: string, delta: number): void {
  const count = (counts.get(key) ?? 0) + delta;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
