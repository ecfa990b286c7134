// The veils of a connection that outlives a rotation: what was sent under an earlier value may still be echoed.
import { VEILS_PER_CONNECTION_MAX } from '../model/limits.ts';
import type { Rules } from './request-head.ts';
import type { Veil } from './veil/veil.ts';

/** The last few veils that were in force on one connection. */
export class RecentVeils {
  /** By the versions of the values; the newest last. */
  readonly #veils = new Map<string, Veil>();

  constructor(rules: Rules) {
    this.note(rules);
  }

  /** Takes notice of the rules that a message is sent or received under. */
  note({ policy, veil }: Rules): void {
    if (veil === null) return;
    const key = policy.credentials.map(({ id, secretVersion }) => `${id}/${secretVersion}`).join();
    this.#veils.delete(key);
    this.#veils.set(key, veil);
    if (this.#veils.size <= VEILS_PER_CONNECTION_MAX) return;
    for (const oldest of this.#veils.keys()) return void this.#veils.delete(oldest);
  }

  /** The newest first. */
  list(): readonly Veil[] {
    return [...this.#veils.values()].reverse();
  }
}
