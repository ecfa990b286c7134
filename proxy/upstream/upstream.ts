// The upstream side of the data plane, put together.
import type { Authority } from '../../model/authority.ts';
import type { HostSet } from '../../model/host-pattern.ts';
import { createHostSet } from '../../model/host-pattern.ts';
import type { Cidr } from '../../model/ip-class.ts';
import { UPSTREAM_CONNECT_TIMEOUT_MS } from '../../model/limits.ts';
import type { Upstream } from '../exchange.ts';
import type { ChainedProxy } from './chained.ts';
import { createConnector } from './connector.ts';
import type { ProbeTimes } from './http2-probe.ts';
import { PooledUpstream } from './pooled-upstream.ts';
import type { Resolve } from './resolve.ts';
import { createSystemResolver } from './resolve.ts';
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
  /** `KEYVEIL_UPSTREAM_PROXY`. */
  readonly chainedProxy?: ChainedProxy | null;
  /** `KEYVEIL_UPSTREAM_NO_PROXY`: hosts that are reached without it. */
  readonly noProxyHosts?: HostSet;
  /** Default: the operating system's. */
  readonly resolve?: Resolve;
  /** Threads of the runtime's pool, which look-ups share. Default: the runtime's. */
  readonly threadPoolSize?: number | null;
  readonly connectTimeoutMs?: number;
  readonly tlsHandshakeTimeoutMs?: number;
  readonly idleTimeoutMs?: number;
  readonly probeTimes?: ProbeTimes;
}

const TLS_PREPARE_DELAY_MS = 1000;

/** Opens nothing until it is asked to. */
export function createUpstream(options: UpstreamOptions): Upstream {
  const { threadPoolSize = null } = options;
  const resolve = options.resolve ?? createSystemResolver(threadPoolSize === null ? {} : { threadPoolSize });
  const vetter = createVetter({ ...options, resolve });
  const tls = createTlsConnector({
    extraCaPem: options.extraCaPem,
    ...(options.tlsHandshakeTimeoutMs === undefined ? {} : { timeoutMs: options.tlsHandshakeTimeoutMs }),
  });
  // Nobody who waits for the start has to wait for this.
  setTimeout(() => tls.prepare(), TLS_PREPARE_DELAY_MS).unref();
  const connector = createConnector({
    vetter,
    tls,
    overrides: options.overrides ?? new Map<string, Authority>(),
    chainedProxy: options.chainedProxy ?? null,
    noProxyHosts: options.noProxyHosts ?? createHostSet([]),
    connectTimeoutMs: options.connectTimeoutMs ?? UPSTREAM_CONNECT_TIMEOUT_MS,
  });
  return new PooledUpstream({
    connector,
    tls,
    ...(options.idleTimeoutMs === undefined ? {} : { idleTimeoutMs: options.idleTimeoutMs }),
    ...(options.probeTimes === undefined ? {} : { probeTimes: options.probeTimes }),
  });
}
