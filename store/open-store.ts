// Opens everything that is stored in a data directory, and hands it out behind the interfaces of the model.
import type { EnvironmentNetworking } from '../model/networking.ts';
import type { Clock, ControlStore, Logger, PolicyReader, SealedItems, Settings } from '../model/ports.ts';
import { createAdminTokenStore } from './admin-tokens.ts';
import { openAuditLog, type AuditRetention, type OpenedAuditLog } from './audit-log.ts';
import { establishCanary, requireKeyFits } from './canary.ts';
import { read, type ControlContext } from './control-context.ts';
import { createCredentialStore } from './credentials.ts';
import { acquireDataLock, dataPathsOf, type DataLock } from './data-directory.ts';
import { AUDIT_DATABASE, CONTROL_DATABASE, openExisting, openOwnedDatabase, type Database } from './database.ts';
import { createEnvironmentStore } from './environments.ts';
import type { KeyRing } from './key-ring.ts';
import { AUDIT_MIGRATIONS, CONTROL_MIGRATIONS, migrate, requireCurrentSchema } from './migrate.ts';
import { openPolicyReader } from './policy-reader.ts';
import { createPurger } from './purge.ts';
import { rewrapAll, type RewrapResult } from './rewrap.ts';
import { createSealedItems } from './sealed-items.ts';
import { createSessionStore } from './sessions.ts';
import { createEmergencyStopStore, createSettings } from './small-stores.ts';
import { createVaultStore } from './vaults.ts';

export interface StoreOptions {
  /** Must exist: see `prepareDataDirectory`. */
  readonly directory: string;
  readonly keys: KeyRing;
  /** Where the writing key came from, such as `KEYVEIL_MASTER_KEY_FILE (/run/secrets/key)`; errors name it. */
  readonly keySource: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** What sessions without an environment live under. */
  readonly defaultNetworking: EnvironmentNetworking;
  /** An owner takes the directory's lock, migrates and prunes; a member joins a directory that an owner serves. */
  readonly role?: 'owner' | 'member';
  /** The directory's lock, where the caller has it already; it stays the caller's. */
  readonly lock?: DataLock;
  readonly auditRetention: AuditRetention;
}

export interface Store {
  readonly control: ControlStore;
  readonly audit: OpenedAuditLog;
  readonly sealedItems: SealedItems;
  readonly settings: Settings;
  /** Opens another reader with a connection of its own; whoever asks closes it before the store. */
  openPolicies(): PolicyReader;
  /** Wraps everything under the ring's writing key; resumable. */
  rewrapAll(): Promise<RewrapResult>;
  /** What was corrected while opening, a line each. */
  readonly warnings: readonly string[];
  close(): Promise<void>;
}

interface Opened {
  readonly database: Database;
  readonly warnings: readonly string[];
}

function openOwned(options: StoreOptions): Opened {
  const { clock, keys, keySource } = options;
  const paths = dataPathsOf(options.directory);
  const control = openOwnedDatabase(paths.controlDatabase, CONTROL_DATABASE);
  try {
    migrate(control.database, CONTROL_MIGRATIONS, clock.now());
    establishCanary(control.database, keys, keySource);
    const audit = openOwnedDatabase(paths.auditDatabase, AUDIT_DATABASE);
    try {
      migrate(audit.database, AUDIT_MIGRATIONS, clock.now());
    } finally {
      audit.database.close();
    }
    return { database: control.database, warnings: [...control.warnings, ...audit.warnings] };
  } catch (error) {
    control.database.close();
    throw error;
  }
}

function openMember(options: StoreOptions): Opened {
  const database = openExisting(dataPathsOf(options.directory).controlDatabase);
  try {
    requireCurrentSchema(database, CONTROL_MIGRATIONS);
    requireKeyFits(database, options.keys, options.keySource);
    return { database, warnings: [] };
  } catch (error) {
    database.close();
    throw error;
  }
}

function createControlStore(context: ControlContext, keySource: string): ControlStore {
  return {
    vaults: createVaultStore(context),
    credentials: createCredentialStore(context),
    environments: createEnvironmentStore(context),
    sessions: createSessionStore(context),
    adminTokens: createAdminTokenStore(context),
    emergencyStop: createEmergencyStopStore(context),
    check: () =>
      read(context, () => {
        requireKeyFits(context.database, context.keys, keySource);
      }),
  };
}

async function assemble(options: StoreOptions, opened: Opened, lock: DataLock | null): Promise<Store> {
  const { database } = opened;
  const { clock, keys, logger, keySource, defaultNetworking } = options;
  const paths = dataPathsOf(options.directory);
  const retention = lock === null ? null : options.auditRetention;
  const audit = await openAuditLog({ path: paths.auditDatabase, clock, logger, retention });
  const purger = createPurger(database, logger);
  const context: ControlContext = {
    database,
    clock,
    keys,
    purge: () => {
      purger.purge();
    },
    lastUsedAt: (id) => audit.lastUsedAt(id),
  };
  return {
    control: createControlStore(context, keySource),
    audit,
    sealedItems: createSealedItems(context),
    settings: createSettings(context),
    openPolicies: () => openPolicyReader({ path: paths.controlDatabase, keys, clock, defaultNetworking }),
    rewrapAll: () => rewrapAll(context),
    warnings: opened.warnings,
    async close() {
      purger.close();
      await audit.close();
      database.close();
      lock?.release();
    },
  };
}

/**
 * Opens the store of a data directory. Rejects with a StartError, changing nothing, when a file is damaged, foreign or
 * newer than the program, the master key does not fit, or another daemon has the directory.
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const held: DataLock | null = options.lock === undefined ? null : { release: () => undefined };
  const lock = options.role === 'member' ? null : (held ?? acquireDataLock(options.directory));
  try {
    const opened = lock === null ? openMember(options) : openOwned(options);
    try {
      return await assemble(options, opened, lock);
    } catch (error) {
      opened.database.close();
      throw error;
    }
  } catch (error) {
    lock?.release();
    throw error;
  }
}
