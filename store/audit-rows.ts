// Audit entries as rows: bounded texts, and beside the entry only the columns that lists filter by.
import type { AdminEvent, AuditEntry, AuditEvent, StoredAuditEntry } from '../model/audit.ts';
import { AUDIT_TEXT_CHARACTERS_MAX } from '../model/limits.ts';

/** What the log keeps of an entry. */
export interface AuditRow {
  readonly id: string;
  readonly createdAt: number;
  readonly sessionId: string | null;
  readonly host: string | null;
  readonly outcome: string | null;
  /** JSON of the entry. */
  readonly entry: string;
  /** Credentials that the entry speaks of, without repeats, a space between them. */
  readonly credentialIds: string;
  /** Credentials whose value was put into the request, likewise. */
  readonly usedIds: string;
}

/** Values of a row in a batch: its fields in their order. */
export const ROW_VALUES = 8;

/** The values of many rows, one after the other: a flat list is copied between threads in half the time of objects. */
export type AuditBatch = readonly (string | number | null)[];

/** Rows as the writer thread gets them. */
export function toBatch(rows: readonly AuditRow[]): AuditBatch {
  const values: (string | number | null)[] = [];
  for (const row of rows) {
    const { id, createdAt, sessionId, host, outcome, entry, credentialIds, usedIds } = row;
    values.push(id, createdAt, sessionId, host, outcome, entry, credentialIds, usedIds);
  }
  return values;
}

function clip(text: string): string {
  return text.length <= AUDIT_TEXT_CHARACTERS_MAX ? text : `${text.slice(0, AUDIT_TEXT_CHARACTERS_MAX - 1)}…`;
}

interface Spoken {
  readonly credentialId: string;
}

function addIds(records: readonly Spoken[], ids: string): string {
  let all = ids;
  for (const { credentialId } of records) {
    if (all === '') all = credentialId;
    else if (!` ${all} `.includes(` ${credentialId} `)) all += ` ${credentialId}`;
  }
  return all;
}

/** Credentials that an entry speaks of, as `AuditRow.credentialIds` has them. */
export function credentialIdsOf({ swaps, misses, veils }: Pick<AuditEvent, 'swaps' | 'misses' | 'veils'>): string {
  return addIds(veils, addIds(misses, addIds(swaps, '')));
}

function quote(text: string | null): string {
  return text === null ? 'null' : JSON.stringify(text);
}

function list(records: readonly object[]): string {
  return records.length === 0 ? '[]' : JSON.stringify(records);
}

// Written out field by field: this runs for every request, and JSON.stringify of the whole takes more than twice as long.
function entryOf(event: AuditEvent, createdAt: number, host: string): string {
  const { id, sessionId, scheme, port, httpVersion, status, outcome, reason, repeated } = event;
  const { durationMs, requestBytes, responseBytes, swaps, misses, veils } = event;
  return (
    `{"kind":"audit_event","id":${quote(id)},"createdAt":${createdAt},"sessionId":${quote(sessionId)}` +
    `,"method":${quote(clip(event.method))},"scheme":"${scheme}","host":${quote(host)},"port":${port}` +
    `,"path":${quote(clip(event.path))},"httpVersion":${quote(httpVersion)},"status":${status},"outcome":"${outcome}"` +
    `,"reason":${quote(reason)},"durationMs":${durationMs},"requestBytes":${requestBytes}` +
    `,"responseBytes":${responseBytes},"swaps":${list(swaps)},"misses":${list(misses)},"veils":${list(veils)}` +
    (repeated === undefined ? '}' : `,"repeated":${JSON.stringify(repeated)}}`)
  );
}

/** The row of a request. */
export function toAuditRow(event: AuditEvent): AuditRow {
  const createdAt = Math.trunc(event.createdAt);
  const host = clip(event.host);
  return {
    id: event.id,
    createdAt,
    sessionId: event.sessionId,
    host,
    outcome: event.outcome,
    entry: entryOf(event, createdAt, host),
    credentialIds: credentialIdsOf(event),
    usedIds: addIds(event.swaps, ''),
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
    credentialIds: '',
    usedIds: '',
  };
}

/** Reads a row back. */
export function fromRow(row: { readonly sequence: number; readonly entry: string }): StoredAuditEntry {
  return { sequence: row.sequence, entry: JSON.parse(row.entry) as AuditEntry };
}
