// Wire shapes of environments, with the fields that the Claude API's types expect.
import { z } from 'zod';
import type { Environment } from '../../model/environment.ts';
import { parseCidr } from '../../model/ip-class.ts';
import { DESCRIPTION_CHARACTERS_MAX, DISPLAY_NAME_CHARACTERS_MAX, ENVIRONMENT_CIDRS_MAX } from '../../model/limits.ts';
import { addFinding } from '../validation.ts';
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
import {
  EnvironmentNetworkingInput,
  EnvironmentNetworkingPatchInput,
  environmentNetworkingToWire,
  EnvironmentNetworkingWire,
} from './networking.ts';

export const EnvironmentParams = z.object({ environment_id: z.string() });

const PACKAGE_LISTS = ['apt', 'cargo', 'gem', 'go', 'npm', 'pip'] as const;

const NoPackages = z
  .array(z.unknown())
  .superRefine((list, context) => {
    if (list.length > 0) addFinding(context, 'must be empty: Keyveil installs no packages');
  })
  .nullable()
  .optional()
  .meta({ maxItems: 0 });

const PackagesInput = z.strictObject({
  type: z.literal('packages').optional(),
  apt: NoPackages,
  cargo: NoPackages,
  gem: NoPackages,
  go: NoPackages,
  npm: NoPackages,
  pip: NoPackages,
});

const PrivateCidrs = z
  .array(z.string())
  .max(ENVIRONMENT_CIDRS_MAX)
  .superRefine((entries, context) => {
    for (const [index, entry] of entries.entries()) {
      if (parseCidr(entry) !== null) continue;
      const phrase = 'must be a range such as 10.1.0.0/16 or fd00::/8, with no address bit set past the prefix';
      addFinding(context, phrase, { path: [index] });
    }
  })
  .meta({ description: 'Private ranges that sessions of this environment may reach.' });

const configFields = {
  type: z.literal('cloud').optional(),
  packages: PackagesInput.nullable().optional(),
  allowed_private_cidrs: PrivateCidrs.nullable().optional(),
};

const Scope = z.literal('organization').nullable().optional().meta({ description: 'Accepted and ignored.' });

const Description = textField(0, DESCRIPTION_CHARACTERS_MAX).nullable().optional();

export const EnvironmentCreate = z.strictObject({
  name: textField(1, DISPLAY_NAME_CHARACTERS_MAX),
  description: Description,
  config: z
    .strictObject({ ...configFields, networking: EnvironmentNetworkingInput.nullable().optional() })
    .nullable()
    .optional()
    .meta({ description: 'Without networking, the default of the daemon (KEYVEIL_DEFAULT_NETWORKING) is copied.' }),
  metadata: MetadataInput.optional(),
  scope: Scope,
});

export const EnvironmentUpdate = z.strictObject({
  name: textField(1, DISPLAY_NAME_CHARACTERS_MAX).optional(),
  description: Description,
  config: z
    .strictObject({ ...configFields, networking: EnvironmentNetworkingPatchInput.nullable().optional() })
    .nullable()
    .optional(),
  metadata: MetadataPatchInput.optional(),
  scope: Scope,
});

const packageList = z.array(z.string());

export const EnvironmentWire = z
  .object({
    id: z.string(),
    type: z.literal('environment'),
    name: z.string(),
    description: z.string().nullable(),
    config: z.object({
      type: z.literal('cloud'),
      networking: EnvironmentNetworkingWire,
      packages: z.object({
        type: z.literal('packages'),
        apt: packageList,
        cargo: packageList,
        gem: packageList,
        go: packageList,
        npm: packageList,
        pip: packageList,
      }),
      allowed_private_cidrs: z.array(z.string()),
    }),
    scope: z.literal('organization'),
    metadata: Metadata,
    created_at: Timestamp,
    updated_at: Timestamp,
    archived_at: Timestamp.nullable(),
  })
  .meta({ id: 'Environment' });

export const EnvironmentPage = pageOf(EnvironmentWire, 'EnvironmentPage');

export const EnvironmentDeleted = z
  .object({ id: z.string(), type: z.literal('environment_deleted') })
  .meta({ id: 'EnvironmentDeleted' });

type Packages = Record<(typeof PACKAGE_LISTS)[number], string[]>;

export function environmentToWire(environment: Environment): z.output<typeof EnvironmentWire> {
  const empty = Object.fromEntries(PACKAGE_LISTS.map((name) => [name, []])) as unknown as Packages;
  return {
    id: environment.id,
    type: 'environment',
    name: environment.name,
    description: environment.description,
    config: {
      type: 'cloud',
      networking: environmentNetworkingToWire(environment.networking),
      packages: { type: 'packages', ...empty },
      allowed_private_cidrs: [...environment.allowedPrivateCidrs],
    },
    scope: 'organization',
    metadata: { ...environment.metadata },
    created_at: toTimestamp(environment.createdAt),
    updated_at: toTimestamp(environment.updatedAt),
    archived_at: toOptionalTimestamp(environment.archivedAt),
  };
}
