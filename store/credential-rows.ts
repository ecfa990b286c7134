// Credentials as rows: what a row says, and its value sealed and opened in place.
import { isHeaderSafe, type Credential, type InjectionLocation } from '../model/credential.ts';
import { KeyveilError } from '../model/errors.ts';
import type { Secret } from '../model/secret.ts';
import { parseCredentialNetworking, parseMetadata } from './codecs.ts';
import type { KeyRing } from './key-ring.ts';
import type { SequencedRow } from './paging.ts';
import { bindCredential, unseal, UnsealError } from './seal.ts';

export interface CredentialRow extends SequencedRow {
  readonly id: string;
  readonly vault_id: string;
  readonly display_name: string | null;
  readonly secret_name: string;
  readonly placeholder: string | null;
  readonly inject_header: number | null;
  readonly inject_body: number | null;
  readonly networking: string;
  readonly secret_version: number;
  readonly sealing_key: string | null;
  readonly sealed_value: Buffer | null;
  readonly metadata: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly rotated_at: number | null;
  readonly archived_at: number | null;
}

/** The columns that a sealed value is bound to. */
export type BoundColumns = Pick<
  CredentialRow,
  'id' | 'vault_id' | 'secret_name' | 'placeholder' | 'inject_header' | 'inject_body' | 'networking' | 'secret_version'
>;

/** Null when either column is. */
export function locationOf(row: Pick<CredentialRow, 'inject_header' | 'inject_body'>): InjectionLocation | null {
  if (row.inject_header === null || row.inject_body === null) return null;
  return { header: row.inject_header === 1, body: row.inject_body === 1 };
}

export function toCredential(row: CredentialRow, lastUsedAt: number | null): Credential {
  return {
    id: row.id,
    vaultId: row.vault_id,
    displayName: row.display_name,
    secretName: row.secret_name,
    placeholder: row.placeholder,
    injectionLocation: locationOf(row),
    // Networking that can't be read covers nothing.
    networking: parseCredentialNetworking(row.networking) ?? { type: 'limited', allowedHosts: [] },
    secretVersion: row.secret_version,
    rotatedAt: row.rotated_at,
    lastUsedAt,
    metadata: parseMetadata(row.metadata),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    archivedAt: row.archived_at,
  };
}

/** Associated data of a row's value. */
export function bindRow(row: BoundColumns): Buffer {
  return bindCredential({
    vaultId: row.vault_id,
    credentialId: row.id,
    secretVersion: row.secret_version,
    secretName: row.secret_name,
    placeholder: row.placeholder,
    networking: row.networking,
    header: row.inject_header,
    body: row.inject_body,
  });
}

/** Opens a row's value; throws `credential_unreadable`. */
export function openRow(
  keys: KeyRing,
  row: BoundColumns & Pick<CredentialRow, 'sealing_key' | 'sealed_value'>,
): Secret {
  const { sealing_key: keyId, sealed_value: bytes } = row;
  try {
    if (keyId === null || bytes === null) throw new UnsealError('The row holds no sealed value.');
    return unseal(keys, { keyId, bytes }, bindRow(row));
  } catch (error) {
    if (!(error instanceof UnsealError)) throw error;
    throw new KeyveilError(
      'credential_unreadable',
      `The value of credential ${row.id} can't be opened: the row was changed outside Keyveil or damaged, or its master key was not given. Rotate it, or archive it and create it again.`,
      { cause: error },
    );
  }
}

/** Throws `secret_value_not_header_safe` when the value would be put into headers and can't stand there. */
export function requireHeaderSafe(value: Secret, header: boolean): void {
  if (!header || isHeaderSafe(value)) return;
  throw new KeyveilError(
    'secret_value_not_header_safe',
    'The secret value holds a line break or another control character, so it can only be injected into bodies.',
    { param: 'auth.secret_value' },
  );
}
