// Refusals of logins, counted per minute instead of written one by one: by address, or by session where the login was right.
import { tryParseAuthority, type Authority } from '../model/authority.ts';
import type { AuditEvent } from '../model/audit.ts';
import type { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import { InactiveSession } from './admission.ts';
import { requireAuthority, splitAbsoluteTarget } from './destination-check.ts';
import type { ProxyPorts } from './settings.ts';

const COUNT_INTERVAL_MS = 60_000;
// An attacker with many addresses does not get a row for each.
const ADDRESSES_MAX = 256;
/** Of one session; what else it asks for is counted without its name. */
const DESTINATIONS_MAX = 16;
/** Sessions and destinations in all; what comes then is counted by address. */
const INACTIVE_MAX = 1024;

type Ports = Pick<ProxyPorts, 'audit' | 'metrics' | 'clock'>;

/** The line of a refused request. */
export interface RefusedRequest {
  readonly method?: string | undefined;
  /** Target in authority form (CONNECT) or absolute form (RFC 9112 section 3.2). */
  readonly url?: string | undefined;
}

type Row = Pick<AuditEvent, 'sessionId' | 'method' | 'scheme' | 'host' | 'port' | 'reason'>;

interface Counted {
  readonly row: Row;
  readonly clientAddress: string;
  /** Not written yet. */
  count: number;
}

const UNKNOWN: Row = {
  sessionId: null,
  method: 'CONNECT',
  scheme: 'tunnel',
  host: '',
  port: 0,
  reason: 'proxy_authentication_required',
};

function authorityOf({ method, url = '' }: RefusedRequest): Authority | null {
  if (method === 'CONNECT') return tryParseAuthority(url);
  const target = splitAbsoluteTarget(url);
  return target === null ? null : requireAuthority(target.authority, 'http');
}

/** Counts refused logins, and writes them as audit rows once a minute. */
export class RefusedLogins {
  readonly #ports: Ports;
  readonly #unknown = new Map<string, Counted>();
  /** By session, then by address and destination. */
  readonly #inactive = new Map<string, Map<string, Counted>>();
  #inactiveSize = 0;
  readonly #timer: NodeJS.Timeout;

  constructor(ports: Ports) {
    this.#ports = ports;
    this.#timer = setInterval(() => this.flush(), COUNT_INTERVAL_MS);
    this.#timer.unref();
  }

  /** Other refusals are written by those who know the session. */
  count(clientAddress: string, error: KeyveilError, request: RefusedRequest): void {
    if (error.status !== 407) return;
    this.#ports.metrics.unauthenticated();
    if (error instanceof InactiveSession && error.sessionId !== null && this.#inactiveSize < INACTIVE_MAX)
      this.#countInactive(clientAddress, error.sessionId, request);
    else this.#countUnknown(clientAddress);
  }

  #countUnknown(address: string): void {
    const clientAddress = this.#unknown.has(address) || this.#unknown.size < ADDRESSES_MAX ? address : 'others';
    const counted = this.#unknown.get(clientAddress);
    if (counted === undefined) this.#unknown.set(clientAddress, { row: UNKNOWN, clientAddress, count: 1 });
    else counted.count += 1;
  }

  // The first one is written at once: whoever asks why a sandbox is refused asks now. The rest of the minute is counted.
  #countInactive(clientAddress: string, sessionId: string, request: RefusedRequest): void {
    const ofSession = this.#inactive.get(sessionId) ?? new Map<string, Counted>();
    this.#inactive.set(sessionId, ofSession);
    const isTunnel = request.method === 'CONNECT';
    const { host, port } = authorityOf(request) ?? { host: '', port: 0 };
    const full = `${clientAddress} ${isTunnel ? 'tunnel' : 'http'} ${host} ${port}`;
    const isNamed = ofSession.has(full) || ofSession.size < DESTINATIONS_MAX;
    const counted = ofSession.get(isNamed ? full : '');
    if (counted !== undefined) {
      counted.count += 1;
      return;
    }
    const named = { sessionId, method: request.method ?? '', host, port, reason: 'session_inactive' } as const;
    const row: Row = isNamed
      ? { ...named, scheme: isTunnel ? 'tunnel' : 'http' }
      : { ...named, ...{ method: 'CONNECT', scheme: 'tunnel', host: '', port: 0 } };
    ofSession.set(isNamed ? full : '', { row, clientAddress: isNamed ? clientAddress : 'others', count: 0 });
    this.#inactiveSize += 1;
    this.#write({ row, clientAddress, count: 1 });
  }

  #write({ row, clientAddress, count }: Counted): void {
    const { audit, clock } = this.#ports;
    const createdAt = clock.now();
    audit.record({
      id: createId('auditEvent', createdAt),
      createdAt,
      ...row,
      path: '',
      httpVersion: '1.1',
      status: 407,
      outcome: 'refused',
      durationMs: 0,
      requestBytes: 0,
      responseBytes: 0,
      swaps: [],
      misses: [],
      veils: [],
      repeated: { clientAddress, count },
    });
  }

  /** Writes what was counted in the minute that has passed. */
  flush(): void {
    const inactive = [...this.#inactive.values()].flatMap((ofSession) => [...ofSession.values()]);
    for (const counted of [...this.#unknown.values(), ...inactive]) if (counted.count > 0) this.#write(counted);
    this.#unknown.clear();
    this.#inactive.clear();
    this.#inactiveSize = 0;
  }

  close(): void {
    clearInterval(this.#timer);
    this.flush();
  }
}
