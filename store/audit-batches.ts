// Writes batches of audit rows, each in one transaction, and removes old ones in small steps.
import { AUDIT_PRUNE_EVENTS_MAX } from '../model/limits.ts';
import type { AuditRow } from './audit-rows.ts';
import { databaseBytes, type Database } from './database.ts';

/** What stays: entries from `createdAtGte` on, as long as the file's pages in use fit into `bytesMax`. */
export interface Retention {
  /** Milliseconds since the epoch. */
  readonly createdAtGte: number;
  readonly bytesMax: number;
}

export interface AuditBatches {
  /** Stores the rows in one transaction; rows that are there already are left alone, so that a batch can be repeated. */
  store(rows: readonly AuditRow[]): void;
  /** Removes at most a few hundred of the oldest entries; returns how many. */
  pruneStep(retention: Retention): number;
}

/** Pages that are given back to the file system per step. */
const VACUUM_PAGES = 256;

function latestUses(rows: readonly AuditRow[]): ReadonlyMap<string, number> {
  const uses = new Map<string, number>();
  for (const row of rows) {
    for (const id of row.usedIds) uses.set(id, Math.max(uses.get(id) ?? 0, row.createdAt));
  }
  return uses;
}

export function createAuditBatches(database: Database): AuditBatches {
  const insert = database.prepare<[string, number, string | null, string | null, string | null, string]>(
    `INSERT INTO audit_entries (id, created_at, session_id, host, outcome, entry) VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT (id) DO NOTHING`,
  );
  const insertCredential = database.prepare<[string, number | bigint]>(
    'INSERT INTO audit_credentials (credential_id, sequence) VALUES (?, ?)',
  );
  const noteUse = database.prepare<[string, number]>(
    `INSERT INTO credential_uses (credential_id, last_used_at) VALUES (?, ?)
     ON CONFLICT (credential_id) DO UPDATE SET last_used_at = max(last_used_at, excluded.last_used_at)`,
  );
  const selectOldest = database.prepare<[number], { sequence: number; created_at: number }>(
    'SELECT sequence, created_at FROM audit_entries ORDER BY sequence LIMIT ?',
  );
  const removeEntries = database.prepare<[number]>('DELETE FROM audit_entries WHERE sequence <= ?');
  const removeCredentials = database.prepare<[number]>('DELETE FROM audit_credentials WHERE sequence <= ?');

  const store = database.transaction((rows: readonly AuditRow[]) => {
    for (const row of rows) {
      const result = insert.run(row.id, row.createdAt, row.sessionId, row.host, row.outcome, row.entry);
      if (result.changes === 0) continue;
      for (const id of row.credentialIds) insertCredential.run(id, result.lastInsertRowid);
    }
    for (const [id, usedAt] of latestUses(rows)) noteUse.run(id, usedAt);
  });

  const prune = database.transaction((retention: Retention): number => {
    const oldest = selectOldest.all(AUDIT_PRUNE_EVENTS_MAX);
    const isTooLarge = databaseBytes(database) > retention.bytesMax;
    const kept = isTooLarge ? -1 : oldest.findIndex((row) => row.created_at >= retention.createdAtGte);
    const last = oldest[(kept < 0 ? oldest.length : kept) - 1];
    if (last === undefined) return 0;
    removeCredentials.run(last.sequence);
    return removeEntries.run(last.sequence).changes;
  });

  return {
    store: (rows) => {
      store.immediate(rows);
    },
    pruneStep(retention) {
      const removed = prune.immediate(retention);
      if (removed > 0) database.pragma(`incremental_vacuum(${VACUUM_PAGES})`);
      return removed;
    },
  };
}
