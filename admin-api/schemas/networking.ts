// Wire shapes of networking and allow-lists, normalised as they are read.
import { z } from 'zod';
import { explainPatternFault, parseHostPattern } from '../../model/host-pattern.ts';
import { CREDENTIAL_HOSTS_MAX, ENVIRONMENT_HOSTS_MAX } from '../../model/limits.ts';
import type { CredentialNetworking, EnvironmentNetworking } from '../../model/networking.ts';
import { decideBreadth } from '../public-suffix.ts';
import { addFinding } from '../validation.ts';

interface HostListRules {
  readonly min: number;
  readonly max: number;
  /** Whether `*.com` is refused: a secret must not go wherever a stranger can register a name. */
  readonly refuseBroad: boolean;
}

function readPattern(text: string, rules: HostListRules): { pattern: string } | { broad: boolean; phrase: string } {
  const result = parseHostPattern(text);
  if (!result.ok) return { broad: false, phrase: explainPatternFault(result.fault) };
  if (!rules.refuseBroad || decideBreadth(result.pattern) !== 'too_broad') return { pattern: result.pattern };
  const phrase = 'must not be a wildcard on a public suffix, under which anyone can register a name';
  return { broad: true, phrase };
}

/** A list of host patterns: normalised, and without repeats. */
function hostList(rules: HostListRules) {
  return z
    .array(z.string())
    .min(rules.min)
    .max(rules.max)
    .transform((entries, context) => {
      const patterns = new Set<string>();
      for (const [index, entry] of entries.entries()) {
        const read = readPattern(entry, rules);
        if ('pattern' in read) patterns.add(read.pattern);
        else addFinding(context, read.phrase, { code: read.broad ? 'host_too_broad' : 'invalid_field', path: [index] });
      }
      return [...patterns];
    })
    .meta({
      description: 'Host names, IPv4 addresses, or `*.` and a host name (every depth below it, not the name itself).',
      examples: [['api.notion.com', '*.example.com']],
    });
}

const Unrestricted = z.strictObject({ type: z.literal('unrestricted') });

/** `networking` of a credential, in requests. */
export const CredentialNetworkingInput = z
  .discriminatedUnion('type', [
    Unrestricted,
    z.strictObject({
      type: z.literal('limited'),
      allowed_hosts: hostList({ min: 1, max: CREDENTIAL_HOSTS_MAX, refuseBroad: true }),
    }),
  ])
  .transform((wire): CredentialNetworking =>
    wire.type === 'unrestricted' ? wire : { type: 'limited', allowedHosts: wire.allowed_hosts },
  );

/** `networking` of a credential, in answers. */
export const CredentialNetworkingWire = z.discriminatedUnion('type', [
  z.object({ type: z.literal('unrestricted') }),
  z.object({ type: z.literal('limited'), allowed_hosts: z.array(z.string()) }),
]);

export function credentialNetworkingToWire(
  networking: CredentialNetworking,
): z.output<typeof CredentialNetworkingWire> {
  if (networking.type === 'unrestricted') return { type: 'unrestricted' };
  return { type: 'limited', allowed_hosts: [...networking.allowedHosts] };
}

// Null stands for "not given" here, as in the Claude API.
const limitedFields = {
  allowed_hosts: hostList({ min: 0, max: ENVIRONMENT_HOSTS_MAX, refuseBroad: false }).nullable().optional(),
  allow_package_managers: z
    .boolean()
    .nullable()
    .optional()
    .meta({ description: 'Adds the public package registries that docs/admin-api.md lists.' }),
  allow_mcp_servers: z
    .boolean()
    .superRefine((value, context) => {
      if (value)
        addFinding(context, 'must be false: Keyveil has no list of MCP servers; put their hosts in allowed_hosts');
    })
    .nullable()
    .optional()
    .meta({ description: 'Only false is accepted.' }),
};

type LimitedInput = z.output<z.ZodObject<typeof limitedFields>> & { readonly type?: string | undefined };

function refuseLimitedFields(wire: LimitedInput, context: z.core.$RefinementCtx): void {
  if (wire.type !== 'unrestricted') return;
  for (const name of Object.keys(limitedFields) as (keyof typeof limitedFields)[]) {
    if (wire[name] === undefined || wire[name] === null) continue;
    addFinding(context, 'is not a field of unrestricted networking', { code: 'unknown_field', path: [name] });
  }
}

const NetworkingType = z.enum(['unrestricted', 'limited']);

/** `networking` of a new environment. */
export const EnvironmentNetworkingInput = z
  .strictObject({ type: NetworkingType, ...limitedFields })
  .superRefine(refuseLimitedFields);

/** `networking` in an update of an environment: what is omitted is kept. */
export const EnvironmentNetworkingPatchInput = z
  .strictObject({ type: NetworkingType.optional(), ...limitedFields })
  .superRefine(refuseLimitedFields);

/** `networking` of an environment, in answers. */
export const EnvironmentNetworkingWire = z.discriminatedUnion('type', [
  z.object({ type: z.literal('unrestricted') }),
  z.object({
    type: z.literal('limited'),
    allowed_hosts: z.array(z.string()),
    allow_package_managers: z.boolean(),
    allow_mcp_servers: z.boolean(),
  }),
]);

export function environmentNetworkingToWire(
  networking: EnvironmentNetworking,
): z.output<typeof EnvironmentNetworkingWire> {
  if (networking.type === 'unrestricted') return { type: 'unrestricted' };
  const { allowedHosts, allowPackageManagers } = networking;
  return {
    type: 'limited',
    allowed_hosts: [...allowedHosts],
    allow_package_managers: allowPackageManagers,
    allow_mcp_servers: false,
  };
}
