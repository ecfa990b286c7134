// The data plane in this process.
import { createLeafCache } from '../ca/leaf-cache.ts';
import type { RootAuthority } from '../ca/root.ts';
import type { Clock, Logger, PolicyReader } from '../model/ports.ts';
import type { DenialSink } from '../proxy/denials.ts';
import type { Store } from '../store/open-store.ts';
import type { Config } from './config.ts';
import { createDataPlane, type DataPlaneParts } from './data-plane.ts';
import { explainListenError } from './listen.ts';
import type { Metrics } from './metrics.ts';
import type { PlaneHost } from './plane-host.ts';

export interface LocalHostOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly store: Store;
  readonly root: RootAuthority;
  readonly denials: DenialSink;
  readonly adminAddress: DataPlaneParts['adminAddress'];
}

/** Creates the data plane beside the admin API. */
export function createLocalHost(options: LocalHostOptions): PlaneHost {
  const { config, clock, logger, metrics, store, root, denials, adminAddress } = options;
  const policies: PolicyReader = store.openPolicies();
  const leaves = createLeafCache(root, { clock });
  const parts = { clock, logger, metrics, audit: store.audit, policies, leaves, gate: null, denials, adminAddress };
  const plane = createDataPlane(config, parts);
  metrics.gauge('keyveil_audit_queue_events', 'Audit events that are not stored yet.', () => store.audit.depth());
  metrics.gauge('keyveil_leaf_cache_entries', 'Certificates at hand for hosts.', () => leaves.stats().entries);
  metrics.gauge('keyveil_body_memory_bytes', 'Bytes of bodies held in memory.', () => plane.bodies.usage().memoryBytes);
  metrics.gauge('keyveil_spool_bytes', 'Bytes of bodies spooled to disk.', () => plane.bodies.usage().spoolBytes);
  return {
    async listen() {
      try {
        return await plane.listen();
      } catch (error) {
        throw explainListenError(error, config.proxyListen, 'KEYVEIL_PROXY_LISTEN');
      }
    },
    drain: () => plane.proxy.drain(),
    idle: () => plane.proxy.idle(),
    peers: () => Promise.resolve([]),
    caChanged: () => undefined,
    async close() {
      await plane.close();
      await policies.close();
    },
  };
}
