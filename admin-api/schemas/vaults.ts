// Wire shapes of vaults.
import { z } from 'zod';
import { DISPLAY_NAME_CHARACTERS_MAX } from '../../model/limits.ts';
import type { Vault } from '../../model/vault.ts';
import {
  Metadata,
  MetadataInput,
  MetadataPatchInput,
  pageOf,
  textField,
  Timestamp,
  toOptionalTimestamp,
  toTimestamp,
} from './common.ts';

export const VaultParams = z.object({ vault_id: z.string() });

export const VaultCreate = z.strictObject({
  display_name: textField(1, DISPLAY_NAME_CHARACTERS_MAX),
  metadata: MetadataInput.optional(),
});

export const VaultUpdate = z.strictObject({
  display_name: textField(1, DISPLAY_NAME_CHARACTERS_MAX).optional(),
  metadata: MetadataPatchInput.optional(),
});

export const VaultWire = z
  .object({
    id: z.string(),
    type: z.literal('vault'),
    display_name: z.string(),
    metadata: Metadata,
    created_at: Timestamp,
    updated_at: Timestamp,
    archived_at: Timestamp.nullable(),
  })
  .meta({ id: 'Vault' });

export const VaultPage = pageOf(VaultWire, 'VaultPage');

export const VaultDeleted = z.object({ id: z.string(), type: z.literal('vault_deleted') }).meta({ id: 'VaultDeleted' });

export function vaultToWire(vault: Vault): z.output<typeof VaultWire> {
  return {
    id: vault.id,
    type: 'vault',
    display_name: vault.displayName,
    metadata: { ...vault.metadata },
    created_at: toTimestamp(vault.createdAt),
    updated_at: toTimestamp(vault.updatedAt),
    archived_at: toOptionalTimestamp(vault.archivedAt),
  };
}
