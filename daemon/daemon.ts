// The composition root: the only place where store, CA, proxy and admin API meet.
import { hostname } from 'node:os';
import type { AddressInfo } from 'node:net';
import type * as AdminApi from '../admin-api/server.ts';
import { createCaExport } from '../ca/bundle.ts';
import { openRoot, type RootAuthority } from '../ca/root.ts';
import type { CaControl, CaExport, CaStatus, Clock, Logger } from '../model/ports.ts';
import { createId } from '../model/ids.ts';
import { createReservedNameCheck } from '../model/reserved-names.ts';
import { prepareDataDirectory } from '../store/data-directory.ts';
import type { Store } from '../store/open-store.ts';
import { openAdminToken, type AdminTokenSource } from './admin-token.ts';
import type { Config } from './config.ts';
import { Closers } from './closers.ts';
import { DenialCounter } from './denial-counter.ts';
import {
  adminSocketPathOf,
  explainListenError,
  listenPrivately,
  prepareSocketPath,
  requireFreeAddresses,
} from './listen.ts';
import { createLocalHost } from './local-host.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { openConfiguredStore } from './open-parts.ts';
import type { PlaneHost } from './plane-host.ts';
import { VERSION } from './version.ts';
import { StopDeadline } from './stop-deadline.ts';
import { createWorkerHost } from './worker-host.ts';

export interface DaemonOptions {
  readonly logger: Logger;
  readonly clock?: Clock;
}

/** A running daemon. */
export interface Daemon {
  readonly proxyAddress: AddressInfo;
  readonly adminAddress: AddressInfo;
  readonly socketPath: string;
  /**
   * Refuses new tunnels and requests, and waits for those under way. `KEYVEIL_DRAIN_SECONDS` from the first of this and
   * `close` on, whatever is still open is cut.
   */
  drain(): Promise<void>;
  /** Stops everything and waits for it; nothing that was acknowledged is lost. */
  close(): Promise<void>;
  readonly closed: Promise<void>;
}

const SYSTEM_CLOCK: Clock = { now: () => Date.now() };

interface Opened {
  readonly config: Config;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Store;
  readonly root: RootAuthority;
  readonly ca: CaExport;
  readonly metrics: Metrics;
  readonly token: AdminTokenSource;
  /** The CA's rotation, told to the other processes. */
  readonly caControl: CaControl;
  readonly caListeners: Set<() => void>;
  readonly closers: Closers;
  readonly deadline: StopDeadline;
}

function announce(root: RootAuthority, onChange: () => void): CaControl {
  const step = async (work: () => Promise<CaStatus>): Promise<CaStatus> => {
    const status = await work();
    onChange();
    return status;
  };
  return {
    status: () => root.status(),
    rotate: () => step(() => root.rotate()),
    retire: () => step(() => root.retire()),
  };
}

async function openParts(config: Config, options: DaemonOptions, closers: Closers): Promise<Opened> {
  const clock = options.clock ?? SYSTEM_CLOCK;
  const { logger } = options;
  const directoryWarnings = prepareDataDirectory(config.dataDir);
  const { store, warnings: storeWarnings } = await openConfiguredStore(config, { clock, logger, role: 'owner' });
  closers.add(() => store.close());
  const root = await openRoot(store.sealedItems, { clock, hostName: hostname() });
  const token = openAdminToken(config, logger);
  const ca = createCaExport(root, { upstreamCas: config.upstreamCaPem === null ? [] : [config.upstreamCaPem] });
  const metrics = createMetrics();
  closers.add(() => metrics.close());
  const warnings = [...config.warnings, ...directoryWarnings, ...storeWarnings, ...token.warnings];
  for (const warning of warnings) logger.warn({}, warning);
  const caListeners = new Set<() => void>();
  const caControl = announce(root, () => {
    for (const listener of caListeners) listener();
  });
  const deadline = new StopDeadline(config.drainSeconds * 1000);
  return { config, clock, logger, store, root, ca, metrics, token, caControl, caListeners, closers, deadline };
}

function adminOptionsOf(
  opened: Opened,
  addresses: { proxy: () => AddressInfo | null },
): Omit<AdminApi.AdminServerOptions, 'trust'> {
  const { config, store, ca, clock, logger, metrics, token } = opened;
  return {
    store: store.control,
    audit: store.audit,
    ca,
    caControl: opened.caControl,
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

async function listenAdmin(
  { createAdminServer }: typeof AdminApi,
  opened: Opened,
  addresses: { proxy: () => AddressInfo | null },
) {
  const { config, closers, deadline } = opened;
  const base = adminOptionsOf(opened, addresses);
  const { adminTls } = config;
  const tls = adminTls === null ? {} : { tls: { cert: adminTls.certPem, key: adminTls.keyPem.reveal() } };
  const tcp = createAdminServer({ ...base, ...tls, trust: 'tcp' });
  closers.add(() => deadline.closeServer(tcp));
  try {
    await tcp.listen({ host: config.adminListen.host, port: config.adminListen.port });
  } catch (error) {
    throw explainListenError(error, config.adminListen, 'KEYVEIL_ADMIN_LISTEN');
  }
  const socketPath = adminSocketPathOf(config.dataDir);
  prepareSocketPath(socketPath);
  const local = createAdminServer({ ...base, trust: 'socket' });
  closers.add(() => deadline.closeServer(local));
  await listenPrivately(socketPath, () => local.listen({ path: socketPath }));
  return { adminAddress: tcp.server.address() as AddressInfo, socketPath };
}

function createDenials(opened: Opened): DenialCounter {
  const { config, clock, logger, store, metrics } = opened;
  return new DenialCounter({
    clock,
    logger,
    limitOf: async (id) => (await store.control.sessions.get(id)).denialLimit ?? config.denialLimit,
    suspend: async (id, reason) => {
      await store.control.sessions.suspend(id, reason);
      metrics.suspension();
      const now = clock.now();
      const requestId = createId('request', now);
      const event = { id: createId('auditEvent', now), createdAt: now, actor: 'keyveil', action: 'session.suspend' };
      store.audit.recordAdmin({ ...event, objectId: id, requestId });
    },
  });
}

async function withTimeout(work: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([work, timeout]);
  clearTimeout(timer);
}

async function start(config: Config, options: DaemonOptions, closers: Closers): Promise<Daemon> {
  await requireFreeAddresses(config);
  // The API and its framework are loaded while the audit writer's thread starts, for which the store waits.
  const opening = openParts(config, options, closers);
  const loading = import('../admin-api/server.ts');
  // What fails first must not leave the other one opening, or failing unheard.
  await Promise.allSettled([opening, loading]);
  const [opened, adminApi] = [await opening, await loading];
  const { metrics, logger } = opened;
  let adminAddress: AddressInfo | null = null;
  let proxyAddress: AddressInfo | null = null;
  const denials = createDenials(opened);
  const host: PlaneHost =
    config.workers === 1
      ? createLocalHost({ ...opened, denials, adminAddress: () => adminAddress })
      : createWorkerHost({
          count: config.workers,
          threadPoolSize: config.threadPoolSize,
          keys: config,
          logger,
          denials,
          adminAddress: () => adminAddress as AddressInfo,
        });
  closers.add(() => host.close());
  metrics.addPeers(() => host.peers());
  opened.caListeners.add(() => host.caChanged());
  const admin = await listenAdmin(adminApi, opened, { proxy: () => proxyAddress });
  adminAddress = admin.adminAddress;
  proxyAddress = await host.listen();
  let markClosed: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => (markClosed = resolve));
  let closing: Promise<void> | null = null;
  return {
    proxyAddress,
    ...admin,
    closed,
    async drain() {
      host.drain();
      await withTimeout(host.idle(), opened.deadline.remainingMs());
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
