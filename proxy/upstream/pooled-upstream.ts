// Sends each request on the connection that suits it: pooled or new, HTTP/1.1 or HTTP/2.
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { formatAuthority } from '../../model/authority.ts';
import { KeyveilError } from '../../model/errors.ts';
import type { Cidr } from '../../model/ip-class.ts';
import type { Destination, Upstream, UpstreamExchange, UpstreamRequest, UpstreamRequestOptions } from '../exchange.ts';
import type { Connector } from './connector.ts';
import { codeOf, givenUp, protocolFailed } from './failures.ts';
import type { Http1ConnectionOwner } from './http1-connection.ts';
import { Http1Connection } from './http1-connection.ts';
import { Http1Exchange } from './http1-exchange.ts';
import { Http1Pool } from './http1-pool.ts';
import { serialiseRequestHead } from './http1-request.ts';
import { Http2Pool } from './http2-client.ts';
import { Http2Exchange } from './http2-exchange.ts';
import type { ProbeTimes } from './http2-probe.ts';
import { OriginVersions } from './origin-versions.ts';
import { SessionSockets } from './session-sockets.ts';
import type { AlpnProtocol, TlsConnector } from './tls.ts';

const NO_COMMON_PROTOCOL = 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL'; // RFC 7301 section 3.2

export interface PooledUpstreamParts {
  readonly connector: Connector;
  readonly tls: TlsConnector;
  readonly idleTimeoutMs?: number;
  readonly probeTimes?: ProbeTimes;
}

export class PooledUpstream implements Upstream, Http1ConnectionOwner {
  readonly #connector: Connector;
  readonly #tls: TlsConnector;
  readonly #sockets = new SessionSockets();
  readonly #http1: Http1Pool;
  readonly #http2: Http2Pool;
  readonly #versions = new OriginVersions();
  /** Handshakes that may end in HTTP/2, by session and origin: others wait for them in place of making their own. */
  readonly #openings = new Map<string, Promise<void>>();
  #isClosed = false;

  constructor(parts: PooledUpstreamParts) {
    const { connector, tls, ...timing } = parts;
    this.#connector = connector;
    this.#tls = tls;
    this.#http1 = new Http1Pool({
      ...timing,
      admits: (connection, destination) => connector.admits(connection.socket, destination),
    });
    this.#http2 = new Http2Pool({ ...timing, admits: (socket, destination) => connector.admits(socket, destination) });
  }

  isConnected(destination: Destination): boolean {
    // Its address can only be looked at by asking for it.
    if (this.#connector.isProxied(destination)) return false;
    return this.#http1.has(destination) || this.#http2.has(destination);
  }

  vet(destination: Destination, signal: AbortSignal): Promise<void> {
    return this.#connector.vet(destination, signal);
  }

  request(
    destination: Destination,
    request: UpstreamRequest,
    options: UpstreamRequestOptions,
  ): UpstreamExchange | Promise<UpstreamExchange> {
    if (this.#isClosed) return Promise.reject(stopping());
    try {
      if (this.#wantsHttp2(destination, request, options)) return this.#requestHttp2(destination, request, options);
      const exchange = this.#http1Exchange(destination, request, options);
      return this.#startOnIdle(exchange) ? exchange : this.#startHttp1(exchange, request, options);
    } catch (error) {
      return Promise.reject(
        error instanceof KeyveilError
          ? error
          : protocolFailed(destination.authority, 'its connection is unusable', error),
      );
    }
  }

  async speaksHttp2(destination: Destination, signal: AbortSignal): Promise<boolean> {
    if (destination.scheme === 'http') return false;
    const known = this.#versions.of(destination);
    if (known !== undefined) return known === 'h2' || known === 'h2-only';
    const socket = await this.#openTls(destination, ['h2', 'http/1.1'], signal);
    const isHttp2 = socket.alpnProtocol === 'h2';
    socket.destroy();
    this.#versions.remember(destination, isHttp2 ? 'h2' : 'http/1.1');
    return isHttp2;
  }

  dial(destination: Destination, signal: AbortSignal): Promise<Duplex> {
    if (this.#isClosed) return Promise.reject(stopping());
    return this.#sockets.open(destination, signal, (opening) => this.#connector.openTcp(destination, opening));
  }

  closeSession(sessionId: string): void {
    this.#http1.closeSession(sessionId);
    this.#sockets.closeSession(sessionId);
    this.#tls.forget(sessionId);
  }

  keepAdmitted(sessionId: string, allowedPrivateCidrs: readonly Cidr[]): void {
    this.#sockets.closeUnless(
      sessionId,
      (socket, destination) =>
        // What is closing has no address to look at.
        socket.destroyed || this.#connector.admits(socket, { ...destination, allowedPrivateCidrs }),
    );
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#http1.close();
    await this.#sockets.closeAll();
  }

  // ---- what HTTP/1.1 connections report

  release(connection: Http1Connection): void {
    if (this.#isClosed) connection.drop();
    else this.#http1.put(connection);
  }

  lost(connection: Http1Connection): void {
    this.#http1.remove(connection);
  }

  replay(exchange: Http1Exchange, lost: Http1Connection): void {
    if (this.#refusesReplay(exchange, lost.socket)) return;
    const { signal } = new AbortController();
    this.#startOnNew(exchange, signal).catch((error: unknown) => {
      exchange.settleError(error as Error);
    });
  }

  // ---- HTTP/1.1

  #http1Exchange(destination: Destination, request: UpstreamRequest, options: UpstreamRequestOptions): Http1Exchange {
    const { handlers, responseTimeoutMs, clientVersion } = options;
    const head = serialiseRequestHead(request, clientVersion);
    const onForeignAnswer = (): void => this.#versions.doubtHttp1(destination);
    return new Http1Exchange({ destination, request, head, handlers, responseTimeoutMs, onForeignAnswer });
  }

  #startOnIdle(exchange: Http1Exchange): boolean {
    const connection = this.#http1.take(exchange.input.destination);
    connection?.start(exchange);
    return connection !== null;
  }

  async #startHttp1(
    exchange: Http1Exchange,
    request: UpstreamRequest,
    options: UpstreamRequestOptions,
  ): Promise<UpstreamExchange> {
    const { destination } = exchange.input;
    try {
      return await this.#startOnNew(exchange, options.signal);
    } catch (error) {
      if (!isHttp2Only(error) || request.upgrade !== undefined) throw error;
      this.#versions.remember(destination, 'h2-only');
      return this.#startHttp2(this.#http2Exchange(destination, request, options), options);
    }
  }

  async #startOnNew(exchange: Http1Exchange, signal: AbortSignal): Promise<Http1Exchange> {
    const { destination } = exchange.input;
    const socket =
      destination.scheme === 'https'
        ? await this.#openTls(destination, ['http/1.1'], signal)
        : await this.#sockets.open(destination, signal, (opening) => this.#connector.openTcp(destination, opening));
    this.#startHttp1On(socket, exchange);
    return exchange;
  }

  #startHttp1On(socket: Duplex, exchange: Http1Exchange): void {
    const connection = new Http1Connection(socket, exchange.input.destination, this);
    if (exchange.isOver) connection.drop();
    else connection.start(exchange);
  }

  // ---- HTTP/2

  #wantsHttp2(destination: Destination, request: UpstreamRequest, { clientVersion }: UpstreamRequestOptions): boolean {
    if (destination.scheme === 'http' || request.upgrade !== undefined) return false;
    const known = this.#versions.of(destination);
    return known === 'h2-only' || (clientVersion === '2' && known !== 'http/1.1-required');
  }

  #http2Exchange(destination: Destination, request: UpstreamRequest, options: UpstreamRequestOptions): Http2Exchange {
    const { handlers, responseTimeoutMs } = options;
    const replay = (exchange: Http2Exchange, lostSocket: Duplex): void => {
      if (!this.#refusesReplay(exchange, lostSocket)) this.#replayHttp2(exchange);
    };
    const replayByHttp1 = (exchange: Http2Exchange, lostSocket: Duplex): UpstreamExchange | null =>
      this.#refusesReplay(exchange, lostSocket) ? null : this.#replayByHttp1(exchange, options);
    const requireHttp1 = (): void => this.#versions.remember(destination, 'http/1.1-required');
    const repeats = { replay, requireHttp1, replayByHttp1 };
    return new Http2Exchange({ destination, request, handlers, responseTimeoutMs, repeats });
  }

  #requestHttp2(
    destination: Destination,
    request: UpstreamRequest,
    options: UpstreamRequestOptions,
  ): UpstreamExchange | Promise<UpstreamExchange> {
    const exchange = this.#http2Exchange(destination, request, options);
    if (this.#http2.start(exchange)) return exchange;
    if (this.#versions.of(destination) === 'http/1.1') {
      const plain = this.#http1Exchange(destination, request, options);
      if (this.#startOnIdle(plain)) return plain;
    }
    return this.#startHttp2(exchange, options);
  }

  /** One handshake decides for all that wait for it; after it agreed on HTTP/1.1 each opens its own connection. */
  async #startHttp2(exchange: Http2Exchange, options: UpstreamRequestOptions): Promise<UpstreamExchange> {
    const { destination, request } = exchange.input;
    const key = `${destination.sessionId} ${formatAuthority(destination.authority)}`;
    for (let opening = this.#openings.get(key); opening !== undefined; opening = this.#openings.get(key)) {
      await opening;
      if (options.signal.aborted) throw givenUp(destination.authority, options.signal.reason);
      if (this.#http2.start(exchange)) return exchange;
      if (this.#versions.of(destination) === 'http/1.1') break;
    }
    const opening = this.#openTls(destination, ['h2', 'http/1.1'], options.signal);
    const settled = opening.then(noop, noop);
    this.#openings.set(key, settled);
    try {
      const socket = await opening;
      if (socket.alpnProtocol === 'h2') {
        this.#versions.rememberHttp2(destination);
        this.#http2.startOn(socket, exchange);
        return exchange;
      }
      this.#versions.remember(destination, 'http/1.1');
      const plain = this.#http1Exchange(destination, request, options);
      this.#startHttp1On(socket, plain);
      return plain;
    } finally {
      if (this.#openings.get(key) === settled) this.#openings.delete(key);
    }
  }

  #replayHttp2(exchange: Http2Exchange): void {
    const { destination } = exchange.input;
    const { signal } = new AbortController();
    this.#openTls(destination, ['h2'], signal)
      .then((socket) => {
        if (exchange.isOver) socket.destroy();
        else if (socket.alpnProtocol === 'h2') this.#http2.startOn(socket, exchange);
        else throw protocolFailed(destination.authority, 'it does not speak HTTP/2 any more');
      })
      .catch((error: unknown) => {
        exchange.settleError(error as Error);
      });
  }

  #replayByHttp1(exchange: Http2Exchange, options: UpstreamRequestOptions): UpstreamExchange | null {
    const { destination, request } = exchange.input;
    try {
      const plain = this.#http1Exchange(destination, request, options);
      this.#startOnNew(plain, new AbortController().signal).catch((error: unknown) => {
        plain.settleError(error as Error);
      });
      return plain;
    } catch (error) {
      exchange.settleError(error as Error);
      return null;
    }
  }

  // ---- both

  #refusesReplay(exchange: Http1Exchange | Http2Exchange, lostSocket: Duplex): boolean {
    if (!this.#isClosed && !this.#sockets.wasClosed(lostSocket)) return false;
    exchange.settleError(protocolFailed(exchange.input.destination.authority, 'its connection was closed by Keyveil'));
    return true;
  }

  #openTls(destination: Destination, alpnProtocols: readonly AlpnProtocol[], signal: AbortSignal): Promise<TLSSocket> {
    return this.#sockets.open(destination, signal, (opening) =>
      this.#connector.openTls(destination, alpnProtocols, opening),
    );
  }
}

function noop(): void {
  // The outcome of a handshake is handled by the one who began it.
}

function isHttp2Only(error: unknown): boolean {
  return error instanceof KeyveilError && codeOf(error.cause) === NO_COMMON_PROTOCOL;
}

function stopping(): KeyveilError {
  return new KeyveilError('shutting_down', 'Keyveil is shutting down and takes no more requests.');
}
