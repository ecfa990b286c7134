// Connections that have not shown a session yet: few, and for a short time.
import type { Socket } from 'node:net';
import { KeyveilError } from '../model/errors.ts';
import { Holders } from '../model/holders.ts';
import { LINGER_OVERLOADED_MS } from '../model/limits.ts';
import { answerAndClose } from './raw-reply.ts';
import { RefusedLogins, type RefusedRequest } from './refused-logins.ts';
import type { ProxyPorts } from './settings.ts';

type Ports = Pick<ProxyPorts, 'settings' | 'audit' | 'metrics' | 'clock'>;

interface Place {
  readonly address: string;
  readonly timer: NodeJS.Timeout;
  /** It has got its last answer, and only waits for its client to leave. */
  isAnswered: boolean;
}

/**
 * Bounds the sockets without a session, and counts refused logins. When all places are taken, the address that holds most
 * of those that have asked for nothing yet, or have been refused, gives the oldest of them up for a newcomer, so that a
 * client alone at its address is not kept out, or thrown out, by one that opens many.
 */
export class UnauthenticatedSockets {
  readonly #ports: Ports;
  readonly #places = new Map<Socket, Place>();
  /** Those that nobody waits for: they have asked for nothing, or got their last answer. */
  readonly #idle = new Holders<Socket>();
  readonly #refused: RefusedLogins;
  /** Connections to a port that speaks TLS whose handshake is under way, by their endpoints. */
  readonly #handshakes = new Map<string, Socket>();

  constructor(ports: Ports) {
    this.#ports = ports;
    this.#refused = new RefusedLogins(ports);
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

  /** Its handshake is under way. */
  awaitHandshake(socket: Socket): void {
    const endpoints = endpointsOf(socket);
    this.#handshakes.set(endpoints, socket);
    socket.once('close', () => this.#handshakes.delete(endpoints));
  }

  /** The handshake is over: the same place goes to the connection that Node gives instead. */
  secure(socket: Socket): void {
    this.admit(this.#handshakes.get(endpointsOf(socket)) ?? socket);
    this.add(socket);
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
   * refused login.
   */
  refuse(socket: Socket, error: KeyveilError, request: RefusedRequest): void {
    const place = this.#places.get(socket);
    if (place !== undefined) {
      place.isAnswered = true;
      this.#idle.add(place.address, socket);
    }
    this.#refused.count(socket.remoteAddress ?? 'unknown', error, request);
  }

  close(): void {
    this.#refused.close();
    for (const socket of this.#places.keys()) this.admit(socket);
  }
}

function endpointsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
