// Wire shapes of scoped admin tokens and of the emergency stop.
import { z } from 'zod';
import type { AdminToken } from '../../model/admin-token.ts';
import {
  DESCRIPTION_CHARACTERS_MAX,
  DISPLAY_NAME_CHARACTERS_MAX,
  SESSION_TTL_MAX_SECONDS,
} from '../../model/limits.ts';
import { pageOf, textField, Timestamp, toOptionalTimestamp, toTimestamp } from './common.ts';

const AdminScope = z.enum(['admin', 'broker', 'auditor']).meta({
  description: '`admin`: all. `broker`: create, read and archive sessions. `auditor`: read.',
});

export const AdminTokenParams = z.object({ admin_token_id: z.string() });

export const AdminTokenCreate = z.strictObject({
  name: textField(1, DISPLAY_NAME_CHARACTERS_MAX),
  scope: AdminScope,
  expires_in: z
    .number()
    .int()
    .min(1)
    .max(SESSION_TTL_MAX_SECONDS)
    .nullable()
    .optional()
    .meta({ description: 'Seconds from now; null or omitted for no end.' }),
});

export const AdminTokenWire = z
  .object({
    id: z.string(),
    type: z.literal('admin_token'),
    name: z.string(),
    scope: AdminScope,
    created_at: Timestamp,
    last_used_at: Timestamp.nullable(),
    expires_at: Timestamp.nullable(),
  })
  .meta({ id: 'AdminToken' });

export const AdminTokenCreated = AdminTokenWire.extend({
  token: z.string().meta({ description: 'Shown this once.' }),
}).meta({ id: 'AdminTokenCreated' });

export const AdminTokenPage = pageOf(AdminTokenWire, 'AdminTokenPage');

export const AdminTokenDeleted = z
  .object({ id: z.string(), type: z.literal('admin_token_deleted') })
  .meta({ id: 'AdminTokenDeleted' });

export function adminTokenToWire(token: AdminToken): z.output<typeof AdminTokenWire> {
  return {
    id: token.id,
    type: 'admin_token',
    name: token.name,
    scope: token.scope,
    created_at: toTimestamp(token.createdAt),
    last_used_at: toOptionalTimestamp(token.lastUsedAt),
    expires_at: toOptionalTimestamp(token.expiresAt),
  };
}

export const EmergencyStopSet = z.strictObject({
  active: z.boolean(),
  reason: textField(1, DESCRIPTION_CHARACTERS_MAX).nullable().optional(),
});

export const EmergencyStopWire = z
  .object({ type: z.literal('emergency_stop'), active: z.boolean(), reason: z.string().nullable() })
  .meta({ id: 'EmergencyStop' });
