// The composition root: the only place where store, CA, proxy and admin API meet.
import { hostname } from 'node:os';
import type { AddressInfo } from 'node:net';
import { createAdminServer, type AdminServerOptions } from '../admin-api/server.ts';
import { createCaExport } from '../ca/bundle.ts';
import { createLeafCache } from '../ca/leaf-cache.ts';
import { openRoot, type RootAuthority } from '../ca/root.ts';
import type { CaExport, Clock, Logger, PolicyReader } from '../model/ports.ts';
import { createReservedNameCheck } from '../model/reserved-names.ts';
import { prepareDataDirectory } from '../store/data-directory.ts';
import { openStore, type Store } from '../store/open-store.ts';
import { openAdminToken, type AdminTokenSource } from './admin-token.ts';
import type { Config } from './config.ts';
import { createDataPlane, type DataPlane } from './data-plane.ts';
import { openKeys } from './keys.ts';
import { adminSocketPathOf, explainListenError, listenPrivately, prepareSocketPath } from './listen.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { VERSION } from './version.ts';

export interface DaemonOptions {
  readonly logger: Logger;
  readonly clock?: Clock;
}

/** A running daemon. */
export interface Daemon {
  readonly proxyAddress: AddressInfo;
  readonly adminAddress: AddressInfo;
  readonly socketPath: string;
  /** Refuses new tunnels and requests, waits for those under way, at most `KEYVEIL_DRAIN_SECONDS`. */
  drain(): Promise<void>;
  /** Stops everything and waits for it; nothing that was acknowledged is lost. */
  close(): Promise<void>;
  readonly closed: Promise<void>;
}

const SYSTEM_CLOCK: Clock = { now: () => Date.now() };

/** Closes what was opened, last first, whatever happened to the others. */
class Closers {
  readonly #steps: (() => Promise<void> | void)[] = [];

  add(step: () => Promise<void> | void): void {
    this.#steps.push(step);
  }

  async run(): Promise<void> {
    const failures: unknown[] = [];
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}

interface Opened {
  readonly config: Config;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Store;
  readonly root: RootAuthority;
  readonly ca: CaExport;
  readonly metrics: Metrics;
  readonly token: AdminTokenSource;
  readonly closers: Closers;
}

async function openParts(config: Config, options: DaemonOptions, closers: Closers): Promise<Opened> {
  const clock = options.clock ?? SYSTEM_CLOCK;
  const { logger } = options;
  const directoryWarnings = prepareDataDirectory(config.dataDir);
  const keys = openKeys(config);
  const store = await openStore({
    directory: config.dataDir,
    keys: keys.ring,
    keySource: keys.source,
    clock,
    logger,
    defaultNetworking: config.defaultNetworking,
    auditRetention: { days: config.auditRetentionDays, bytesMax: config.auditBytesMax },
  });
  closers.add(() => store.close());
  const root = await openRoot(store.sealedItems, { clock, hostName: hostname() });
  const token = openAdminToken(config);
  const ca = createCaExport(root, { upstreamCas: config.upstreamCaPem === null ? [] : [config.upstreamCaPem] });
  const metrics = createMetrics();
  closers.add(() => metrics.close());
  const warnings = [...config.warnings, ...directoryWarnings, ...keys.warnings, ...store.warnings, ...token.warnings];
  for (const warning of warnings) logger.warn({}, warning);
  return { config, clock, logger, store, root, ca, metrics, token, closers };
}

function adminOptionsOf(
  opened: Opened,
  addresses: { proxy: () => AddressInfo | null },
): Omit<AdminServerOptions, 'trust'> {
  const { config, store, ca, clock, logger, metrics, token } = opened;
  return {
    store: store.control,
    audit: store.audit,
    ca,
    clock,
    logger,
    adminTokenDigests: () => token.digests(),
    adminHosts: config.adminHosts.patterns,
    sessionSettings: {
      interceptionOn: config.interceptionOn,
      isReserved: createReservedNameCheck(config.reservedNames),
      passthroughHosts: config.passthroughHosts.hosts,
      defaultNetworking: config.defaultNetworking,
    },
    sessionTtlSeconds: config.sessionTtlSeconds,
    advertisedProxyUrl: () => advertisedUrlOf(config, addresses.proxy()),
    isProxyListening: () => addresses.proxy() !== null,
    metricsText: () => metrics.text(),
    metricsContentType: metrics.contentType,
    metricsPublic: config.metricsPublic,
    version: VERSION,
  };
}

// Listening on every address says nothing of how a sandbox reaches it; loopback is right for those on this machine.
function advertisedUrlOf(config: Config, address: AddressInfo | null): string {
  if (config.advertisedProxyUrl !== null) return config.advertisedProxyUrl;
  const { host } = config.proxyListen;
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return `${config.proxyTls === null ? 'http' : 'https'}://${name}:${address?.port ?? config.proxyListen.port}`;
}

async function listenAdmin(opened: Opened, addresses: { proxy: () => AddressInfo | null }) {
  const { config, closers } = opened;
  const base = adminOptionsOf(opened, addresses);
  const { adminTls } = config;
  const tls = adminTls === null ? {} : { tls: { cert: adminTls.certPem, key: adminTls.keyPem.reveal() } };
  const tcp = createAdminServer({ ...base, ...tls, trust: 'tcp' });
  closers.add(() => tcp.close());
  try {
    await tcp.listen({ host: config.adminListen.host, port: config.adminListen.port });
  } catch (error) {
    throw explainListenError(error, config.adminListen, 'KEYVEIL_ADMIN_LISTEN');
  }
  const socketPath = adminSocketPathOf(config.dataDir);
  prepareSocketPath(socketPath);
  const local = createAdminServer({ ...base, trust: 'socket' });
  closers.add(() => local.close());
  await listenPrivately(socketPath, () => local.listen({ path: socketPath }));
  return { adminAddress: tcp.server.address() as AddressInfo, socketPath };
}

function addGauges(opened: Opened, plane: DataPlane, leaves: { stats(): { entries: number } }): void {
  const { metrics, store } = opened;
  metrics.gauge('keyveil_audit_queue_events', 'Audit events that are not stored yet.', () => store.audit.depth());
  metrics.gauge('keyveil_leaf_cache_entries', 'Certificates at hand for hosts.', () => leaves.stats().entries);
  metrics.gauge('keyveil_body_memory_bytes', 'Bytes of bodies held in memory.', () => plane.bodies.usage().memoryBytes);
  metrics.gauge('keyveil_spool_bytes', 'Bytes of bodies spooled to disk.', () => plane.bodies.usage().spoolBytes);
}

async function withTimeout(work: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([work, timeout]);
  clearTimeout(timer);
}

async function start(config: Config, options: DaemonOptions, closers: Closers): Promise<Daemon> {
  const opened = await openParts(config, options, closers);
  const { store, root, clock, logger, metrics } = opened;
  const policies: PolicyReader = store.openPolicies();
  closers.add(() => policies.close());
  const leaves = createLeafCache(root, { clock });
  let adminAddress: AddressInfo | null = null;
  let proxyAddress: AddressInfo | null = null;
  const plane = createDataPlane(config, {
    clock,
    logger,
    metrics,
    audit: store.audit,
    policies,
    leaves,
    adminAddress: () => adminAddress,
  });
  closers.add(() => plane.close());
  addGauges(opened, plane, leaves);
  const admin = await listenAdmin(opened, { proxy: () => proxyAddress });
  adminAddress = admin.adminAddress;
  try {
    proxyAddress = await plane.listen();
  } catch (error) {
    throw explainListenError(error, config.proxyListen, 'KEYVEIL_PROXY_LISTEN');
  }
  let markClosed: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => (markClosed = resolve));
  let closing: Promise<void> | null = null;
  return {
    proxyAddress,
    ...admin,
    closed,
    async drain() {
      plane.proxy.drain();
      await withTimeout(plane.proxy.idle(), config.drainSeconds * 1000);
    },
    close() {
      closing ??= closers.run().finally(markClosed);
      return closing;
    },
  };
}

/**
 * Starts a daemon. Rejects with a StartError (one clear line) when it can't; whatever was opened by then is closed
 * again, and nothing is overwritten.
 */
export async function startDaemon(config: Config, options: DaemonOptions): Promise<Daemon> {
  const closers = new Closers();
  try {
    return await start(config, options, closers);
  } catch (error) {
    await closers.run().catch(() => undefined);
    throw error;
  }
}
