// Audit events: closed records of what was asked, swapped, missed, veiled and refused. They never hold a value.
import type { ErrorCode } from './errors.ts';

export type SwapLocation = 'header' | 'basic' | 'body' | 'trailer' | 'websocket';

export type MissLocation = SwapLocation | 'path' | 'query';

/** Why a placeholder that was seen was not swapped. */
export type MissReason =
  | 'host_not_covered'
  | 'location_disabled'
  | 'in_url'
  | 'plain_http'
  | 'binary_framing'
  | 'unsupported_encoding'
  | 'credential_archived';

export interface SwapRecord {
  readonly credentialId: string;
  readonly secretName: string;
  readonly secretVersion: number;
  readonly location: SwapLocation;
  /** Name of the field as the client wrote it; for `header` and `basic`. */
  readonly headerName?: string;
  readonly count: number;
}

export interface MissRecord {
  readonly credentialId: string;
  readonly secretName: string;
  readonly location: MissLocation;
  readonly reason: MissReason;
}

export interface VeilRecord {
  readonly credentialId: string;
  readonly count: number;
}

export type AuditOutcome = 'forwarded' | 'relayed' | 'refused' | 'failed';

/** Reasons that are not error codes of an answer: connections that were closed, or things worth knowing. */
export type ConnectionReason =
  | 'sni_mismatch'
  | 'unsupported_protocol'
  | 'session_ended'
  | 'client_aborted'
  | 'upstream_aborted'
  | 'tls_handshake_failed'
  | 'veil_not_possible'
  | 'idle_timeout'
  | 'malformed_frame'
  | 'http2_flood';

export type AuditReason = ErrorCode | ConnectionReason;

/** One proxied request, relayed tunnel, or refusal. */
export interface AuditEvent {
  readonly id: string;
  /** Start of the request, milliseconds since the epoch. */
  readonly createdAt: number;
  readonly sessionId: string | null;
  readonly method: string;
  readonly scheme: 'https' | 'http' | 'tunnel';
  readonly host: string;
  readonly port: number;
  /** Path without its query; empty for a tunnel. */
  readonly path: string;
  readonly httpVersion: string;
  /** Status that the client got; null when it got none. */
  readonly status: number | null;
  readonly outcome: AuditOutcome;
  readonly reason: AuditReason | null;
  readonly durationMs: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly swaps: readonly SwapRecord[];
  readonly misses: readonly MissRecord[];
  readonly veils: readonly VeilRecord[];
  /** Set on rows that stand for refused logins (407): the client's address and how many there were. */
  readonly repeated?: { readonly clientAddress: string; readonly count: number };
}

/** A write of the control plane: who, what, which object. */
export interface AdminEvent {
  readonly id: string;
  readonly createdAt: number;
  /** `admin_token`, or the id of a scoped token, or `socket` for the Unix socket. */
  readonly actor: string;
  /** Such as `credential.rotate`. */
  readonly action: string;
  readonly objectId: string;
  readonly requestId: string;
}

export type AuditEntry =
  ({ readonly kind: 'audit_event' } & AuditEvent) | ({ readonly kind: 'admin_event' } & AdminEvent);

export interface AuditQuery {
  readonly sessionId?: string;
  readonly credentialId?: string;
  readonly host?: string;
  readonly outcome?: AuditOutcome;
  readonly createdAtGte?: number;
  readonly createdAtLt?: number;
  readonly limit: number;
  /** Sequence number of the last row of the page before, as text. */
  readonly after: string | null;
}

/** An entry with the number under which the log keeps it; numbers only grow. */
export interface StoredAuditEntry {
  readonly sequence: number;
  readonly entry: AuditEntry;
}
