// Puts the data plane together: the proxy with its upstream side, its bodies' resources and its reader of policies.
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import * as limits from '../model/limits.ts';
import type { AuditSink, Clock, LeafSource, Logger, PolicyReader, ProxyMetrics, TunnelGate } from '../model/ports.ts';
import { createProxy, type Proxy } from '../proxy/listener.ts';
import type { DenialSink } from '../proxy/denials.ts';
import type { Upstream } from '../proxy/exchange.ts';
import type { ProxySettings } from '../proxy/settings.ts';
import { createBodyResources, type BodyResources } from '../proxy/swap/body-resources.ts';
import { createUpstream } from '../proxy/upstream/upstream.ts';
import type { Config } from './config.ts';

export interface DataPlaneParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ProxyMetrics;
  readonly audit: AuditSink;
  readonly policies: PolicyReader;
  readonly leaves: LeafSource;
  readonly gate: TunnelGate | null;
  readonly denials: DenialSink;
  /** The daemon's own sockets besides the proxy's. */
  readonly adminAddress: () => AddressInfo | null;
}

export interface DataPlane {
  readonly proxy: Proxy;
  readonly upstream: Upstream;
  readonly bodies: BodyResources;
  /** Binds the proxy port. */
  listen(): Promise<AddressInfo>;
  close(): Promise<void>;
}

/** The data plane's settings, from the configuration and the fixed limits. */
function proxySettingsOf(config: Config): ProxySettings {
  return {
    interceptionOn: config.interceptionOn,
    veilOn: config.veilOn,
    veilIdleMs: config.veilIdleMs,
    passthroughHosts: config.passthroughHosts.hosts,
    allowedPorts: config.allowedPorts === 'every' ? null : config.allowedPorts,
    bodyBufferBytes: config.bodyBufferBytes,
    responseTimeoutMs: limits.RESPONSE_HEADERS_TIMEOUT_MS,
    tunnelIdleTimeoutMs: limits.TUNNEL_IDLE_TIMEOUT_MS,
    requestHeadersTimeoutMs: limits.REQUEST_HEADERS_TIMEOUT_MS,
    handshakeTimeoutMs: limits.TLS_HANDSHAKE_TIMEOUT_MS,
    firstBytesTimeoutMs: limits.FIRST_BYTES_TIMEOUT_MS,
    connectRequestTimeoutMs: limits.CONNECT_REQUEST_TIMEOUT_MS,
    tunnelsPerSessionMax: limits.TUNNELS_PER_SESSION_MAX,
    tunnelsMax: limits.TUNNELS_MAX,
    // A worker process sees its share of a session's requests, and has its share of the limits.
    unauthenticatedSocketsMax: Math.ceil(limits.UNAUTHENTICATED_SOCKETS_MAX / config.workers),
    sessionRequestsMax: Math.ceil(config.sessionRequestsMax / config.workers),
    sessionRequestsPerSecond:
      config.sessionRequestsPerSecond === null ? null : Math.ceil(config.sessionRequestsPerSecond / config.workers),
    tls:
      config.proxyTls === null
        ? null
        : { cert: Buffer.from(config.proxyTls.certPem), key: config.proxyTls.keyPem.reveal() },
  };
}

function createUpstreamOf(config: Config, ownListeners: () => readonly AddressInfo[]): Upstream {
  return createUpstream({
    allowedCidrs: config.allowedPrivateCidrs,
    ownListeners,
    extraCaPem: config.upstreamCaPem,
    overrides: config.upstreamOverrides,
    chainedProxy: config.upstreamProxy,
    noProxyHosts: config.upstreamNoProxy.hosts,
    threadPoolSize: config.threadPoolSize,
  });
}

/** Creates the data plane; nothing listens yet. */
export function createDataPlane(config: Config, parts: DataPlaneParts): DataPlane {
  let proxyAddress: AddressInfo | null = null;
  const upstream = createUpstreamOf(config, () =>
    [proxyAddress, parts.adminAddress()].filter((address) => address !== null),
  );
  const bodies = createBodyResources({
    spoolDirectory: join(config.dataDir, 'spool'),
    spoolBytes: config.spoolBytes,
    bufferBytes: config.bodyBufferBytes,
    memoryBytes: config.bodyMemoryBytes,
    growthBytes: config.swapGrowthBytes,
  });
  const proxy = createProxy({ ...parts, upstream, bodies, settings: proxySettingsOf(config) });
  return {
    proxy,
    upstream,
    bodies,
    async listen() {
      proxyAddress = await proxy.listen(config.proxyListen);
      return proxyAddress;
    },
    async close() {
      await proxy.close();
      await upstream.close();
      await bodies.close();
    },
  };
}
