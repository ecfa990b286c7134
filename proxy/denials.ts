// Which ends of a request count as a sandbox's attempt to get where it may not, for the denial limit of its session.
import type { AuditOutcome, AuditReason } from '../model/audit.ts';

/** Told of each end that counts. */
export interface DenialSink {
  /** The session was refused something by policy. */
  denied(sessionId: string): void;
  /** The session was served: denials are not consecutive any more. */
  served(sessionId: string): void;
}

// Not what the operator or the daemon's state refuses (overload, shutdown, emergency stop), nor malformed requests.
const DENIALS: ReadonlySet<AuditReason> = new Set([
  'environment_denied',
  'address_denied',
  'port_denied',
  'host_mismatch',
  'sni_mismatch',
]);

/** Passes an end on when it counts. */
export function noteEnd(
  sink: DenialSink | null,
  sessionId: string | null,
  end: { readonly outcome: AuditOutcome; readonly reason: AuditReason | null },
): void {
  if (sink === null || sessionId === null) return;
  if (end.outcome === 'forwarded' || end.outcome === 'relayed') sink.served(sessionId);
  else if (end.outcome === 'refused' && end.reason !== null && DENIALS.has(end.reason)) sink.denied(sessionId);
}
