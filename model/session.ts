// Sessions: one sandbox's identity at the proxy, and what was mounted when it started.
import type { Metadata, MetadataPatch } from './vault.ts';

export type SessionStatus = 'active' | 'suspended' | 'expired' | 'archived';

/** A variable of the sandbox and the credential that it stands for. */
export interface Mount {
  readonly secretName: string;
  readonly placeholder: string;
  readonly vaultId: string;
  readonly credentialId: string;
}

/** One sandbox's identity. Times are milliseconds since the epoch. */
export interface Session {
  readonly id: string;
  /** In order of precedence. */
  readonly vaultIds: readonly string[];
  /** Null means the default environment. */
  readonly environmentId: string | null;
  readonly title: string | null;
  readonly metadata: Metadata;
  /** Directory inside the sandbox that holds `ca.pem` and `ca-bundle.pem`. */
  readonly caDirectory: string;
  readonly mounts: readonly Mount[];
  readonly warnings: readonly string[];
  /** Per-session override of the denial limit; null means the daemon's. */
  readonly denialLimit: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** Null for no end. */
  readonly expiresAt: number | null;
  readonly suspendedAt: number | null;
  readonly archivedAt: number | null;
}

export interface NewSession {
  readonly vaultIds: readonly string[];
  readonly environmentId: string | null;
  readonly title: string | null;
  readonly metadata: Metadata;
  readonly caDirectory: string;
  readonly expiresAt: number | null;
  readonly denialLimit: number | null;
}

/** Omitted fields are kept. */
export interface SessionPatch {
  readonly title?: string | null;
  readonly metadata?: MetadataPatch;
  readonly expiresAt?: number | null;
}

/** State of a session at a moment. Archived wins over expired, expired over suspended. */
export function decideSessionStatus(
  session: Pick<Session, 'archivedAt' | 'expiresAt' | 'suspendedAt'>,
  nowMs: number,
): SessionStatus {
  if (session.archivedAt !== null) return 'archived';
  if (session.expiresAt !== null && session.expiresAt <= nowMs) return 'expired';
  return session.suspendedAt === null ? 'active' : 'suspended';
}
