// Wire shapes of audit events and their filters.
import { z } from 'zod';
import type { AuditEntry, AuditEvent, AuditQuery } from '../../model/audit.ts';
import { normaliseHost } from '../../model/authority.ts';
import { addFinding } from '../validation.ts';
import { pageOf, pageQueryFields, Timestamp, toTimestamp } from './common.ts';

// RFC 3339 section 5.6, with an offset.
const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})$/;

const Time = z
  .string()
  .transform((text, context) => {
    const timeMs = RFC_3339.test(text) ? Date.parse(text.toUpperCase()) : Number.NaN;
    if (!Number.isNaN(timeMs)) return timeMs;
    addFinding(context, 'must be a time such as 2026-01-31T12:00:00Z');
    return z.NEVER;
  })
  .meta({ format: 'date-time' });

const Host = z.string().transform((text, context) => {
  const host = normaliseHost(text);
  if (host !== null) return host;
  addFinding(context, 'must be a host name or an IP address');
  return z.NEVER;
});

const filterFields = {
  session_id: z.string().optional(),
  credential_id: z.string().optional(),
  host: Host.optional(),
  outcome: z.enum(['forwarded', 'relayed', 'refused', 'failed']).optional(),
  created_at_gte: Time.optional().meta({ description: 'At or after.' }),
  created_at_lt: Time.optional().meta({ description: 'Before.' }),
};

export const AuditListQuery = z.strictObject({ ...pageQueryFields, ...filterFields });

export const AuditStreamQuery = z.strictObject({ beta: pageQueryFields.beta, ...filterFields });

/** The filters of a query, as the log takes them. */
export function toAuditFilters(wire: z.output<typeof AuditStreamQuery>): Omit<AuditQuery, 'after' | 'limit'> {
  return {
    ...(wire.session_id === undefined ? {} : { sessionId: wire.session_id }),
    ...(wire.credential_id === undefined ? {} : { credentialId: wire.credential_id }),
    ...(wire.host === undefined ? {} : { host: wire.host }),
    ...(wire.outcome === undefined ? {} : { outcome: wire.outcome }),
    ...(wire.created_at_gte === undefined ? {} : { createdAtGte: wire.created_at_gte }),
    ...(wire.created_at_lt === undefined ? {} : { createdAtLt: wire.created_at_lt }),
  };
}

const Used = { credential_id: z.string(), secret_name: z.string() };

const AuditEventWire = z.object({
  id: z.string(),
  type: z.literal('audit_event'),
  created_at: Timestamp,
  session_id: z.string().nullable(),
  method: z.string(),
  scheme: z.enum(['https', 'http', 'tunnel']),
  host: z.string(),
  port: z.number().int(),
  path: z.string().meta({ description: 'Without the query; empty for a tunnel.' }),
  http_version: z.string(),
  status: z.number().int().nullable(),
  outcome: z.enum(['forwarded', 'relayed', 'refused', 'failed']),
  reason: z.string().nullable(),
  duration_ms: z.number(),
  request_bytes: z.number().int(),
  response_bytes: z.number().int(),
  swaps: z.array(
    z.object({
      ...Used,
      secret_version: z.number().int(),
      location: z.enum(['header', 'basic', 'body', 'trailer', 'websocket']),
      header_name: z.string().optional(),
      count: z.number().int(),
    }),
  ),
  misses: z.array(
    z.object({
      ...Used,
      location: z.enum(['header', 'basic', 'body', 'trailer', 'websocket', 'path', 'query']),
      reason: z.string(),
    }),
  ),
  veils: z.array(z.object({ credential_id: z.string(), count: z.number().int() })),
  repeated: z.object({ client_address: z.string(), count: z.number().int() }).optional().meta({
    description:
      'On rows of refused logins (status 407): how many this one stands for, and from where; `others` for several addresses.',
  }),
});

const AdminEventWire = z.object({
  id: z.string(),
  type: z.literal('admin_event'),
  created_at: Timestamp,
  actor: z.string().meta({ description: '`admin_token`, the id of a scoped token, or `socket`.' }),
  action: z.string(),
  object_id: z.string(),
  request_id: z.string(),
});

export const AuditEntryWire = z.discriminatedUnion('type', [AuditEventWire, AdminEventWire]).meta({ id: 'AuditEntry' });

export const AuditPage = pageOf(AuditEntryWire, 'AuditPage');

function eventToWire(event: AuditEvent): z.output<typeof AuditEventWire> {
  return {
    id: event.id,
    type: 'audit_event',
    created_at: toTimestamp(event.createdAt),
    session_id: event.sessionId,
    method: event.method,
    scheme: event.scheme,
    host: event.host,
    port: event.port,
    path: event.path,
    http_version: event.httpVersion,
    status: event.status,
    outcome: event.outcome,
    reason: event.reason,
    duration_ms: event.durationMs,
    request_bytes: event.requestBytes,
    response_bytes: event.responseBytes,
    swaps: event.swaps.map((swap) => ({
      credential_id: swap.credentialId,
      secret_name: swap.secretName,
      secret_version: swap.secretVersion,
      location: swap.location,
      ...(swap.headerName === undefined ? {} : { header_name: swap.headerName }),
      count: swap.count,
    })),
    misses: event.misses.map((miss) => ({
      credential_id: miss.credentialId,
      secret_name: miss.secretName,
      location: miss.location,
      reason: miss.reason,
    })),
    veils: event.veils.map((veil) => ({ credential_id: veil.credentialId, count: veil.count })),
    ...(event.repeated === undefined
      ? {}
      : { repeated: { client_address: event.repeated.clientAddress, count: event.repeated.count } }),
  };
}

export function auditEntryToWire(entry: AuditEntry): z.output<typeof AuditEntryWire> {
  if (entry.kind === 'audit_event') return eventToWire(entry);
  return {
    id: entry.id,
    type: 'admin_event',
    created_at: toTimestamp(entry.createdAt),
    actor: entry.actor,
    action: entry.action,
    object_id: entry.objectId,
    request_id: entry.requestId,
  };
}
