// The rows that a session's policy is made of, read in one snapshot.
import { ARCHIVED_PLACEHOLDERS_PER_VAULT_MAX } from '../model/limits.ts';
import { KeyveilError } from '../model/errors.ts';
import type { EmergencyStop } from '../model/ports.ts';
import { parseTexts } from './codecs.ts';
import type { CredentialRow } from './credential-rows.ts';
import type { Database } from './database.ts';
import type { EnvironmentRow } from './environments.ts';
import type { SessionRow } from './session-rows.ts';
import { createEmergencyStopReader } from './small-stores.ts';

type PolicySessionRow = Pick<
  SessionRow,
  'id' | 'token_hash' | 'vault_ids' | 'environment_id' | 'denial_limit' | 'expires_at' | 'suspended_at' | 'archived_at'
>;
type PolicyEnvironmentRow = Pick<EnvironmentRow, 'networking' | 'allowed_private_cidrs'>;
export type PolicyCredentialRow = Pick<
  CredentialRow,
  | 'id'
  | 'vault_id'
  | 'secret_name'
  | 'placeholder'
  | 'inject_header'
  | 'inject_body'
  | 'networking'
  | 'secret_version'
  | 'sealing_key'
  | 'sealed_value'
>;
type ArchivedRow = Pick<CredentialRow, 'id' | 'secret_name'> & { readonly placeholder: string };

export interface PolicyRows {
  readonly session: PolicySessionRow;
  /** Undefined when the session names none, or one that is gone. */
  readonly environment: PolicyEnvironmentRow | undefined;
  readonly credentials: readonly PolicyCredentialRow[];
  readonly archived: readonly ArchivedRow[];
  readonly emergencyStop: EmergencyStop;
}

/** Reads all rows of a session as of one moment; null when there is no such session. */
export function createPolicyRowReader(database: Database): (sessionId: string) => PolicyRows | null {
  const selectSession = database.prepare<[string], PolicySessionRow>(
    `SELECT id, token_hash, vault_ids, environment_id, denial_limit, expires_at, suspended_at, archived_at
     FROM sessions WHERE id = ?`,
  );
  const selectEnvironment = database.prepare<[string], PolicyEnvironmentRow>(
    'SELECT networking, allowed_private_cidrs FROM environments WHERE id = ?',
  );
  const selectCredentials = database.prepare<[string], PolicyCredentialRow>(
    `SELECT id, vault_id, secret_name, placeholder, inject_header, inject_body, networking, secret_version, sealing_key,
       sealed_value
     FROM credentials INDEXED BY credentials_active_name WHERE vault_id = ? AND archived_at IS NULL`,
  );
  const selectArchived = database.prepare<[string], ArchivedRow>(
    `SELECT id, secret_name, placeholder FROM credentials INDEXED BY credentials_archived
     WHERE vault_id = ? AND archived_at IS NOT NULL AND placeholder IS NOT NULL
     ORDER BY seq DESC LIMIT ${ARCHIVED_PLACEHOLDERS_PER_VAULT_MAX}`,
  );
  const readStop = createEmergencyStopReader(database);

  return database.transaction((sessionId: string): PolicyRows | null => {
    const session = selectSession.get(sessionId);
    if (session === undefined) return null;
    const vaultIds = parseTexts(session.vault_ids);
    if (vaultIds === null)
      throw new KeyveilError('store_unavailable', `The list of vaults of session ${session.id} can't be read.`);
    return {
      session,
      environment: session.environment_id === null ? undefined : selectEnvironment.get(session.environment_id),
      credentials: vaultIds.flatMap((id) => selectCredentials.all(id)),
      archived: vaultIds.flatMap((id) => selectArchived.all(id)),
      emergencyStop: readStop(),
    };
  });
}

function isSameValue(left: unknown, right: unknown): boolean {
  if (Buffer.isBuffer(left)) return Buffer.isBuffer(right) && left.equals(right);
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => isSameValue(item, right[index]));
  }
  if (typeof left === 'object' && left !== null && typeof right === 'object' && right !== null)
    return isSameRow(left, right);
  return left === right;
}

/** Whether two results of the same statements hold the same, sealed bytes included. */
export function isSameRow(left: object, right: object): boolean {
  if (left === right) return true;
  const other = right as Record<string, unknown>;
  return Object.entries(left).every(([name, value]) => isSameValue(value, other[name]));
}
