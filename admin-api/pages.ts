// Pages of lists: from query parameters to the store's query, and back to the wire.
import { KeyveilError } from '../model/errors.ts';
import type { Page, PageQuery } from '../model/vault.ts';

export interface ListInput {
  readonly limit: number;
  readonly page?: string | undefined;
  readonly include_archived?: boolean | undefined;
}

/** The store's cursors are opaque already, and it refuses those that are not its own with `invalid_page`. */
export function toPageQuery(input: ListInput): PageQuery {
  return { limit: input.limit, after: input.page ?? null, includeArchived: input.include_archived ?? false };
}

/** The wire form of a page. */
export function toPage<Item, Wire>(
  page: Page<Item>,
  toWire: (item: Item) => Wire,
): { data: Wire[]; next_page: string | null } {
  return { data: page.items.map(toWire), next_page: page.next };
}

const AUDIT_PREFIX = 'audit_events:';

/** The audit log's cursors are sequence numbers; on the wire they are as opaque as the others. */
export function encodeAuditPage(after: string | null): string | null {
  return after === null ? null : Buffer.from(AUDIT_PREFIX + after, 'latin1').toString('base64url');
}

/** Throws `invalid_page`. */
export function decodeAuditPage(page: string | undefined): string | null {
  if (page === undefined) return null;
  const after = Buffer.from(page, 'base64url').toString('latin1').slice(AUDIT_PREFIX.length);
  if (/^[0-9]{1,16}$/.test(after) && encodeAuditPage(after) === page) return after;
  throw new KeyveilError('invalid_page', 'page must be the next_page of an earlier answer of this list.', {
    param: 'page',
  });
}
