// Sessions as rows, and the rows that a new session's mounts are decided from.
import { createHash, randomBytes } from 'node:crypto';
import type { Session } from '../model/session.ts';
import { parseMetadata, parseMounts, parseTexts } from './codecs.ts';
import type { SequencedRow } from './paging.ts';

const TOKEN_BYTES = 32;

export interface SessionRow extends SequencedRow {
  readonly id: string;
  readonly token_hash: Buffer;
  readonly vault_ids: string;
  readonly environment_id: string | null;
  readonly title: string | null;
  readonly metadata: string;
  readonly ca_directory: string;
  readonly mounts: string;
  readonly warnings: string;
  readonly denial_limit: number | null;
  readonly created_at: number;
  readonly updated_at: number;
  readonly expires_at: number | null;
  readonly suspended_at: number | null;
  readonly suspension_reason: string | null;
  readonly archived_at: number | null;
}

export function toSession(row: SessionRow): Session {
  return {
    id: row.id,
    vaultIds: parseTexts(row.vault_ids) ?? [],
    environmentId: row.environment_id,
    title: row.title,
    metadata: parseMetadata(row.metadata),
    caDirectory: row.ca_directory,
    mounts: parseMounts(row.mounts),
    warnings: parseTexts(row.warnings) ?? [],
    denialLimit: row.denial_limit,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    expiresAt: row.expires_at,
    suspendedAt: row.suspended_at,
    archivedAt: row.archived_at,
  };
}

/** 32 random bytes in base64url, after a prefix. */
export function createToken(prefix = ''): string {
  return prefix + randomBytes(TOKEN_BYTES).toString('base64url');
}

/** SHA-256 of a token's text: the tokens are random, so that a plain hash does, and look-ups by it leak nothing. */
export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token, 'utf8').digest();
}
