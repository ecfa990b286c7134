// The interfaces through which the parts meet. Each is implemented in one folder and handed over by the daemon.
import type { SecureContext } from 'node:tls';
import type { AdminToken, NewAdminToken } from './admin-token.ts';
import type { AdminEvent, AuditEvent, AuditQuery, MissReason, StoredAuditEntry, SwapLocation } from './audit.ts';
import type { Credential, CredentialPatch, NewCredential } from './credential.ts';
import type { Environment, EnvironmentPatch, NewEnvironment } from './environment.ts';
import type { HostSet } from './host-pattern.ts';
import type { Cidr } from './ip-class.ts';
import type { MountSettings } from './mount.ts';
import type { EnvironmentNetworking } from './networking.ts';
import type { Secret } from './secret.ts';
import type { NewSession, Session, SessionPatch, SessionStatus } from './session.ts';
import type { Metadata, MetadataPatch, Page, PageQuery, Vault } from './vault.ts';

/** Milliseconds since the epoch; injected so that tests can move it. */
export interface Clock {
  now(): number;
}

// ---- store, control plane. All reject with a KeyveilError such as `not_found`; each write is durable when it resolves.

export interface VaultStore {
  create(input: { readonly displayName: string; readonly metadata: Metadata }): Promise<Vault>;
  get(id: string): Promise<Vault>;
  update(id: string, patch: { readonly displayName?: string; readonly metadata?: MetadataPatch }): Promise<Vault>;
  list(query: PageQuery): Promise<Page<Vault>>;
  /** Idempotent; archives the vault's credentials and purges their values. */
  archive(id: string): Promise<Vault>;
  delete(id: string): Promise<void>;
}

/** A credential id under another vault than its own is `not_found`. */
export interface CredentialStore {
  create(input: NewCredential): Promise<Credential>;
  get(vaultId: string, id: string): Promise<Credential>;
  /** A new value raises `secretVersion`; any change of networking or location seals the value again. */
  update(vaultId: string, id: string, patch: CredentialPatch): Promise<Credential>;
  list(vaultId: string, query: PageQuery): Promise<Page<Credential>>;
  archive(vaultId: string, id: string): Promise<Credential>;
  delete(vaultId: string, id: string): Promise<void>;
}

export interface EnvironmentStore {
  create(input: NewEnvironment): Promise<Environment>;
  get(id: string): Promise<Environment>;
  update(id: string, patch: EnvironmentPatch): Promise<Environment>;
  list(query: PageQuery): Promise<Page<Environment>>;
  archive(id: string): Promise<Environment>;
  /** `environment_in_use` while an active session refers to it. */
  delete(id: string): Promise<void>;
}

/** A session with the token that was made for it just now, the only time that it exists outside the sandbox. */
interface SessionWithToken {
  readonly session: Session;
  /** 32 random bytes in base64url. */
  readonly token: string;
}

export interface SessionStore {
  /** Mounts and stores in one transaction; on any failure nothing is stored. */
  create(input: NewSession, settings: SessionSettings): Promise<SessionWithToken>;
  get(id: string): Promise<Session>;
  update(id: string, patch: SessionPatch): Promise<Session>;
  list(query: PageQuery): Promise<Page<Session>>;
  archive(id: string): Promise<Session>;
  rotateToken(id: string): Promise<SessionWithToken>;
  suspend(id: string, reason: string): Promise<Session>;
  resume(id: string): Promise<Session>;
}

/** What creating a session depends on besides its input. */
export interface SessionSettings extends MountSettings {
  readonly defaultNetworking: EnvironmentNetworking;
}

export interface AdminTokenStore {
  /** The token is `kvad_` and 32 random bytes in base64url; only its SHA-256 is stored. */
  create(input: NewAdminToken): Promise<{ readonly adminToken: AdminToken; readonly token: string }>;
  list(query: PageQuery): Promise<Page<AdminToken>>;
  delete(id: string): Promise<void>;
  /** The unexpired token with this text, or null. Found by SHA-256, so that no comparison leaks. Notes its use. */
  find(token: string): Promise<AdminToken | null>;
}

export interface EmergencyStop {
  readonly active: boolean;
  readonly reason: string | null;
}

export interface EmergencyStopStore {
  get(): Promise<EmergencyStop>;
  set(stop: EmergencyStop): Promise<EmergencyStop>;
}

/** All of the control plane's stores. */
export interface ControlStore {
  readonly vaults: VaultStore;
  readonly credentials: CredentialStore;
  readonly environments: EnvironmentStore;
  readonly sessions: SessionStore;
  readonly adminTokens: AdminTokenStore;
  readonly emergencyStop: EmergencyStopStore;
  /** Resolves when the database answers and its key fits; else rejects. */
  check(): Promise<void>;
}

/** Plain values that the daemon keeps for itself. */
export interface Settings {
  get(name: string): Promise<string | null>;
  put(name: string, value: string): Promise<void>;
  delete(name: string): Promise<void>;
}

// ---- store, data plane

/** An active, mountable credential as the data plane sees it. */
export interface PolicyCredential {
  readonly id: string;
  readonly vaultId: string;
  readonly secretName: string;
  readonly placeholder: string;
  readonly coverage: HostSet;
  readonly header: boolean;
  readonly body: boolean;
  readonly secretVersion: number;
  /** The value; throws `credential_unreadable` (wrong key, damaged or edited row). Cached by version and sealed bytes. */
  open(): Secret;
}

/** A placeholder that is recognised only to say `credential_archived`. */
export interface ArchivedPlaceholder {
  readonly credentialId: string;
  readonly secretName: string;
  readonly placeholder: string;
}

/**
 * Everything the data plane needs to know of a session, as the database is now. While nothing of it changes, reads
 * give the same object, so that what is compiled from it can be kept in a WeakMap.
 */
export interface SessionPolicy {
  readonly sessionId: string;
  readonly status: SessionStatus;
  /** For timers; `status` already regards it. */
  readonly expiresAt: number | null;
  /** SHA-256 of the token, 32 bytes. */
  readonly tokenHash: Buffer;
  readonly environmentId: string | null;
  /** Hosts that the environment admits; covers nothing when the environment can't be read. */
  readonly admission: HostSet;
  readonly allowedPrivateCidrs: readonly Cidr[];
  readonly credentials: readonly PolicyCredential[];
  readonly archived: readonly ArchivedPlaceholder[];
  /** Active credentials that can't be mounted count here too: any at all forbids `KEYVEIL_MITM=off`. */
  readonly activeCredentialCount: number;
  readonly emergencyStop: EmergencyStop;
  readonly denialLimit: number | null;
}

/** Reads on a connection of its own, which sees every commit of every process. */
export interface PolicyReader {
  /** Null when there is no such session. Throws when the database can't be read: the request must be refused. */
  read(sessionId: string): SessionPolicy | null | Promise<SessionPolicy | null>;
  /** Reads that `work` makes before it returns share one look at the database: for requests that have all arrived. */
  together(work: () => void): void;
  /** The session whose token has this SHA-256 (32 bytes), for logins that carry the token alone. */
  findSessionId(tokenHash: Buffer): Promise<string | null>;
  /** Changes whenever any process has committed since the last call; costs microseconds. */
  version(): number;
  /** Forgets opened values that were not used for a minute. */
  sweep(): void;
  close(): Promise<void>;
}

/** Where the data plane's events go. */
export interface AuditSink {
  /** Never throws and never loses: the caller asks `ready()` before it takes on more work. */
  record(event: AuditEvent): void;
  /** Undefined while the queue has room (for this session too); else a promise of room. */
  ready(sessionId: string | null): Promise<void> | undefined;
  /** Number of events that are not stored yet. */
  depth(): number;
}

export interface AuditLog extends AuditSink {
  recordAdmin(event: AdminEvent): void;
  list(query: AuditQuery): Promise<Page<StoredAuditEntry>>;
  /** Oldest first, after a sequence number; for the live stream. */
  listSince(sequence: number, query: Omit<AuditQuery, 'after'>): Promise<readonly StoredAuditEntry[]>;
  lastSequence(): Promise<number>;
  /** Resolves when all that was recorded is stored. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** Counts tunnels where several processes share the limits. */
export interface TunnelGate {
  /** Rejects with `overloaded` at a limit. */
  enter(sessionId: string): Promise<void>;
  leave(sessionId: string): void;
}

// ---- certificates

/** Small secrets of the daemon itself, sealed under the master key. Names are like `ca/roots`. */
export interface SealedItems {
  /** Null when there is none of this name. Rejects when it can't be opened (wrong key, damaged row). */
  get(name: string): Promise<Secret | null>;
  /** Replaces what was there, in one step; durable when it resolves. Keeps neither the object nor its bytes. */
  put(name: string, value: Secret): Promise<void>;
  /** Idempotent. */
  delete(name: string): Promise<void>;
  /** Names that begin with the prefix, in order. */
  list(prefix: string): Promise<readonly string[]>;
}

/** Ready TLS contexts for hosts. */
export interface LeafSource {
  /** The context when it is at hand, else a promise; concurrent calls for one host mint once. */
  contextFor(host: string): SecureContext | Promise<SecureContext>;
}

/** What clients must trust. */
export interface CaExport {
  /** The CA's own certificate (both, while a rotation overlaps), PEM. */
  caPem(): string;
  /** The public roots and the CA, PEM. */
  bundlePem(): string;
}

/** One root certificate, for people; times in milliseconds since the epoch. */
export interface CaRoot {
  readonly commonName: string;
  /** SHA-256 of the certificate, upper-case hexadecimal with colons. */
  readonly fingerprint: string;
  readonly notBefore: number;
  readonly notAfter: number;
}

export interface CaStatus {
  /** Signs the leaves; the one that clients must trust today. */
  readonly signer: CaRoot;
  /** Signs after `retire`; exported beside the signer, so that clients learn to trust it first. */
  readonly next: CaRoot | null;
}

/** Rotation of the CA in two steps, each of which can be repeated after a crash. */
export interface CaControl {
  status(): CaStatus;
  /** Makes the next root, unless there is one already. */
  rotate(): Promise<CaStatus>;
  /** Drops the signer and signs with the next root from now on; does nothing when there is none. */
  retire(): Promise<CaStatus>;
}

// ---- logs and metrics

/** The only fields that a log line can have: there is no way to log an object by accident. */
export interface LogFields {
  readonly sessionId?: string;
  readonly host?: string;
  readonly port?: number;
  readonly method?: string;
  readonly status?: number;
  readonly code?: string;
  readonly reason?: string;
  readonly outcome?: string;
  readonly durationMs?: number;
  readonly count?: number;
  readonly address?: string;
  readonly path?: string;
  readonly objectId?: string;
  readonly requestId?: string;
  readonly name?: string;
  readonly pid?: number;
  /** Logged by class name, code and stack frames; not its message where that could quote input. */
  readonly error?: unknown;
}

export interface Logger {
  readonly debugIsOn?: boolean;
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

/** No label is chosen by a sandbox. */
export interface ProxyMetrics {
  request(outcome: AuditEvent['outcome'], reason: string | null): void;
  swap(location: SwapLocation, count: number): void;
  miss(location: string, reason: MissReason): void;
  veil(count: number): void;
  tunnels(delta: 1 | -1): void;
  streams(delta: 1 | -1): void;
  /** Time inside Keyveil without the upstream, in milliseconds. */
  overhead(ms: number): void;
  unauthenticated(): void;
}
