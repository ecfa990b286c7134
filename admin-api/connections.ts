// The connections of the admin port: few, so that they leave descriptors for the proxy, and not kept by who has no token.
import type { Server, Socket } from 'node:net';
import { Holders } from '../model/holders.ts';

interface Place {
  readonly key: string;
  readonly address: string;
  /** What was accepted: below TLS, where the port speaks that. */
  readonly socket: Socket;
  /** Requests of a good token that are under way. */
  requests: number;
  /** Live streams among them; a connection with one is not counted. */
  streams: number;
  isGone: boolean;
}

/** The end of a request: `response` of the server closes when it was answered, or has lost its connection. */
interface Response {
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Bounds the connections of a server. When there are too many, the address that has most without a request of a good token
 * under way gives up the oldest of those: a client alone at its address is neither kept out nor thrown out by one that opens
 * many, and nobody's request is cut.
 */
export class AdminConnections {
  readonly #max: number;
  readonly #places = new Map<string, Place>();
  readonly #idle = new Holders<Place>();
  #count = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Counts the connections of a server from now on; a name such as `localhost` may have several. */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => this.#add(socket));
  }

  /** A request with a good token is under way: its connection is not closed for a newcomer until it has ended. */
  hold(socket: Socket, response: Response): void {
    const place = this.#places.get(endpointsOf(socket));
    if (place === undefined) return;
    place.requests += 1;
    this.#idle.delete(place.address, place);
    response.once('close', () => {
      place.requests -= 1;
      if (place.requests === 0 && !place.isGone) this.#idle.add(place.address, place);
    });
  }

  /** The request is a live stream, of which there is another limit: while it is open its connection is not counted. */
  setApart(socket: Socket, response: Response): void {
    const place = this.#places.get(endpointsOf(socket));
    if (place === undefined) return;
    place.streams += 1;
    if (place.streams === 1) this.#count -= 1;
    response.once('close', () => {
      place.streams -= 1;
      if (place.streams === 0 && !place.isGone) this.#count += 1;
    });
  }

  #add(socket: Socket): void {
    const key = endpointsOf(socket);
    const address = socket.remoteAddress ?? 'unknown';
    const place: Place = { key, address, socket, requests: 0, streams: 0, isGone: false };
    this.#places.set(key, place);
    this.#idle.add(address, place);
    this.#count += 1;
    socket.once('close', () => this.#remove(place));
    if (this.#count <= this.#max) return;
    const closed = this.#idle.oldestOfMost() ?? place;
    // At once, so that the next newcomer does not find it here.
    this.#remove(closed);
    closed.socket.destroy();
  }

  #remove(place: Place): void {
    if (place.isGone) return;
    place.isGone = true;
    this.#idle.delete(place.address, place);
    if (place.streams === 0) this.#count -= 1;
    if (this.#places.get(place.key) === place) this.#places.delete(place.key);
  }
}

/** The same for a connection and for the TLS session in it. */
function endpointsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
