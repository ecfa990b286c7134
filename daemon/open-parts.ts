// Opens the store with the configured keys, as the daemon's owner or as one of its workers.
import type { Clock, Logger } from '../model/ports.ts';
import { openStore, type Store } from '../store/open-store.ts';
import type { Config } from './config.ts';
import { openKeys } from './keys.ts';

export interface OpenedStore {
  readonly store: Store;
  /** What was corrected, and what is unsafe, a line each. */
  readonly warnings: readonly string[];
}

/** Rejects with a StartError. */
export async function openConfiguredStore(
  config: Config,
  parts: { readonly clock: Clock; readonly logger: Logger; readonly role: 'owner' | 'member' },
): Promise<OpenedStore> {
  const keys = openKeys(config);
  const store = await openStore({
    ...parts,
    directory: config.dataDir,
    keys: keys.ring,
    keySource: keys.source,
    defaultNetworking: config.defaultNetworking,
    auditRetention: { days: config.auditRetentionDays, bytesMax: config.auditBytesMax },
  });
  return { store, warnings: [...keys.warnings, ...store.warnings] };
}
