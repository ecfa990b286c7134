// Reads of the audit log: filters, pages, and what a live stream has not seen yet.
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { AuditQuery, StoredAuditEntry } from '../model/audit.ts';
import { KeyveilError } from '../model/errors.ts';
import type { Page } from '../model/vault.ts';
import { fromRow } from './audit-rows.ts';
import { toStoreError, type Database } from './database.ts';

type Filters = Omit<AuditQuery, 'after' | 'limit'>;

interface EntryRow {
  readonly sequence: number;
  readonly entry: string;
}

/** Rows that are looked at in one go where no index leads to the answer: a few milliseconds. */
const SCAN_ROWS = 5000;

const CONDITIONS: readonly { readonly name: keyof Filters; readonly sql: string }[] = [
  { name: 'sessionId', sql: 'e.session_id = @sessionId' },
  { name: 'host', sql: 'e.host = @host' },
  { name: 'outcome', sql: 'e.outcome = @outcome' },
  // The unary plus keeps SQLite from walking the index of times, whose order is not that of the answer.
  { name: 'createdAtGte', sql: '+e.created_at >= @createdAtGte' },
  { name: 'createdAtLt', sql: '+e.created_at < @createdAtLt' },
];

function buildSelect(filters: Filters, order: 'ASC' | 'DESC'): string {
  const byCredential = filters.credentialId !== undefined;
  const key = byCredential ? 'c.sequence' : 'e.sequence';
  const conditions = CONDITIONS.filter(({ name }) => filters[name] !== undefined).map(({ sql }) => sql);
  if (byCredential) conditions.push('c.credential_id = @credentialId');
  conditions.push(`${key} > @above`, `${key} < @below`);
  const from = byCredential
    ? 'audit_credentials c CROSS JOIN audit_entries e ON e.sequence = c.sequence'
    : 'audit_entries e';
  return `SELECT e.sequence, e.entry FROM ${from} WHERE ${conditions.join(' AND ')} ORDER BY ${key} ${order} LIMIT @rows`;
}

function parseAfter(after: string | null): number {
  if (after === null) return Number.MAX_SAFE_INTEGER;
  if (/^[1-9][0-9]{0,14}$/.test(after)) return Number(after);
  throw new KeyveilError('invalid_page', 'The page is none that this list has given. Leave it out to begin anew.', {
    param: 'page',
  });
}

/** Whether an index leads straight to the rows. */
function isIndexed(filters: Filters): boolean {
  if (filters.sessionId !== undefined || filters.host !== undefined || filters.credentialId !== undefined) return true;
  return filters.createdAtGte === undefined && filters.createdAtLt === undefined;
}

export interface AuditQueries {
  list(query: AuditQuery): Promise<Page<StoredAuditEntry>>;
  listSince(sequence: number, query: Omit<AuditQuery, 'after'>): Promise<readonly StoredAuditEntry[]>;
  lastSequence(): Promise<number>;
  /** Null when the credential was never used. */
  lastUsedAt(credentialId: string): number | null;
}

/** Queries on a read-only connection. */
export function createAuditQueries(database: Database): AuditQueries {
  const selectLast = database.prepare<[], number | null>('SELECT max(sequence) FROM audit_entries').pluck();
  const selectUse = database
    .prepare<[string], number>('SELECT last_used_at FROM credential_uses WHERE credential_id = ?')
    .pluck();
  const hasMore = database
    .prepare<[object], number>(
      'SELECT EXISTS (SELECT 1 FROM audit_entries WHERE created_at >= @from AND created_at < @to AND sequence < @below)',
    )
    .pluck();

  function guard<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      throw toStoreError(error);
    }
  }

  // The loop gets its turn between windows, so that a search through millions of rows holds up nobody.
  async function scan(query: AuditQuery, sql: string, rows: number): Promise<EntryRow[]> {
    const statement = guard(() => database.prepare<[object], EntryRow>(sql));
    const range = { from: query.createdAtGte ?? 0, to: query.createdAtLt ?? Number.MAX_SAFE_INTEGER };
    const found: EntryRow[] = [];
    let below = Math.min(parseAfter(query.after), (guard(() => selectLast.get()) ?? 0) + 1);
    while (found.length < rows && guard(() => hasMore.get({ ...range, below })) === 1) {
      const above = Math.max(below - SCAN_ROWS - 1, -1);
      const window = { ...query, above, below, rows: rows - found.length };
      found.push(...guard(() => statement.all(window)));
      below = above + 1;
      await nextTurn();
    }
    return found;
  }

  return {
    async list(query) {
      const rows = query.limit + 1;
      const below = parseAfter(query.after);
      const sql = buildSelect(query, 'DESC');
      const found = isIndexed(query)
        ? guard(() => database.prepare<[object], EntryRow>(sql).all({ ...query, above: -1, below, rows }))
        : await scan(query, sql, rows);
      const items = found.slice(0, query.limit).map(fromRow);
      const last = items.at(-1);
      return { items, next: last === undefined || found.length <= query.limit ? null : String(last.sequence) };
    },

    async listSince(sequence, query) {
      const bounds = { above: sequence, below: Number.MAX_SAFE_INTEGER, rows: query.limit };
      return guard(() =>
        database
          .prepare<[object], EntryRow>(buildSelect(query, 'ASC'))
          .all({ ...query, ...bounds })
          .map(fromRow),
      );
    },

    lastSequence: async () => guard(() => selectLast.get()) ?? 0,
    lastUsedAt: (credentialId) => guard(() => selectUse.get(credentialId)) ?? null,
  };
}
