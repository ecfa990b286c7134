// Wire shapes of sessions.
import { z } from 'zod';
import { DISPLAY_NAME_CHARACTERS_MAX, SESSION_TTL_MAX_SECONDS, VAULTS_PER_SESSION_MAX } from '../../model/limits.ts';
import { decideSessionStatus, type Session } from '../../model/session.ts';
import { buildEnvironmentVariables } from '../../model/startup-context.ts';
import { addFinding } from '../validation.ts';
import {
  hasLoneSurrogate,
  Metadata,
  MetadataInput,
  MetadataPatchInput,
  pageOf,
  textField,
  Timestamp,
  toOptionalTimestamp,
  toTimestamp,
} from './common.ts';

const DENIAL_LIMIT_MAX = 1_000_000;
const CA_DIRECTORY_CHARACTERS_MAX = 1024;

/** Where `ca.pem` and `ca-bundle.pem` lie inside a sandbox that asks for nothing else. */
export const CA_DIRECTORY_DEFAULT = '/etc/keyveil';

export const SessionParams = z.object({ session_id: z.string() });

const VaultIds = z
  .array(z.string())
  .max(VAULTS_PER_SESSION_MAX)
  .superRefine((ids, context) => {
    for (const [index, id] of ids.entries()) {
      if (ids.indexOf(id) !== index) addFinding(context, 'must not repeat an earlier vault', { path: [index] });
    }
  })
  .meta({ uniqueItems: true, description: 'In order of precedence: the first vault that has a name wins.' });

const ExpiresIn = z
  .number()
  .int()
  .min(1)
  .max(SESSION_TTL_MAX_SECONDS)
  .nullable()
  .optional()
  .meta({ description: 'Seconds from now; null for no end.' });

// The path goes into environment variables, and from there into shell scripts and dotenv files.
const CaDirectory = z
  .string()
  .superRefine((path, context) => {
    if (path.length > CA_DIRECTORY_CHARACTERS_MAX) {
      addFinding(context, `must have at most ${CA_DIRECTORY_CHARACTERS_MAX} characters`);
    } else if (!path.startsWith('/')) {
      addFinding(context, 'must be an absolute path');
    } else if (hasLoneSurrogate(path) || /[\p{Cc}\p{Zl}\p{Zp}"'`$\\]/u.test(path)) {
      addFinding(context, 'must not hold control characters, quotes, backslashes or dollar signs');
    }
  })
  .meta({
    maxLength: CA_DIRECTORY_CHARACTERS_MAX,
    description: 'Where ca.pem and ca-bundle.pem will lie inside the sandbox; default /etc/keyveil.',
  });

const Title = textField(1, DISPLAY_NAME_CHARACTERS_MAX).nullable().optional();

export const SessionCreate = z.strictObject({
  vault_ids: VaultIds,
  environment_id: z.string().nullable().optional(),
  title: Title,
  metadata: MetadataInput.optional(),
  expires_in: ExpiresIn,
  ca_directory: CaDirectory.optional(),
  denial_limit: z
    .number()
    .int()
    .min(1)
    .max(DENIAL_LIMIT_MAX)
    .nullable()
    .optional()
    .meta({ description: 'Refusals after which the session is suspended; null for the limit of the daemon.' }),
});

const FIXED = ['vault_ids', 'environment_id', 'ca_directory', 'denial_limit'] as const;

export const SessionUpdate = z.preprocess(
  (value, context) => {
    if (typeof value !== 'object' || value === null) return value;
    for (const name of FIXED) {
      if (!Object.hasOwn(value, name)) continue;
      addFinding(context, 'is fixed once the session exists', { code: 'immutable_field', path: [name] });
    }
    return value;
  },
  z.strictObject({ title: Title, metadata: MetadataPatchInput.optional(), expires_in: ExpiresIn }),
);

export const SessionWire = z
  .object({
    id: z.string(),
    type: z.literal('session'),
    status: z.enum(['active', 'suspended', 'expired', 'archived']),
    vault_ids: z.array(z.string()),
    environment_id: z.string().nullable(),
    title: z.string().nullable(),
    metadata: Metadata,
    ca_directory: z.string(),
    denial_limit: z.number().int().nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Timestamp.nullable(),
    suspended_at: Timestamp.nullable(),
    archived_at: Timestamp.nullable(),
    warnings: z.array(z.string()),
    mounts: z.array(z.object({ secret_name: z.string(), vault_id: z.string(), credential_id: z.string() })),
    startup_context: z.object({
      environment_variables: z.record(z.string(), z.string()).meta({
        description: 'The variables that hold the token are in the answers to create and rotate_token alone.',
      }),
    }),
  })
  .meta({ id: 'Session' });

export const SessionPage = pageOf(SessionWire, 'SessionPage');

export interface SessionView {
  readonly nowMs: number;
  readonly advertisedProxyUrl: string;
  /** The session's token, in the answers to create and rotate_token alone. */
  readonly token: string | null;
}

export function sessionToWire(session: Session, view: SessionView): z.output<typeof SessionWire> {
  return {
    id: session.id,
    type: 'session',
    status: decideSessionStatus(session, view.nowMs),
    vault_ids: [...session.vaultIds],
    environment_id: session.environmentId,
    title: session.title,
    metadata: { ...session.metadata },
    ca_directory: session.caDirectory,
    denial_limit: session.denialLimit,
    created_at: toTimestamp(session.createdAt),
    updated_at: toTimestamp(session.updatedAt),
    expires_at: toOptionalTimestamp(session.expiresAt),
    suspended_at: toOptionalTimestamp(session.suspendedAt),
    archived_at: toOptionalTimestamp(session.archivedAt),
    warnings: [...session.warnings],
    mounts: session.mounts.map((mount) => ({
      secret_name: mount.secretName,
      vault_id: mount.vaultId,
      credential_id: mount.credentialId,
    })),
    startup_context: {
      environment_variables: {
        ...buildEnvironmentVariables({ session, advertisedProxyUrl: view.advertisedProxyUrl, token: view.token }),
      },
    },
  };
}
