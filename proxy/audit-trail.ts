// The record of one request, filled in on its way and handed to the audit log exactly once.
import { performance } from 'node:perf_hooks';
import { createId } from '../model/ids.ts';
import { AUDIT_TEXT_CHARACTERS_MAX } from '../model/limits.ts';
import type { AuditEvent, AuditOutcome, AuditReason, MissRecord, SwapRecord, VeilRecord } from '../model/audit.ts';
import type { KeyveilError } from '../model/errors.ts';
import type { AuditSink, Clock, Logger, ProxyMetrics } from '../model/ports.ts';
import { noteEnd, type DenialSink } from './denials.ts';
import type { Tunnel } from './tunnels.ts';

const METHOD_CHARACTERS_MAX = 64;

/** What is known when a request begins. */
export interface TrailStart {
  readonly sessionId: string | null;
  readonly method: string;
  readonly scheme: AuditEvent['scheme'];
  readonly host: string;
  readonly port: number;
  /** Target in any form (RFC 9112 section 3.2): the row gets its path, without authority and query. */
  readonly target: string;
  readonly httpVersion: string;
}

export interface TrailPorts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly audit: AuditSink;
  readonly metrics: ProxyMetrics;
  readonly denials: DenialSink | null;
}

// Scheme and authority of an absolute form, which may hold a login.
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;

function pathOf(target: string): string {
  const path = target.replace(ABSOLUTE, '');
  const end = path.search(/[?#]/);
  const own = end < 0 ? path : path.slice(0, end);
  return own === '' && target !== '' ? '/' : own.slice(0, AUDIT_TEXT_CHARACTERS_MAX);
}

/** One request's record. `finish` writes it; every later call does nothing. */
export class AuditTrail {
  status: number | null = null;
  requestBytes = 0;
  responseBytes = 0;
  swaps: readonly SwapRecord[] = [];
  misses: readonly MissRecord[] = [];
  veils: readonly VeilRecord[] = [];
  /** A thing worth knowing of a request that succeeded. */
  note: AuditReason | null = null;
  #finished = false;
  readonly #start: TrailStart;
  readonly #ports: TrailPorts;
  readonly #createdAt: number;
  /** Monotonic: the clock may be set meanwhile. */
  readonly #startedAt = performance.now();

  constructor(start: TrailStart, ports: TrailPorts) {
    this.#start = start;
    this.#ports = ports;
    this.#createdAt = ports.clock.now();
  }

  get sessionId(): string | null {
    return this.#start.sessionId;
  }

  get finished(): boolean {
    return this.#finished;
  }

  addSwaps(swaps: readonly SwapRecord[]): void {
    if (swaps.length > 0) this.swaps = this.swaps.length === 0 ? swaps : [...this.swaps, ...swaps];
  }

  addMisses(misses: readonly MissRecord[]): void {
    if (misses.length > 0) this.misses = this.misses.length === 0 ? misses : [...this.misses, ...misses];
  }

  /** Records the outcome. The reason is null for a request that went as it should. */
  finish(outcome: AuditOutcome, reason: AuditReason | null): void {
    if (this.#finished) return;
    this.#finished = true;
    const { audit, metrics } = this.#ports;
    const start = this.#start;
    audit.record({
      id: createId('auditEvent', this.#createdAt),
      createdAt: this.#createdAt,
      sessionId: start.sessionId,
      method: start.method.slice(0, METHOD_CHARACTERS_MAX),
      scheme: start.scheme,
      host: start.host,
      port: start.port,
      path: pathOf(start.target),
      httpVersion: start.httpVersion,
      status: this.status,
      outcome,
      reason: reason ?? this.note,
      durationMs: this.#durationMs(),
      requestBytes: this.requestBytes,
      responseBytes: this.responseBytes,
      swaps: this.swaps,
      misses: this.misses,
      veils: this.veils,
    });
    metrics.request(outcome, reason);
    this.#log(outcome, reason);
    noteEnd(this.#ports.denials, start.sessionId, { outcome, reason });
    for (const swap of this.swaps) metrics.swap(swap.location, swap.count);
    for (const miss of this.misses) metrics.miss(miss.location, miss.reason);
    for (const veil of this.veils) metrics.veil(veil.count);
  }

  #durationMs(): number {
    return Math.round(performance.now() - this.#startedAt);
  }

  #log(outcome: AuditOutcome, reason: AuditReason | null): void {
    const { logger } = this.#ports;
    if (logger.debugIsOn !== true) return;
    const { sessionId, method, host, port } = this.#start;
    const because = reason ?? this.note;
    logger.debug(
      {
        ...(sessionId === null ? {} : { sessionId }),
        method: method.slice(0, METHOD_CHARACTERS_MAX),
        host,
        port,
        ...(this.status === null ? {} : { status: this.status }),
        outcome,
        ...(because === null ? {} : { reason: because }),
        durationMs: this.#durationMs(),
      },
      'Request',
    );
  }
}

/** Opens the record of a request of a tunnel. */
export function openRequestTrail(
  ports: TrailPorts,
  tunnel: Pick<Tunnel, 'sessionId' | 'scheme' | 'authority'>,
  request: Pick<TrailStart, 'method' | 'target' | 'httpVersion'>,
): AuditTrail {
  const { authority, sessionId, scheme } = tunnel;
  const { method, target, httpVersion } = request;
  const { host, port } = authority;
  return new AuditTrail({ sessionId, method, scheme, host, port, target, httpVersion }, ports);
}

/** Writes the row of a request that was refused before it could be understood. */
export function recordMalformed(
  ports: TrailPorts,
  tunnel: Pick<Tunnel, 'sessionId' | 'scheme' | 'authority'>,
  refusal: { readonly error: KeyveilError; readonly httpVersion: string },
): void {
  const { sessionId, scheme, authority } = tunnel;
  const { host, port } = authority;
  const { error, httpVersion } = refusal;
  const trail = new AuditTrail({ sessionId, method: '', scheme, host, port, target: '', httpVersion }, ports);
  trail.status = error.status;
  trail.finish('refused', error.code);
}

/** Opens the record of a tunnel as a whole: what is relayed in it unread, or why it was closed. */
export function openTunnelTrail(ports: TrailPorts, tunnel: Pick<Tunnel, 'sessionId' | 'authority'>): AuditTrail {
  const { sessionId, authority } = tunnel;
  const { host, port } = authority;
  return new AuditTrail(
    { sessionId, method: 'CONNECT', scheme: 'tunnel', host, port, target: '', httpVersion: '1.1' },
    ports,
  );
}
