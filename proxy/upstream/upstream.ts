// The upstream side of the data plane, put together: pools, connections, and the choice of the HTTP version.
import type { Duplex } from 'node:stream';
import type { Authority } from '../../model/authority.ts';
import { KeyveilError } from '../../model/errors.ts';
import type { Cidr } from '../../model/ip-class.ts';
import { UPSTREAM_CONNECT_TIMEOUT_MS } from '../../model/limits.ts';
import type { Destination, Upstream, UpstreamExchange, UpstreamRequest, UpstreamRequestOptions } from '../exchange.ts';
import type { ChainedProxy } from './chained.ts';
import type { Connector } from './connector.ts';
import { createConnector } from './connector.ts';
import type { Http1ConnectionOwner } from './http1-connection.ts';
import { Http1Connection } from './http1-connection.ts';
import { Http1Exchange } from './http1-exchange.ts';
import { Http1Pool } from './http1-pool.ts';
import { serialiseRequestHead } from './http1-request.ts';
import type { Resolve } from './resolve.ts';
import { createSystemResolver } from './resolve.ts';
import { SessionSockets } from './session-sockets.ts';
import type { TlsConnector } from './tls.ts';
import { createTlsConnector } from './tls.ts';
import type { Listener } from './vet.ts';
import { createVetter } from './vet.ts';

export interface UpstreamOptions {
  /** Ranges allowed for every session (`KEYVEIL_ALLOWED_PRIVATE_CIDRS`). */
  readonly allowedCidrs: readonly Cidr[];
  /** The daemon's own sockets, as they are now; refused on every local address. */
  readonly ownListeners: () => readonly Listener[];
  /** PEM certificates trusted besides the public roots (`KEYVEIL_UPSTREAM_CA_FILE`); null for none. */
  readonly extraCaPem: string | null;
  /** `host:port` to where it is sent instead (`KEYVEIL_UPSTREAM_OVERRIDES`). */
  readonly overrides?: ReadonlyMap<string, Authority>;
  /** `KEYVEIL_UPSTREAM_PROXY`, with what is exempt from it. */
  readonly chainedProxy?: ChainedProxy | null;
  /** Default: the operating system's. */
  readonly resolve?: Resolve;
  readonly connectTimeoutMs?: number;
  readonly tlsHandshakeTimeoutMs?: number;
  readonly idleTimeoutMs?: number;
}

/** Opens nothing until it is asked to. */
export function createUpstream(options: UpstreamOptions): Upstream {
  const vetter = createVetter({ ...options, resolve: options.resolve ?? createSystemResolver() });
  const tls = createTlsConnector({
    extraCaPem: options.extraCaPem,
    ...(options.tlsHandshakeTimeoutMs === undefined ? {} : { timeoutMs: options.tlsHandshakeTimeoutMs }),
  });
  const connector = createConnector({
    vetter,
    tls,
    overrides: options.overrides ?? new Map<string, Authority>(),
    chainedProxy: options.chainedProxy ?? null,
    connectTimeoutMs: options.connectTimeoutMs ?? UPSTREAM_CONNECT_TIMEOUT_MS,
  });
  return new PooledUpstream({ connector, tls, idleTimeoutMs: options.idleTimeoutMs });
}

interface Parts {
  readonly connector: Connector;
  readonly tls: TlsConnector;
  readonly idleTimeoutMs: number | undefined;
}

class PooledUpstream implements Upstream, Http1ConnectionOwner {
  readonly #connector: Connector;
  readonly #tls: TlsConnector;
  readonly #sockets = new SessionSockets();
  readonly #pool: Http1Pool;
  #isClosed = false;

  constructor({ connector, tls, idleTimeoutMs }: Parts) {
    this.#connector = connector;
    this.#tls = tls;
    this.#pool = new Http1Pool({
      admits: (connection, destination) => connector.admits(connection.socket, destination),
      ...(idleTimeoutMs === undefined ? {} : { idleTimeoutMs }),
    });
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
    const { handlers, responseTimeoutMs, clientVersion, signal } = options;
    let exchange: Http1Exchange;
    try {
      const head = serialiseRequestHead(request, clientVersion);
      exchange = new Http1Exchange({ destination, request, head, handlers, responseTimeoutMs });
    } catch (error) {
      if (!(error instanceof KeyveilError)) throw error;
      return Promise.reject(error);
    }
    const connection = this.#pool.take(destination);
    if (connection === null) return this.#startOnNew(exchange, signal);
    connection.start(exchange);
    return exchange;
  }

  dial(destination: Destination, signal: AbortSignal): Promise<Duplex> {
    if (this.#isClosed) return Promise.reject(stopping());
    return this.#sockets.open(destination.sessionId, signal, (opening) =>
      this.#connector.openTcp(destination, opening),
    );
  }

  closeSession(sessionId: string): void {
    this.#pool.closeSession(sessionId);
    this.#sockets.closeSession(sessionId);
    this.#tls.forget(sessionId);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#pool.close();
    await this.#sockets.closeAll();
  }

  // ---- what connections report

  release(connection: Http1Connection): void {
    if (this.#isClosed) connection.drop();
    else this.#pool.put(connection);
  }

  lost(connection: Http1Connection): void {
    this.#pool.remove(connection);
  }

  replay(exchange: Http1Exchange): void {
    const { signal } = new AbortController();
    this.#startOnNew(exchange, signal).catch((error: unknown) => {
      exchange.settleError(error as Error);
    });
  }

  async #startOnNew(exchange: Http1Exchange, signal: AbortSignal): Promise<Http1Exchange> {
    const { destination } = exchange.input;
    const socket = await this.#sockets.open(destination.sessionId, signal, (opening) =>
      destination.scheme === 'http'
        ? this.#connector.openTcp(destination, opening)
        : this.#connector.openTls(destination, ['http/1.1'], opening),
    );
    const connection = new Http1Connection(socket, destination, this);
    if (exchange.isOver) connection.drop();
    else connection.start(exchange);
    return exchange;
  }
}

function stopping(): KeyveilError {
  return new KeyveilError('shutting_down', 'Keyveil is shutting down and takes no more requests.');
}
