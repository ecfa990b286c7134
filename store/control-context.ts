// What the control plane's stores share: the writing connection, the clock, the keys, and one way to run a transaction.
import { KeyveilError } from '../model/errors.ts';
import type { Clock } from '../model/ports.ts';
import { toStoreError, type Database } from './database.ts';
import type { KeyRing } from './key-ring.ts';

export interface ControlContext {
  readonly database: Database;
  readonly clock: Clock;
  readonly keys: KeyRing;
  /** Cuts the write-ahead log after sealed bytes were overwritten. */
  purge(): void;
  /** When a credential's value was last put into a request; null when never. */
  lastUsedAt(credentialId: string): number | null;
}

/** Runs the work in one transaction that takes the write lock first; rejects with a KeyveilError and keeps nothing on failure. */
export async function write<Result>(context: ControlContext, work: () => Result): Promise<Result> {
  try {
    return context.database.transaction(work).immediate();
  } catch (error) {
    throw toStoreError(error);
  }
}

/** Runs a read in one transaction, so that all its rows are of one moment. */
export async function read<Result>(context: ControlContext, work: () => Result): Promise<Result> {
  try {
    return context.database.transaction(work).deferred();
  } catch (error) {
    throw toStoreError(error);
  }
}

/** `not_found` for an object of this kind. */
export function notFound(
  kind: 'vault' | 'credential' | 'environment' | 'session' | 'admin token',
  param?: string,
): KeyveilError {
  return new KeyveilError('not_found', `There is no such ${kind}.`, param === undefined ? {} : { param });
}

/** Throws `archived` for an object that was archived. */
export function requireActive(kind: string, row: { readonly archived_at: number | null }): void {
  if (row.archived_at === null) return;
  throw new KeyveilError('archived', `The ${kind} is archived and can't be changed. Create a new one.`);
}
