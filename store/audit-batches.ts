// Writes batches of audit rows, each in one transaction, and removes old ones in small steps.
import { AUDIT_PRUNE_EVENTS_MAX } from '../model/limits.ts';
import type { AuditEntry } from '../model/audit.ts';
import { credentialIdsOf, ROW_VALUES, type AuditBatch } from './audit-rows.ts';
import { databaseBytes, type Database } from './database.ts';

/** What stays: entries from `createdAtGte` on, as long as the file's pages in use fit into `bytesMax`. */
export interface Retention {
  /** Milliseconds since the epoch. */
  readonly createdAtGte: number;
  readonly bytesMax: number;
}

export interface AuditBatches {
  /** Stores the rows in one transaction; rows that are there already are left alone, so that a batch can be repeated. */
  store(rows: AuditBatch): void;
  /** Removes at most a few hundred of the oldest entries; returns how many. */
  pruneStep(retention: Retention): number;
}

/** Pages that are given back to the file system per step. */
const VACUUM_PAGES = 256;

function idsIn(joined: string): readonly string[] {
  if (joined === '') return [];
  return joined.includes(' ') ? joined.split(' ') : [joined];
}

/** Credentials of an entry that is there; null when it can't be read any more. */
function idsOfEntry(text: string): readonly string[] | null {
  try {
    const entry = JSON.parse(text) as AuditEntry;
    return entry.kind === 'audit_event' ? idsIn(credentialIdsOf(entry)) : [];
  } catch {
    return null;
  }
}

type EntryValues = [string, number, string | null, string | null, string | null, string];

interface OldRow {
  readonly sequence: number;
  readonly created_at: number;
  readonly entry: string;
}

export function createAuditBatches(database: Database): AuditBatches {
  const insert = database.prepare<EntryValues>(
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
  const selectOldest = database.prepare<[number], OldRow>(
    'SELECT sequence, created_at, entry FROM audit_entries ORDER BY sequence LIMIT ?',
  );
  const removeEntries = database.prepare<[number]>('DELETE FROM audit_entries WHERE sequence <= ?');
  const removeCredential = database.prepare<[string, number]>(
    'DELETE FROM audit_credentials WHERE credential_id = ? AND sequence = ?',
  );
  const removeCredentials = database.prepare<[number]>('DELETE FROM audit_credentials WHERE sequence <= ?');

  const store = database.transaction((rows: AuditBatch) => {
    const uses = new Map<string, number>();
    for (let index = 0; index < rows.length; index += ROW_VALUES) {
      const values = rows.slice(index, index + ROW_VALUES) as [...EntryValues, string, string];
      const [id, createdAt, sessionId, host, outcome, entry, credentialIds, usedIds] = values;
      for (const used of idsIn(usedIds)) uses.set(used, Math.max(uses.get(used) ?? 0, createdAt));
      const result = insert.run(id, createdAt, sessionId, host, outcome, entry);
      if (result.changes === 0) continue;
      for (const spoken of idsIn(credentialIds)) insertCredential.run(spoken, result.lastInsertRowid);
    }
    for (const [id, usedAt] of uses) noteUse.run(id, usedAt);
  });

  // The entries themselves tell which credentials they speak of: an index for that would cost every row a write.
  function unlink(rows: readonly OldRow[], last: number): void {
    for (const { sequence, entry } of rows) {
      const ids = idsOfEntry(entry);
      if (ids === null) {
        removeCredentials.run(last);
        return;
      }
      for (const id of ids) removeCredential.run(id, sequence);
    }
  }

  const prune = database.transaction((retention: Retention): number => {
    const oldest = selectOldest.all(AUDIT_PRUNE_EVENTS_MAX);
    const isTooLarge = databaseBytes(database) > retention.bytesMax;
    const kept = isTooLarge ? -1 : oldest.findIndex((row) => row.created_at >= retention.createdAtGte);
    const removed = kept < 0 ? oldest : oldest.slice(0, kept);
    const last = removed.at(-1);
    if (last === undefined) return 0;
    unlink(removed, last.sequence);
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
