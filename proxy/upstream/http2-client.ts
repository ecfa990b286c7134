// HTTP/2 connections to upstreams, kept per session and origin, each with as many streams as its peer allows.
import type { ClientHttp2Session, Settings } from 'node:http2';
import { connect, constants } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { formatAuthority } from '../../model/authority.ts';
import type { Cidr } from '../../model/ip-class.ts';
import {
  HEADER_FIELDS_MAX,
  HTTP2_SEND_HEADER_BLOCK_BYTES_MAX,
  HTTP2_UPSTREAM_STREAM_WINDOW_BYTES,
  HTTP2_UPSTREAM_CONNECTION_WINDOW_BYTES,
  POOL_IDLE_TIMEOUT_MS,
  RESPONSE_HEADER_BLOCK_BYTES_MAX,
} from '../../model/limits.ts';
import type { Destination } from '../exchange.ts';
import type { Http2Carrier, Http2Exchange } from './http2-exchange.ts';
import { Http2Probe, type ProbeTimes } from './http2-probe.ts';

// What a peer may be asked for before its SETTINGS have come (RFC 9113 section 6.5.2 recommends at least 100).
const STREAMS_BEFORE_SETTINGS = 100;

export interface Http2PoolOptions {
  /** Whether the peer of a connection may still be reached by a destination that has other ranges allowed now. */
  readonly admits: (socket: TLSSocket, destination: Destination) => boolean;
  readonly idleTimeoutMs?: number;
  readonly probeTimes?: ProbeTimes;
}

class Http2Connection implements Http2Carrier {
  readonly session: ClientHttp2Session;
  readonly socket: TLSSocket;
  readonly exchanges = new Set<Http2Exchange>();
  readonly probe: Http2Probe;
  readonly #onGone: (connection: Http2Connection) => void;
  readonly #idleTimer: NodeJS.Timeout;
  admittedUnder: readonly Cidr[];
  lastStreamId = Infinity;
  wantsHttp1 = false;
  wasUsed = false;
  #isGone = false;
  #streamsMax = STREAMS_BEFORE_SETTINGS;

  constructor(
    socket: TLSSocket,
    destination: Destination,
    options: Omit<Http2PoolOptions, 'admits'> & { onGone: (connection: Http2Connection) => void },
  ) {
    this.socket = socket;
    this.admittedUnder = destination.allowedPrivateCidrs;
    this.#onGone = options.onGone;
    this.session = connect(`https://${formatAuthority(destination.authority)}`, {
      createConnection: () => socket,
      settings: {
        enablePush: false,
        initialWindowSize: HTTP2_UPSTREAM_STREAM_WINDOW_BYTES,
        maxHeaderListSize: RESPONSE_HEADER_BLOCK_BYTES_MAX,
      },
      maxHeaderListPairs: HEADER_FIELDS_MAX,
      maxSendHeaderBlockLength: HTTP2_SEND_HEADER_BLOCK_BYTES_MAX,
    });
    this.#idleTimer = setTimeout(() => {
      if (this.exchanges.size === 0) this.retire();
    }, options.idleTimeoutMs ?? POOL_IDLE_TIMEOUT_MS).unref();
    this.probe = new Http2Probe({
      session: this.session,
      socket,
      isSending: () => [...this.exchanges].some((exchange) => exchange.isSending),
      times: options.probeTimes,
    });
    this.session.on('connect', () => {
      this.session.setLocalWindowSize(HTTP2_UPSTREAM_CONNECTION_WINDOW_BYTES);
    });
    this.session.on('remoteSettings', (settings: Settings) => {
      this.#streamsMax = settings.maxConcurrentStreams ?? Infinity;
    });
    this.session.on('goaway', (code: number, lastStreamId: number) => {
      this.lastStreamId = lastStreamId;
      this.wantsHttp1 = code === constants.NGHTTP2_HTTP_1_1_REQUIRED;
      this.#leave();
    });
    // Every stream hears of the session's end by its own `close`; without a listener the error would be thrown.
    this.session.on('error', this.#leave);
    this.session.on('close', () => {
      this.probe.stop();
      this.#leave();
    });
  }

  get hasRoom(): boolean {
    return !this.#isGone && !this.session.closed && !this.session.destroyed && this.exchanges.size < this.#streamsMax;
  }

  start(exchange: Http2Exchange): void {
    this.exchanges.add(exchange);
    this.probe.begin();
    try {
      exchange.start(this);
    } catch (error) {
      this.settled(exchange);
      throw error;
    }
  }

  settled(exchange: Http2Exchange): void {
    this.wasUsed = true;
    this.exchanges.delete(exchange);
    this.probe.end();
    if (this.exchanges.size > 0) return;
    if (this.#isGone) this.retire();
    else this.#idleTimer.refresh();
  }

  /** Takes no more requests, and closes when those under way are done. */
  retire(): void {
    this.#leave();
    if (!this.session.destroyed) this.session.close();
  }

  readonly #leave = (): void => {
    if (this.#isGone) return;
    this.#isGone = true;
    clearTimeout(this.#idleTimer);
    this.#onGone(this);
  };
}

/** The open HTTP/2 connections. Their sockets are closed by whoever keeps account of sockets. */
export class Http2Pool {
  readonly #connections = new Map<string, Http2Connection[]>();
  readonly #options: Http2PoolOptions;

  constructor(options: Http2PoolOptions) {
    this.#options = options;
  }

  /** Whether `start` would find one. */
  has(destination: Destination): boolean {
    const open = this.#connections.get(keyOf(destination)) ?? [];
    return open.some((connection) => connection.hasRoom && this.#isAdmitted(connection, destination));
  }

  /** Starts the exchange on a connection that is open and has room; false when there is none. Throws as its `start`. */
  start(exchange: Http2Exchange): boolean {
    const { destination } = exchange.input;
    for (const connection of this.#connections.get(keyOf(destination)) ?? []) {
      if (!connection.hasRoom || !this.#isAdmitted(connection, destination)) continue;
      connection.start(exchange);
      return true;
    }
    return false;
  }

  /** Takes a socket on which HTTP/2 was agreed, and starts the exchange there. Throws as its `start`. */
  startOn(socket: TLSSocket, exchange: Http2Exchange): void {
    const { destination } = exchange.input;
    const key = keyOf(destination);
    const connection = new Http2Connection(socket, destination, {
      ...this.#options,
      onGone: (gone) => {
        const left = (this.#connections.get(key) ?? []).filter((other) => other !== gone);
        if (left.length === 0) this.#connections.delete(key);
        else this.#connections.set(key, left);
      },
    });
    const open = this.#connections.get(key);
    if (open === undefined) this.#connections.set(key, [connection]);
    else open.push(connection);
    connection.start(exchange);
  }

  #isAdmitted(connection: Http2Connection, destination: Destination): boolean {
    if (connection.admittedUnder === destination.allowedPrivateCidrs) return true;
    if (!this.#options.admits(connection.socket, destination)) {
      connection.retire();
      return false;
    }
    connection.admittedUnder = destination.allowedPrivateCidrs;
    return true;
  }
}

function keyOf(destination: Destination): string {
  return `${destination.sessionId} ${formatAuthority(destination.authority)}`;
}
