// Audit entries as rows: bounded texts, and beside the entry only the columns that lists filter by.
import type { AdminEvent, AuditEntry, AuditEvent, StoredAuditEntry } from '../model/audit.ts';
import { AUDIT_TEXT_CHARACTERS_MAX } from '../model/limits.ts';

/** What the writer thread gets: plain values only, since they are copied between threads. */
export interface AuditRow {
  readonly id: string;
  readonly createdAt: number;
  readonly sessionId: string | null;
  readonly host: string | null;
  readonly outcome: string | null;
  /** JSON of the entry. */
  readonly entry: string;
  /** Credentials that the entry speaks of, without repeats. */
  readonly credentialIds: readonly string[];
  /** Credentials whose value was put into the request. */
  readonly usedIds: readonly string[];
}

const NONE: readonly string[] = [];

function clip(text: string): string {
  return text.length <= AUDIT_TEXT_CHARACTERS_MAX ? text : `${text.slice(0, AUDIT_TEXT_CHARACTERS_MAX - 1)}…`;
}

// Most requests touch no credential: they share one empty list.
function idsOf(lists: readonly (readonly { readonly credentialId: string }[])[]): readonly string[] {
  if (lists.every((list) => list.length === 0)) return NONE;
  return [...new Set(lists.flatMap((list) => list.map(({ credentialId }) => credentialId)))];
}

/** The row of a request. */
export function toAuditRow(event: AuditEvent): AuditRow {
  const createdAt = Math.trunc(event.createdAt);
  const host = clip(event.host);
  const entry: AuditEntry = {
    kind: 'audit_event',
    ...event,
    createdAt,
    host,
    path: clip(event.path),
    method: clip(event.method),
  };
  return {
    id: event.id,
    createdAt,
    sessionId: event.sessionId,
    host,
    outcome: event.outcome,
    entry: JSON.stringify(entry),
    credentialIds: idsOf([event.swaps, event.misses, event.veils]),
    usedIds: idsOf([event.swaps]),
  };
}

/** The row of a control-plane write. */
export function toAdminRow(event: AdminEvent): AuditRow {
  const createdAt = Math.trunc(event.createdAt);
  const entry: AuditEntry = { kind: 'admin_event', ...event, createdAt };
  return {
    id: event.id,
    createdAt,
    sessionId: null,
    host: null,
    outcome: null,
    entry: JSON.stringify(entry),
    credentialIds: NONE,
    usedIds: NONE,
  };
}

/** Reads a row back. */
export function fromRow(row: { readonly sequence: number; readonly entry: string }): StoredAuditEntry {
  return { sequence: row.sequence, entry: JSON.parse(row.entry) as AuditEntry };
}
