// The data plane's view: each read sees the database as it is now, and costs next to nothing while nothing was committed.
import { POLICY_CACHE_SESSIONS_MAX } from '../model/limits.ts';
import type { EnvironmentNetworking } from '../model/networking.ts';
import type { Clock, PolicyReader, SessionPolicy } from '../model/ports.ts';
import { openConnection, toStoreError, type Database, type Statement } from './database.ts';
import type { KeyRing } from './key-ring.ts';
import { createOpenedValues, type OpenedValues } from './opened-values.ts';
import { compileCredentials, compilePolicy, statusOf, type CompiledCredentials } from './policy-compile.ts';
import { createPolicyRowReader, isSameRow, type PolicyRows } from './policy-rows.ts';

export interface PolicyReaderOptions {
  /** Path of `keyveil.db`. */
  readonly path: string;
  readonly keys: KeyRing;
  readonly clock: Clock;
  /** What sessions without an environment live under. */
  readonly defaultNetworking: EnvironmentNetworking;
}

interface CachedPolicy {
  /** `data_version` before the rows were read. */
  version: number;
  readonly rows: PolicyRows;
  readonly credentials: CompiledCredentials;
  policy: SessionPolicy;
}

/** Opens a read-only connection; throws when the database isn't there. */
export function openPolicyReader(options: PolicyReaderOptions): PolicyReader {
  return new SqlitePolicyReader(options);
}

class SqlitePolicyReader implements PolicyReader {
  readonly #options: PolicyReaderOptions;
  readonly #database: Database;
  readonly #values: OpenedValues;
  readonly #readVersion: Statement<[], number>;
  readonly #readRows: (sessionId: string) => PolicyRows | null;
  readonly #selectByToken: Statement<[Buffer], string>;
  readonly #selectSealed: Statement<[string, Buffer | null], number>;
  /** In order of last use, the oldest first. */
  readonly #cache = new Map<string, CachedPolicy>();
  /** What was used last: it has its place in that order already. */
  #newest: CachedPolicy | null = null;
  #sweptVersion = 0;
  #isTogether = false;
  /** What the first read of `together` has found; null before it. */
  #sharedVersion: number | null = null;

  constructor(options: PolicyReaderOptions) {
    this.#options = options;
    const database = openConnection(options.path, { readonly: true });
    this.#database = database;
    this.#values = createOpenedValues(options.keys, options.clock);
    this.#readVersion = database.prepare<[], number>('PRAGMA data_version').pluck();
    this.#readRows = createPolicyRowReader(database);
    this.#selectByToken = database.prepare<[Buffer], string>('SELECT id FROM sessions WHERE token_hash = ?').pluck();
    this.#selectSealed = database
      .prepare<[string, Buffer | null], number>('SELECT 1 FROM credentials WHERE id = ? AND sealed_value = ?')
      .pluck();
  }

  read(sessionId: string): SessionPolicy | null {
    try {
      return this.#readNow(sessionId);
    } catch (error) {
      throw toStoreError(error);
    }
  }

  async findSessionId(tokenHash: Buffer): Promise<string | null> {
    try {
      return this.#selectByToken.get(tokenHash) ?? null;
    } catch (error) {
      throw toStoreError(error);
    }
  }

  together(work: () => void): void {
    this.#isTogether = true;
    try {
      work();
    } finally {
      this.#isTogether = false;
      this.#sharedVersion = null;
    }
  }

  version(): number {
    return this.#readVersion.get() as number;
  }

  sweep(): void {
    const current = this.version();
    const isUnchanged = current === this.#sweptVersion;
    this.#sweptVersion = current;
    this.#values.sweep((row) => isUnchanged || this.#selectSealed.get(row.id, row.sealed_value) !== undefined);
  }

  async close(): Promise<void> {
    this.#cache.clear();
    this.#newest = null;
    this.#values.close();
    this.#database.close();
  }

  #currentVersion(): number {
    if (!this.#isTogether) return this.version();
    this.#sharedVersion ??= this.version();
    return this.#sharedVersion;
  }

  #readNow(sessionId: string): SessionPolicy | null {
    // Taken before the rows: a commit in between makes the next read look again.
    const version = this.#currentVersion();
    const known = this.#cache.get(sessionId);
    if (known?.version === version) return this.#remember(sessionId, known);
    const rows = this.#readRows(sessionId);
    if (rows === null) {
      this.#cache.delete(sessionId);
      this.#newest = null;
      return null;
    }
    const isSame = known !== undefined && isSameRow(known.rows, rows);
    const entry = isSame ? known : { version, rows, ...this.#compile(rows, known?.credentials) };
    entry.version = version;
    return this.#remember(sessionId, entry);
  }

  #compile(rows: PolicyRows, before: CompiledCredentials | undefined) {
    const { clock, defaultNetworking } = this.#options;
    const credentials = compileCredentials(rows.credentials, this.#values, before);
    for (const [id, { row }] of before ?? []) if (credentials.get(id)?.row !== row) this.#values.drop(id);
    return { credentials, policy: compilePolicy(rows, credentials, { defaultNetworking, nowMs: clock.now() }) };
  }

  #remember(sessionId: string, entry: CachedPolicy): SessionPolicy {
    if (this.#newest !== entry) {
      this.#cache.delete(sessionId);
      this.#cache.set(sessionId, entry);
      this.#newest = entry;
    }
    if (this.#cache.size > POLICY_CACHE_SESSIONS_MAX) {
      for (const [oldest] of this.#cache) {
        this.#cache.delete(oldest);
        break;
      }
    }
    // The clock changes a status without any commit.
    const status = statusOf(entry.rows, this.#options.clock.now());
    if (status !== entry.policy.status) entry.policy = { ...entry.policy, status };
    return entry.policy;
  }
}
