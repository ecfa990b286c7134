// Keyset pages, newest first: a cursor holds a sequence number, so that pages neither skip nor repeat rows while others come and go.
import { KeyveilError } from '../model/errors.ts';
import type { Page, PageQuery } from '../model/vault.ts';
import type { Database } from './database.ts';

/** Every row of a listed table has one. */
export interface SequencedRow {
  readonly seq: number;
}

type ListedTable = 'vaults' | 'credentials' | 'environments' | 'sessions' | 'admin_tokens';

function encodeCursor(table: ListedTable, seq: number): string {
  return Buffer.from(`${table}:${seq}`, 'latin1').toString('base64url');
}

function decodeCursor(table: ListedTable, cursor: string): number {
  const [name, digits = ''] = Buffer.from(cursor, 'base64url').toString('latin1').split(':');
  if (name !== table || !/^[1-9][0-9]{0,15}$/.test(digits) || encodeCursor(table, Number(digits)) !== cursor) {
    throw new KeyveilError('invalid_page', 'The page is none that this list has given. Leave it out to begin anew.', {
      param: 'page',
    });
  }
  return Number(digits);
}

export interface PagerOptions {
  readonly table: ListedTable;
  /** False where rows are deleted, never archived. */
  readonly archivable: boolean;
  /** Lists rows of one vault only. */
  readonly byVault: boolean;
}

/** Reads pages of one table; the last argument is the vault's id where the table is listed by vault. */
export type Pager<Row> = (query: PageQuery, vaultId?: string) => Page<Row>;

export function createPager<Row extends SequencedRow>(database: Database, options: PagerOptions): Pager<Row> {
  const { table, archivable, byVault } = options;
  const prepare = (includeArchived: boolean) => {
    const conditions = ['seq < @before'];
    if (byVault) conditions.push('vault_id = @vaultId');
    if (archivable && !includeArchived) conditions.push('archived_at IS NULL');
    return database.prepare<[object], Row>(
      `SELECT * FROM ${table} WHERE ${conditions.join(' AND ')} ORDER BY seq DESC LIMIT @rows`,
    );
  };
  const all = prepare(true);
  const active = prepare(false);
  return (query, vaultId) => {
    const before = query.after === null ? Number.MAX_SAFE_INTEGER : decodeCursor(table, query.after);
    // One row more than asked for tells whether there is a next page.
    const rows = (query.includeArchived ? all : active).all({
      before,
      rows: query.limit + 1,
      ...(byVault ? { vaultId } : {}),
    });
    const items = rows.slice(0, query.limit);
    const last = items.at(-1);
    return { items, next: last === undefined || rows.length <= query.limit ? null : encodeCursor(table, last.seq) };
  };
}

/** Turns each row of a page into what the model knows. */
export function mapPage<Row, Item>(page: Page<Row>, map: (row: Row) => Item): Page<Item> {
  return { items: page.items.map(map), next: page.next };
}
