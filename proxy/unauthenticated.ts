// Connections that have not shown a session yet: few, for a short time, and counted instead of written one by one.
import type { Socket } from 'node:net';
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import { Holders } from './holders.ts';
import { LINGER_OVERLOADED_MS } from '../model/limits.ts';
import { answerAndClose } from './raw-reply.ts';
import type { ProxyPorts } from './settings.ts';

const COUNT_INTERVAL_MS = 60_000;
// An attacker with many addresses does not get a row for each.
const ADDRESSES_MAX = 256;

type Ports = Pick<ProxyPorts, 'settings' | 'audit' | 'metrics' | 'clock'>;

interface Place {
  readonly address: string;
  readonly timer: NodeJS.Timeout;
  /** It has got its last answer, and only waits for its client to leave. */
  isAnswered: boolean;
}

/**
 * Bounds the sockets without a session, and counts refused logins per minute and address. When all places are taken, the
 * address that holds most of those that have asked for nothing yet, or have been refused, gives the oldest of them up for a
 * newcomer, so that a client alone at its address is not kept out, or thrown out, by one that opens many.
 */
export class UnauthenticatedSockets {
  readonly #ports: Ports;
  readonly #places = new Map<Socket, Place>();
  /** Those that nobody waits for: they have asked for nothing, or got their last answer. */
  readonly #idle = new Holders<Socket>();
  readonly #counts = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;

  constructor(ports: Ports) {
    this.#ports = ports;
    this.#timer = setInterval(() => this.flush(), COUNT_INTERVAL_MS);
    this.#timer.unref();
  }

  get size(): number {
    return this.#places.size;
  }

  /** A new connection. It is closed when it has shown no session in time, whatever it has sent. */
  add(socket: Socket): void {
    const { settings, metrics } = this.#ports;
    const address = socket.remoteAddress ?? 'unknown';
    const timer = setTimeout(() => socket.destroy(), settings.connectRequestTimeoutMs);
    timer.unref();
    this.#places.set(socket, { address, timer, isAnswered: false });
    this.#idle.add(address, socket);
    socket.once('close', () => this.admit(socket));
    if (this.#places.size <= settings.unauthenticatedSocketsMax) return;
    const closed = this.#idle.oldestOfMost();
    metrics.request('refused', 'overloaded');
    this.admit(closed ?? socket);
    if (closed === undefined) this.#turnAway(socket);
    else closed.destroy();
  }

  #turnAway(socket: Socket): void {
    // Where the port speaks TLS there is nobody yet who could read an answer.
    if (this.#ports.settings.tls !== null) return void socket.destroy();
    const text = 'Too many connections are waiting. Try again in a moment.';
    answerAndClose(socket, new KeyveilError('overloaded', text), '');
    // These are not counted, so they don't get the time that others have.
    setTimeout(() => socket.destroy(), LINGER_OVERLOADED_MS).unref();
  }

  /** The connection has sent the head of a request: it is not closed for a newcomer any more. */
  hear(socket: Socket): void {
    const place = this.#places.get(socket);
    if (place !== undefined && !place.isAnswered) this.#idle.delete(place.address, socket);
  }

  /** The connection has shown a session, which it counts to from now on. */
  admit(socket: Socket): void {
    const place = this.#places.get(socket);
    if (place === undefined) return;
    clearTimeout(place.timer);
    this.#places.delete(socket);
    this.#idle.delete(place.address, socket);
  }

  /**
   * The connection is refused, and closes after that answer: from now on it may be closed for a newcomer again. Counts a
   * refused login; other refusals are written by those who know the session.
   */
  refuse(socket: Socket, error: KeyveilError): void {
    const place = this.#places.get(socket);
    if (place !== undefined) {
      place.isAnswered = true;
      this.#idle.add(place.address, socket);
    }
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
    for (const socket of this.#places.keys()) this.admit(socket);
  }
}
