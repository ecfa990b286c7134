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

type Records = readonly { readonly credentialId: string }[];

// One credential in all is the rule, and none is common: both go without a set.
function idsOf(first: Records, ...others: readonly Records[]): readonly string[] {
  const records = others.every((list) => list.length === 0) ? first : [first, ...others].flat();
  if (records.length === 0) return NONE;
  const ids = records.map(({ credentialId }) => credentialId);
  return ids.length === 1 ? ids : [...new Set(ids)];
}

/** The row of a request. */
export function toAuditRow(event: AuditEvent): AuditRow {
  const createdAt = Math.trunc(event.createdAt);
  const host = clip(event.host);
  const { id, sessionId, scheme, port, httpVersion, status, outcome, reason } = event;
  const { durationMs, requestBytes, responseBytes, swaps, misses, veils } = event;
  // Field by field: this runs for every request, and copying with `...` takes several times as long.
  const entry: AuditEntry = {
    kind: 'audit_event',
    id,
    createdAt,
    sessionId,
    method: clip(event.method),
    scheme,
    host,
    port,
    path: clip(event.path),
    httpVersion,
    status,
    outcome,
    reason,
    durationMs,
    requestBytes,
    responseBytes,
    swaps,
    misses,
    veils,
  };
  return {
    id,
    createdAt,
    sessionId,
    host,
    outcome,
    entry: JSON.stringify(event.repeated === undefined ? entry : { ...entry, repeated: event.repeated }),
    credentialIds: idsOf(event.swaps, event.misses, event.veils),
    usedIds: idsOf(event.swaps),
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
