// What the data plane is configured with, and the ports it works through.
import type { HostSet } from '../model/host-pattern.ts';
import type { AuditSink, Clock, LeafSource, Logger, PolicyReader, ProxyMetrics, TunnelGate } from '../model/ports.ts';
import type { DenialSink } from './denials.ts';
import type { Upstream } from './exchange.ts';
import type { BodyResources } from './swap/body-resources.ts';

/** Settings of the data plane. */
export interface ProxySettings {
  /** False under `KEYVEIL_MITM=off`: every tunnel is relayed unread. */
  readonly interceptionOn: boolean;
  readonly veilOn: boolean;
  readonly veilIdleMs: number;
  /** Hosts that are relayed unread. */
  readonly passthroughHosts: HostSet;
  /** Null admits every port. */
  readonly allowedPorts: ReadonlySet<number> | null;
  readonly bodyBufferBytes: number;
  readonly responseTimeoutMs: number;
  readonly tunnelIdleTimeoutMs: number;
  readonly requestHeadersTimeoutMs: number;
  readonly handshakeTimeoutMs: number;
  readonly firstBytesTimeoutMs: number;
  readonly connectRequestTimeoutMs: number;
  readonly tunnelsPerSessionMax: number;
  readonly tunnelsMax: number;
  readonly unauthenticatedSocketsMax: number;
  readonly sessionRequestsMax: number;
  /** Null for no limit. */
  readonly sessionRequestsPerSecond: number | null;
  /** Certificate chain and key, PEM, when the proxy port itself speaks TLS. */
  readonly tls: { readonly cert: Buffer; readonly key: Buffer } | null;
}

/** Everything that the data plane meets the rest of the daemon through. */
export interface ProxyPorts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ProxyMetrics;
  readonly audit: AuditSink;
  readonly policies: PolicyReader;
  readonly leaves: LeafSource;
  /** Null where this process alone has tunnels: its own count is enough. */
  readonly gate: TunnelGate | null;
  readonly denials: DenialSink | null;
  readonly upstream: Upstream;
  readonly bodies: BodyResources;
  readonly settings: ProxySettings;
}
