// Connections that have not shown a session yet: few, for a short time, and counted instead of written one by one.
import type { Socket } from 'node:net';
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import { LINGER_OVERLOADED_MS } from '../model/limits.ts';
import { answerAndClose } from './raw-reply.ts';
import type { ProxyPorts } from './settings.ts';

const COUNT_INTERVAL_MS = 60_000;
// An attacker with many addresses does not get a row for each.
const ADDRESSES_MAX = 256;

type Ports = Pick<ProxyPorts, 'settings' | 'audit' | 'metrics' | 'clock'>;

/** Bounds the sockets without a session, and counts refused logins per minute and address. */
export class UnauthenticatedSockets {
  readonly #ports: Ports;
  readonly #timers = new Map<Socket, NodeJS.Timeout>();
  readonly #counts = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;

  constructor(ports: Ports) {
    this.#ports = ports;
    this.#timer = setInterval(() => this.flush(), COUNT_INTERVAL_MS);
    this.#timer.unref();
  }

  /** A new connection: refused at the limit, closed when its CONNECT does not come in time. */
  add(socket: Socket): void {
    const { settings, metrics } = this.#ports;
    if (this.#timers.size >= settings.unauthenticatedSocketsMax) {
      metrics.request('refused', 'overloaded');
      answerAndClose(
        socket,
        new KeyveilError('overloaded', 'Too many connections are waiting. Try again in a moment.'),
        '',
      );
      // These are not counted, so they don't get the time that others have.
      setTimeout(() => socket.destroy(), LINGER_OVERLOADED_MS).unref();
      return;
    }
    const timer = setTimeout(() => socket.destroy(), settings.connectRequestTimeoutMs);
    timer.unref();
    this.#timers.set(socket, timer);
    socket.once('close', () => this.admit(socket));
  }

  /** The connection has shown a session, or has sent a whole request. */
  admit(socket: Socket): void {
    clearTimeout(this.#timers.get(socket));
    this.#timers.delete(socket);
  }

  /** Counts a refused login; other refusals are written by those who know the session. */
  count(socket: Socket, error: KeyveilError): void {
    if (error.status !== 407) return;
    this.#ports.metrics.unauthenticated();
    const address = socket.remoteAddress ?? 'unknown';
    const key = this.#counts.has(address) || this.#counts.size < ADDRESSES_MAX ? address : 'others';
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** Writes one row per address for the minute that has passed. */
  flush(): void {
    const { audit, clock } = this.#ports;
    for (const [clientAddress, count] of this.#counts) {
      const createdAt = clock.now();
      audit.record({
        id: createId('auditEvent', createdAt),
        createdAt,
        sessionId: null,
        method: 'CONNECT',
        scheme: 'tunnel',
        host: '',
        port: 0,
        path: '',
        httpVersion: '1.1',
        status: 407,
        outcome: 'refused',
        reason: 'proxy_authentication_required',
        durationMs: 0,
        requestBytes: 0,
        responseBytes: 0,
        swaps: [],
        misses: [],
        veils: [],
        repeated: { clientAddress, count },
      });
    }
    this.#counts.clear();
  }

  close(): void {
    clearInterval(this.#timer);
    this.flush();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}
