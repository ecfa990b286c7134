// Wire shapes of credentials; a value becomes a Secret as it is read and never goes out again.
import { z } from 'zod';
import {
  findSecretValueFault,
  isHeaderSafe,
  isMountable,
  SECRET_NAME_PATTERN,
  type Credential,
} from '../../model/credential.ts';
import { DISPLAY_NAME_CHARACTERS_MAX, SECRET_VALUE_BYTES_MAX } from '../../model/limits.ts';
import { PLACEHOLDER_PREFIX_PATTERN } from '../../model/placeholder.ts';
import { Secret } from '../../model/secret.ts';
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
import { CredentialNetworkingInput, credentialNetworkingToWire, CredentialNetworkingWire } from './networking.ts';

export const CredentialListParams = z.object({ vault_id: z.string() });

export const CredentialParams = z.object({ vault_id: z.string(), credential_id: z.string() });

const SECRET_VALUE_PHRASES = {
  empty: 'must not be empty',
  too_long: `must have at most ${SECRET_VALUE_BYTES_MAX} bytes`,
  nul: 'must not hold a NUL character',
} as const;

const SecretValue = z
  .string()
  .transform((text, context) => {
    const secret = Secret.fromText(text);
    const fault = findSecretValueFault(secret);
    if (fault !== null) addFinding(context, SECRET_VALUE_PHRASES[fault]);
    else if (hasLoneSurrogate(text)) addFinding(context, 'must be valid Unicode text');
    return secret;
  })
  .meta({ writeOnly: true, description: '1 to 32,768 bytes of UTF-8 without NUL. Never part of an answer.' });

function patternField(pattern: RegExp, phrase: string) {
  return z
    .string()
    .superRefine((text, context) => {
      if (!pattern.test(text)) addFinding(context, phrase);
    })
    .meta({ pattern: pattern.source });
}

const SecretName = patternField(
  SECRET_NAME_PATTERN,
  'must be 1 to 128 letters, digits and underscores, and not begin with a digit',
);

const PlaceholderPrefix = patternField(
  PLACEHOLDER_PREFIX_PATTERN,
  'must be at most 32 letters, digits, underscores, dots and hyphens',
);

const locationFields = { header: z.boolean().optional(), body: z.boolean().optional() };

const NO_LOCATION = 'must have header or body set to true; omit it instead to mean the header alone';

const InjectionLocation = z
  .strictObject(locationFields)
  .superRefine((wire, context) => {
    if (wire.header !== true && wire.body !== true) addFinding(context, NO_LOCATION);
  })
  .transform((wire) => ({ header: wire.header === true, body: wire.body === true }));

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// Other kinds of auth have other fields: the kind is judged before them.
function refuseOtherTypes(value: unknown, context: z.core.$RefinementCtx): void {
  if (!isObject(value) || typeof value['type'] !== 'string' || value['type'] === 'environment_variable') return;
  addFinding(context, 'must be "environment_variable"; static_bearer and mcp_oauth are not supported', {
    code: 'unsupported_auth_type',
    path: ['type'],
  });
}

const IMMUTABLE = ['secret_name', 'placeholder', 'placeholder_prefix'] as const;

function refuseImmutable(value: unknown, context: z.core.$RefinementCtx): void {
  if (!isObject(value)) return;
  for (const name of IMMUTABLE) {
    if (!Object.hasOwn(value, name)) continue;
    addFinding(context, 'can not be changed; archive the credential and create another', {
      code: 'immutable_field',
      path: [name],
    });
  }
}

function guarded<Schema extends z.ZodType>(
  guards: readonly ((value: unknown, context: z.core.$RefinementCtx) => void)[],
  schema: Schema,
) {
  return z.preprocess((value, context) => {
    for (const guard of guards) guard(value, context);
    return value;
  }, schema);
}

const AuthType = z.literal('environment_variable');

const AuthCreate = guarded(
  [refuseOtherTypes],
  z
    .strictObject({
      type: AuthType,
      secret_name: SecretName,
      secret_value: SecretValue,
      networking: CredentialNetworkingInput,
      injection_location: InjectionLocation.optional(),
      placeholder_prefix: PlaceholderPrefix.optional(),
    })
    .superRefine((auth, context) => {
      if (auth.injection_location?.header === false || isHeaderSafe(auth.secret_value)) return;
      addFinding(context, 'must not hold a line break or another control character to be sent in a header', {
        code: 'secret_value_not_header_safe',
        path: ['secret_value'],
      });
    }),
);

const AuthUpdate = guarded(
  [refuseOtherTypes, refuseImmutable],
  z.strictObject({
    type: AuthType.optional(),
    secret_value: SecretValue.optional(),
    networking: CredentialNetworkingInput.optional(),
    injection_location: z.strictObject(locationFields).optional(),
  }),
);

export const CredentialCreate = z.strictObject({
  auth: AuthCreate,
  display_name: textField(1, DISPLAY_NAME_CHARACTERS_MAX).nullable().optional(),
  metadata: MetadataInput.optional(),
});

export const CredentialUpdate = z.strictObject({
  auth: AuthUpdate.optional(),
  display_name: textField(1, DISPLAY_NAME_CHARACTERS_MAX).nullable().optional(),
  metadata: MetadataPatchInput.optional(),
});

const AuthWire = z.object({
  type: AuthType,
  secret_name: z.string(),
  networking: CredentialNetworkingWire,
  injection_location: z
    .object({ header: z.boolean(), body: z.boolean() })
    .nullable()
    .meta({ description: 'Null only in a credential that an older system left.' }),
  placeholder: z.string().nullable().meta({ description: 'Null only in a credential that an older system left.' }),
  mountable: z.boolean(),
  secret_version: z.number().int(),
  rotated_at: Timestamp.nullable(),
  last_used_at: Timestamp.nullable(),
});

/** Words that tell of a risk; see docs/admin-api.md. */
export const CredentialWarning = z.enum(['low_entropy_value', 'value_not_veiled', 'private_suffix_wildcard']);

export const CredentialWire = z
  .object({
    id: z.string(),
    type: z.literal('vault_credential'),
    vault_id: z.string(),
    display_name: z.string().nullable(),
    auth: AuthWire,
    metadata: Metadata,
    created_at: Timestamp,
    updated_at: Timestamp,
    archived_at: Timestamp.nullable(),
    warnings: z.array(CredentialWarning).optional().meta({ description: 'In answers to create and update.' }),
  })
  .meta({ id: 'Credential' });

export const CredentialPage = pageOf(CredentialWire, 'CredentialPage');

export const CredentialDeleted = z
  .object({ id: z.string(), type: z.literal('vault_credential_deleted') })
  .meta({ id: 'CredentialDeleted' });

export function credentialToWire(credential: Credential): z.output<typeof CredentialWire> {
  const location = credential.injectionLocation;
  return {
    id: credential.id,
    type: 'vault_credential',
    vault_id: credential.vaultId,
    display_name: credential.displayName,
    auth: {
      type: 'environment_variable',
      secret_name: credential.secretName,
      networking: credentialNetworkingToWire(credential.networking),
      injection_location: location === null ? null : { header: location.header, body: location.body },
      placeholder: credential.placeholder,
      mountable: isMountable(credential),
      secret_version: credential.secretVersion,
      rotated_at: toOptionalTimestamp(credential.rotatedAt),
      last_used_at: toOptionalTimestamp(credential.lastUsedAt),
    },
    metadata: { ...credential.metadata },
    created_at: toTimestamp(credential.createdAt),
    updated_at: toTimestamp(credential.updatedAt),
    archived_at: toOptionalTimestamp(credential.archivedAt),
  };
}
