// The veils of a connection that outlives rotations: what was sent under an earlier value may still be echoed.
import { KeyveilError } from '../model/errors.ts';
import { VEILS_PER_CONNECTION_MAX } from '../model/limits.ts';
import type { Rules } from './request-head.ts';
import type { Veil } from './veil/veil.ts';

/** A value: the credential's id and the version. */
export function versionKey(credentialId: string, secretVersion: number): string {
  return `${credentialId}/${secretVersion}`;
}

/** A veil and the values that are looked for in it. */
interface KnownVeil {
  readonly veil: Veil;
  readonly versions: readonly string[];
}

/**
 * The veils for every value that was in force on one connection. A veil goes once others look for all of its values, so
 * that rotations of what does not cover the host add nothing. Beyond `VEILS_PER_CONNECTION_MAX` those go whose values were
 * not sent on the connection; one that was sent never does.
 */
export class RecentVeils {
  readonly #sent: () => ReadonlySet<string>;
  /** The newest first. */
  #known: readonly KnownVeil[] = [];
  #list: readonly Veil[] = [];

  /** `sent` tells the values that were or may have been sent, as `versionKey` writes them. */
  constructor(rules: Rules, sent: () => ReadonlySet<string>) {
    this.#sent = sent;
    this.note(rules);
  }

  /**
   * Takes notice of the rules that a message is sent or received under. Throws `overloaded` when more values were sent than
   * can be looked for: the connection must be closed.
   */
  note({ policy, veil }: Rules): void {
    if (veil === null || veil === this.#known[0]?.veil) return;
    const inVeil = new Set(veil.credentialIds);
    const versions = policy.credentials
      .filter(({ id }) => inVeil.has(id))
      .map(({ id, secretVersion }) => versionKey(id, secretVersion));
    this.#keep(neededOf([{ veil, versions }, ...this.#known]));
    if (this.#known.length <= VEILS_PER_CONNECTION_MAX) return;
    this.#keep(neededOf(this.#known, this.#sent()));
    if (this.#known.length <= VEILS_PER_CONNECTION_MAX) return;
    throw new KeyveilError('overloaded', 'Too many values were sent over this WebSocket. Open it again.');
  }

  /** The newest first; the same list while nothing has changed. */
  list(): readonly Veil[] {
    return this.#list;
  }

  #keep(known: readonly KnownVeil[]): void {
    this.#known = known;
    this.#list = known.map(({ veil }) => veil);
  }
}

/** The newest, and of the others those that look for a value (one of `wanted`, if given) that no newer one does. */
function neededOf(known: readonly KnownVeil[], wanted?: ReadonlySet<string>): KnownVeil[] {
  const found = new Set<string>();
  return known.filter(({ versions }, index) => {
    const isNeeded = versions.some((version) => !found.has(version) && (wanted === undefined || wanted.has(version)));
    for (const version of versions) found.add(version);
    return isNeeded || index === 0;
  });
}
