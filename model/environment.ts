// Environments: the egress policy that a session lives under.
import { KeyveilError } from './errors.ts';
import type { EnvironmentNetworking } from './networking.ts';
import type { Metadata, MetadataPatch } from './vault.ts';

/** An egress policy. Times are milliseconds since the epoch. */
export interface Environment {
  readonly id: string;
  readonly name: string;
  /** Null when it was never set. */
  readonly description: string | null;
  readonly networking: EnvironmentNetworking;
  /** Private ranges that sessions of this environment may reach, as `address/bits`. */
  readonly allowedPrivateCidrs: readonly string[];
  readonly metadata: Metadata;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly archivedAt: number | null;
}

export type NewEnvironment = Pick<
  Environment,
  'name' | 'description' | 'networking' | 'allowedPrivateCidrs' | 'metadata'
>;

/** Omitted fields are kept; `networking` holds the merged result of the caller's partial update. */
export interface EnvironmentPatch {
  readonly name?: string;
  readonly description?: string | null;
  readonly networking?: PartialNetworking;
  readonly allowedPrivateCidrs?: readonly string[];
  readonly metadata?: MetadataPatch;
}

/** An update of networking: the type as given or kept, and only the fields that were sent. */
export interface PartialNetworking {
  readonly type?: EnvironmentNetworking['type'];
  readonly allowedHosts?: readonly string[];
  readonly allowPackageManagers?: boolean;
}

/**
 * Applies an update of networking; fields of a limited environment that were not sent are kept. Throws `invalid_field`
 * when fields of a limited environment are sent to an unrestricted one: dropping them would leave it open in silence.
 */
export function mergeNetworking(current: EnvironmentNetworking, patch: PartialNetworking): EnvironmentNetworking {
  const type = patch.type ?? current.type;
  if (type === 'unrestricted') {
    if (patch.allowedHosts === undefined && patch.allowPackageManagers === undefined) return { type };
    throw new KeyveilError(
      'invalid_field',
      'config.networking.type must be "limited" for a list of hosts to apply; the environment is unrestricted.',
      { param: 'config.networking.type' },
    );
  }
  const before = current.type === 'limited' ? current : { allowedHosts: [], allowPackageManagers: false };
  return {
    type,
    allowedHosts: patch.allowedHosts ?? before.allowedHosts,
    allowPackageManagers: patch.allowPackageManagers ?? before.allowPackageManagers,
  };
}
