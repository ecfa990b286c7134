// The types that the routes share: what they are given, what a request knows of its sender, and who may call what.
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { AdminScope } from '../model/admin-token.ts';
import type { AdminConnections } from './connections.ts';
import type { AuditLog, CaControl, CaExport, Clock, ControlStore, Logger, SessionSettings } from '../model/ports.ts';

/** Fastify with zod schemas. */
export type AdminApp = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** Who sent a request. */
export interface Identity {
  /** `admin_token`, the id of a scoped token, or `socket`. */
  readonly actor: string;
  readonly scope: AdminScope;
}

/** Scopes that a route admits; `public` asks for no token at all. */
export type RouteAccess = 'public' | readonly AdminScope[];

export const ADMIN_ONLY: RouteAccess = ['admin'];
export const READERS: RouteAccess = ['admin', 'auditor'];
export const SESSION_READERS: RouteAccess = ['admin', 'broker', 'auditor'];
export const SESSION_BROKERS: RouteAccess = ['admin', 'broker'];

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A route without it is for admins only. */
    access?: RouteAccess;
    /** True where a `Host` header of any kind is answered. */
    anyHost?: boolean;
  }
  interface FastifyRequest {
    identity: Identity | null;
  }
}

/** What the admin API is built from. */
export interface AdminServerOptions {
  readonly store: ControlStore;
  readonly audit: AuditLog;
  readonly ca: CaExport;
  readonly caControl: CaControl;
  readonly clock: Clock;
  readonly logger: Logger;
  /**
   * `tcp` asks for a token and checks `Host`. `socket` is for a Unix socket that only the daemon's user can open: no
   * token, every request is an admin's.
   */
  readonly trust: 'tcp' | 'socket';
  /** Certificate chain and key, PEM, to serve HTTPS; without it HTTP in clear. */
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer };
  /** SHA-256 digests (32 bytes) of the configured admin tokens; asked at each request, so that a rotation shows at once. */
  adminTokenDigests(): readonly Buffer[];
  /** Names that `Host` may have besides `localhost` and IP literals (`KEYVEIL_ADMIN_HOSTS`). */
  readonly adminHosts: readonly string[];
  /** Also gives the reserved names that a new credential is checked against. */
  readonly sessionSettings: SessionSettings;
  /** Lifetime of a session that asks for none; null for no end (`KEYVEIL_SESSION_TTL_SECONDS`). */
  readonly sessionTtlSeconds: number | null;
  /** The proxy's address as sandboxes see it, such as `http://127.0.0.1:7080`; asked at each use. */
  advertisedProxyUrl(): string;
  /** For `/readyz`, besides the store's own check. */
  isProxyListening(): boolean;
  /** The Prometheus exposition. */
  metricsText(): Promise<string>;
  readonly metricsContentType: string;
  /** Whether `/metrics` needs no token (`KEYVEIL_METRICS_PUBLIC=on`). */
  readonly metricsPublic: boolean;
  /** Version in the OpenAPI document. */
  readonly version: string;
  /** How often the live audit stream looks for new rows, milliseconds; default 250. */
  readonly auditPollMs?: number;
  /** How often a quiet live audit stream sends a comment and checks its token, milliseconds; default 15,000. */
  readonly auditHeartbeatMs?: number;
  /** Connections at once, those of live audit streams apart; default 256. */
  readonly connectionsMax?: number;
  /** What a connection has for a request's head, milliseconds; default 10,000. */
  readonly headTimeoutMs?: number;
}

/** What a route is given besides the options. */
export interface AdminContext extends AdminServerOptions {
  /** Null on the Unix socket, which only the daemon's user can open. */
  readonly connections: AdminConnections | null;
  /** Aborts when the server begins to close; ends streams. */
  readonly closing: AbortSignal;
  /** Notes a successful write in the audit log. */
  recordWrite(request: { readonly identity: Identity | null; readonly id: string }, write: AdminWrite): void;
  /** Looks again at the token of a request that has been open for long; null when it is no longer good. */
  identify(request: { readonly headers: IncomingMessage['headers'] }): Promise<Identity | null>;
}

interface AdminWrite {
  /** Such as `credential.rotate`. */
  readonly action: string;
  readonly objectId: string;
}
