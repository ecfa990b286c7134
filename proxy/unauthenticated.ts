// Connections that have not shown a session yet: few, and for a short time.
import type { Socket } from 'node:net';
import { KeyveilError } from '../model/errors.ts';
import { Holders } from '../model/holders.ts';
import { LINGER_OVERLOADED_MS } from '../model/limits.ts';
import { Roster, type Seat } from '../model/roster.ts';
import { Attachment } from './attachment.ts';
import { answerAndClose } from './raw-reply.ts';
import { RefusedLogins, type RefusedRequest } from './refused-logins.ts';
import type { ProxyPorts } from './settings.ts';

type Ports = Pick<ProxyPorts, 'settings' | 'audit' | 'metrics' | 'clock'>;

interface Place {
  readonly socket: Socket;
  /** Asked for when it is needed: most connections have shown a session by then. */
  address: string | null;
  readonly timer: NodeJS.Timeout;
  /** Counts up: the oldest has the lowest. */
  readonly order: number;
  seat: Seat<Place> | null;
  /** Nobody waits for it: it has asked for nothing, or got its last answer. */
  isIdle: boolean;
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
  readonly #places = new Roster<Place>();
  readonly #placeOf = new Attachment<Socket, Place>('keyveil.place');
  /** The idle ones by address; kept only while there are so many that one may have to make room. */
  #idle: Holders<Socket> | null = null;
  #order = 0;
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
    const timer = setTimeout(() => socket.destroy(), settings.connectRequestTimeoutMs);
    timer.unref();
    const place: Place = {
      socket,
      address: null,
      timer,
      order: this.#order++,
      seat: null,
      isIdle: false,
      isAnswered: false,
    };
    place.seat = this.#places.add(place);
    this.#placeOf.set(socket, place);
    this.#setIdle(place, true);
    socket.once('close', () => this.admit(socket));
    if (this.#places.size <= settings.unauthenticatedSocketsMax) return;
    const closed = this.#idleByAddress().oldestOfMost();
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
    const place = this.#placeOf.get(socket);
    if (place !== undefined && !place.isAnswered) this.#setIdle(place, false);
  }

  /** The connection has shown a session, which it counts to from now on. */
  admit(socket: Socket): void {
    const place = this.#placeOf.get(socket);
    if (place?.seat === null || place?.seat === undefined || !this.#places.remove(place.seat)) return;
    clearTimeout(place.timer);
    this.#setIdle(place, false);
    if (this.#places.size < this.#ports.settings.unauthenticatedSocketsMax / 2) this.#idle = null;
  }

  #setIdle(place: Place, isIdle: boolean): void {
    if (place.isIdle === isIdle) return;
    place.isIdle = isIdle;
    if (isIdle) this.#idle?.add(addressOf(place), place.socket);
    else this.#idle?.delete(addressOf(place), place.socket);
  }

  #idleByAddress(): Holders<Socket> {
    if (this.#idle !== null) return this.#idle;
    const idle = new Holders<Socket>();
    const places = this.#places.items().sort((a, b) => a.order - b.order);
    for (const place of places) if (place.isIdle) idle.add(addressOf(place), place.socket);
    this.#idle = idle;
    return idle;
  }

  /**
   * The connection is refused, and closes after that answer: from now on it may be closed for a newcomer again. Counts a
   * refused login.
   */
  refuse(socket: Socket, error: KeyveilError, request: RefusedRequest): void {
    const place = this.#placeOf.get(socket);
    if (place !== undefined && (place.seat?.index ?? -1) >= 0) {
      place.isAnswered = true;
      this.#setIdle(place, true);
    }
    this.#refused.count(socket.remoteAddress ?? 'unknown', error, request);
  }

  close(): void {
    this.#refused.close();
    for (const { socket } of this.#places.items()) this.admit(socket);
  }
}

function addressOf(place: Place): string {
  return (place.address ??= place.socket.remoteAddress ?? 'unknown');
}

function endpointsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
