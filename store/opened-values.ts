// Values that were opened, kept while the row in the database is the very one that they were opened from.
import { OPENED_VALUE_UNUSED_MS } from '../model/limits.ts';
import type { Clock } from '../model/ports.ts';
import type { Secret } from '../model/secret.ts';
import { openRow, type BoundColumns, type CredentialRow } from './credential-rows.ts';
import type { KeyRing } from './key-ring.ts';
import { isSameRow } from './policy-rows.ts';

/** The columns that decide whether an opened value still holds. */
type SealedRow = BoundColumns & Pick<CredentialRow, 'sealing_key' | 'sealed_value'>;

interface Opened {
  row: SealedRow;
  readonly secret: Secret;
  usedAt: number;
}

/**
 * Opened values by credential. They are dropped rather than overwritten, since a request in flight may be sending one;
 * `close` overwrites them, when no request is left.
 */
export interface OpenedValues {
  /** Opens a row's value or gives the one at hand; throws `credential_unreadable`. */
  open(row: SealedRow): Secret;
  drop(credentialId: string): void;
  /** Drops what was not used for a minute, and what the predicate no longer holds for. */
  sweep(isCurrent: (row: SealedRow) => boolean): void;
  close(): void;
}

export function createOpenedValues(keys: KeyRing, clock: Clock): OpenedValues {
  const byId = new Map<string, Opened>();

  return {
    open(row) {
      const now = clock.now();
      const known = byId.get(row.id);
      if (known !== undefined && isSameRow(known.row, row)) {
        known.usedAt = now;
        // The next call with this row is then answered by identity.
        known.row = row;
        return known.secret;
      }
      byId.delete(row.id);
      const secret = openRow(keys, row);
      byId.set(row.id, { row, secret, usedAt: now });
      return secret;
    },
    drop(credentialId) {
      byId.delete(credentialId);
    },
    sweep(isCurrent) {
      const now = clock.now();
      for (const [id, opened] of byId) {
        // A clock that was set back must not keep a value for longer.
        const unusedMs = Math.abs(now - opened.usedAt);
        if (unusedMs >= OPENED_VALUE_UNUSED_MS || !isCurrent(opened.row)) byId.delete(id);
      }
    },
    close() {
      for (const opened of byId.values()) opened.secret.wipe();
      byId.clear();
    },
  };
}
