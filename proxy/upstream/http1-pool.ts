// Idle HTTP/1.1 connections, kept per session and origin; the one that was used last is taken first.
import { formatAuthority } from '../../model/authority.ts';
import { POOL_IDLE_PER_ORIGIN_MAX, POOL_IDLE_TIMEOUT_MS } from '../../model/limits.ts';
import type { Destination } from '../exchange.ts';
import type { Http1Connection } from './http1-connection.ts';

/** An upstream closes at its own time-out; a connection is not used for the last part of that, when they might cross. */
const KEEP_ALIVE_MARGIN_MS = 1000;
const SWEEP_INTERVAL_MS = 5000;

export interface Http1PoolOptions {
  /** Whether the peer of a connection may still be reached by a destination that has other ranges allowed now. */
  readonly admits: (connection: Http1Connection, destination: Destination) => boolean;
  readonly idleTimeoutMs?: number;
  readonly idlePerOriginMax?: number;
}

type Origins = Map<string, Http1Connection[]>;

function originKey(destination: Destination): string {
  return `${destination.scheme} ${formatAuthority(destination.authority)}`;
}

export class Http1Pool {
  readonly #sessions = new Map<string, Origins>();
  readonly #admits: Http1PoolOptions['admits'];
  readonly #idleTimeoutMs: number;
  readonly #idlePerOriginMax: number;
  #sweeper: NodeJS.Timeout | null = null;
  /** Number of idle connections. */
  size = 0;

  constructor(options: Http1PoolOptions) {
    this.#admits = options.admits;
    this.#idleTimeoutMs = options.idleTimeoutMs ?? POOL_IDLE_TIMEOUT_MS;
    this.#idlePerOriginMax = options.idlePerOriginMax ?? POOL_IDLE_PER_ORIGIN_MAX;
  }

  /** A usable connection of the session to the origin, or null. It is the caller's from then on. */
  take(destination: Destination): Http1Connection | null {
    const idle = this.#sessions.get(destination.sessionId)?.get(originKey(destination));
    if (idle === undefined) return null;
    for (let connection = idle.pop(); connection !== undefined; connection = idle.pop()) {
      this.size -= 1;
      if (this.#isReady(connection, destination)) return connection;
      connection.drop();
    }
    return null;
  }

  /** Whether `take` would give one, as far as can be told without taking it. */
  has(destination: Destination): boolean {
    const last = this.#sessions.get(destination.sessionId)?.get(originKey(destination))?.at(-1);
    return last !== undefined && this.#isReady(last, destination);
  }

  /** Keeps a connection that has no exchange, or closes it when there is no room or no time left for it. */
  put(connection: Http1Connection): void {
    const keptMs = Math.min(this.#idleTimeoutMs, connection.idleSeconds * 1000 - KEEP_ALIVE_MARGIN_MS);
    const idle = this.#listFor(connection.destination);
    if (keptMs <= 0 || idle.length >= this.#idlePerOriginMax) {
      connection.drop();
      return;
    }
    connection.expiresAt = performance.now() + keptMs;
    idle.push(connection);
    this.size += 1;
    this.#sweeper ??= setInterval(this.#sweep, Math.min(SWEEP_INTERVAL_MS, this.#idleTimeoutMs)).unref();
  }

  /** Forgets a connection that closed, if it was waiting here. */
  remove(connection: Http1Connection): void {
    const idle = this.#sessions.get(connection.destination.sessionId)?.get(originKey(connection.destination));
    const index = idle?.indexOf(connection) ?? -1;
    if (idle === undefined || index < 0) return;
    idle.splice(index, 1);
    this.size -= 1;
  }

  closeSession(sessionId: string): void {
    const origins = this.#sessions.get(sessionId);
    this.#sessions.delete(sessionId);
    for (const idle of origins?.values() ?? []) {
      this.size -= idle.length;
      for (const connection of idle) connection.drop();
    }
  }

  close(): void {
    for (const sessionId of [...this.#sessions.keys()]) this.closeSession(sessionId);
    if (this.#sweeper !== null) clearInterval(this.#sweeper);
    this.#sweeper = null;
  }

  #isReady(connection: Http1Connection, destination: Destination): boolean {
    return connection.isUsable && connection.expiresAt > performance.now() && this.#isAdmitted(connection, destination);
  }

  #isAdmitted(connection: Http1Connection, destination: Destination): boolean {
    if (connection.admittedUnder === destination.allowedPrivateCidrs) return true;
    if (!this.#admits(connection, destination)) return false;
    connection.admittedUnder = destination.allowedPrivateCidrs;
    return true;
  }

  #listFor(destination: Destination): Http1Connection[] {
    let origins = this.#sessions.get(destination.sessionId);
    if (origins === undefined)
      this.#sessions.set(destination.sessionId, (origins = new Map<string, Http1Connection[]>()));
    const key = originKey(destination);
    let idle = origins.get(key);
    if (idle === undefined) origins.set(key, (idle = []));
    return idle;
  }

  readonly #sweep = (): void => {
    const now = performance.now();
    for (const [sessionId, origins] of this.#sessions) {
      for (const [key, idle] of origins) {
        const expired = idle.filter((connection) => connection.expiresAt <= now);
        for (const connection of expired) connection.drop(); // `remove` follows from it
        if (idle.length === 0) origins.delete(key);
      }
      if (origins.size === 0) this.#sessions.delete(sessionId);
    }
    if (this.size > 0 || this.#sweeper === null) return;
    clearInterval(this.#sweeper);
    this.#sweeper = null;
  };
}
