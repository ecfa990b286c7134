// A store in a temporary directory, with a clock that the test moves and a log that it reads.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHostSet } from '../../model/host-pattern.ts';
import type { LogFields, Logger, SessionSettings } from '../../model/ports.ts';
import type { NewCredential } from '../../model/credential.ts';
import type { NewSession } from '../../model/session.ts';
import { Secret } from '../../model/secret.ts';
import { createKeyRing, type KeyRing } from '../../store/key-ring.ts';
import { openStore, type Store, type StoreOptions } from '../../store/open-store.ts';
import { createManualClock, type ManualClock } from './manual-clock.ts';

export interface LogLine extends LogFields {
  readonly level: keyof Logger;
  readonly message: string;
}

/** A logger that keeps its lines. */
export function createMemoryLogger(): { readonly logger: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const add = (level: keyof Logger) => (fields: LogFields, message: string) => {
    lines.push({ ...fields, level, message });
  };
  return { lines, logger: { debug: add('debug'), info: add('info'), warn: add('warn'), error: add('error') } };
}

interface Teardown {
  teardown(work: () => unknown): void;
}

/** A directory that is gone after the test. */
export function createTemporaryDirectory(t: Teardown): string {
  const directory = mkdtempSync(join(tmpdir(), 'keyveil-store-'));
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  return directory;
}

export function createRandomKeyRing(): KeyRing {
  return createKeyRing(Secret.fromBytes(randomBytes(32)));
}

export const START_MS = Date.UTC(2026, 0, 15);

export interface TestStore {
  readonly directory: string;
  readonly clock: ManualClock;
  readonly keys: KeyRing;
  readonly lines: LogLine[];
  readonly store: Store;
  /** Options that open the same directory again. */
  readonly options: StoreOptions;
}

/** Opens a store of its own; the test's end closes it. */
export async function openTestStore(t: Teardown, overrides: Partial<StoreOptions> = {}): Promise<TestStore> {
  const { logger, lines } = createMemoryLogger();
  const clock = createManualClock(START_MS);
  const options: StoreOptions = {
    directory: createTemporaryDirectory(t),
    keys: createRandomKeyRing(),
    keySource: 'the test',
    clock,
    logger,
    defaultNetworking: { type: 'unrestricted' },
    auditRetention: { days: 30, bytesMax: 2 ** 31 },
    ...overrides,
  };
  const store = await openStore(options);
  t.teardown(() => store.close());
  return { directory: options.directory, clock, keys: options.keys, lines, store, options };
}

export const SESSION_SETTINGS: SessionSettings = {
  interceptionOn: true,
  isReserved: () => false,
  passthroughHosts: createHostSet([]),
  defaultNetworking: { type: 'unrestricted' },
};

export function newCredential(vaultId: string, overrides: Partial<NewCredential> = {}): NewCredential {
  return {
    vaultId,
    displayName: null,
    secretName: 'API_KEY',
    secretValue: Secret.fromText('a value of some length'),
    placeholderPrefix: '',
    networking: { type: 'limited', allowedHosts: ['api.example.com'] },
    injectionLocation: { header: true, body: false },
    metadata: {},
    ...overrides,
  };
}

export function newSession(vaultIds: readonly string[], overrides: Partial<NewSession> = {}): NewSession {
  return {
    vaultIds,
    environmentId: null,
    title: null,
    metadata: {},
    caDirectory: '/etc/keyveil',
    expiresAt: null,
    denialLimit: null,
    ...overrides,
  };
}

/** First page with everything on it. */
export const WHOLE_LIST = { limit: 100, after: null, includeArchived: true };
