// Mounting: turning a session's vaults into environment variables, with every failure and warning of it.
import { isMountable, type Credential } from './credential.ts';
import { KeyveilError } from './errors.ts';
import { compileAdmission, type EnvironmentNetworking } from './networking.ts';
import type { HostSet } from './host-pattern.ts';
import type { ReservedNameCheck } from './reserved-names.ts';
import type { Mount } from './session.ts';
import { findRawOnly } from './veil-budget.ts';

/** Settings of the daemon that a mount depends on. */
export interface MountSettings {
  /** False under `KEYVEIL_MITM=off`. */
  readonly interceptionOn: boolean;
  readonly isReserved: ReservedNameCheck;
  readonly passthroughHosts: HostSet;
}

/** A credential and the size of its value, bytes. */
export interface MountCredential extends Credential {
  readonly valueByteLength: number;
}

/** What a mount reads, in the order of `vault_ids`; credentials are the active ones, in order of creation. */
export interface MountInput {
  readonly vaults: readonly { readonly id: string; readonly credentials: readonly MountCredential[] }[];
  readonly networking: EnvironmentNetworking;
  readonly settings: MountSettings;
}

export interface MountResult {
  readonly mounts: readonly Mount[];
  readonly warnings: readonly string[];
}

function describeUnmountable(credential: Credential): string {
  return (
    `Credential ${credential.id} (${credential.secretName}) in vault ${credential.vaultId} has no placeholder or ` +
    'injection location and cannot be mounted. Archive it and create it again.'
  );
}

function requireMountable(credentials: readonly Credential[], settings: MountSettings): void {
  const [first] = credentials;
  if (!settings.interceptionOn && first !== undefined) {
    throw new KeyveilError(
      'mitm_disabled',
      'Interception is off (KEYVEIL_MITM=off), so placeholders could never be swapped, and the vaults hold active ' +
        `credentials (${first.secretName}). Start the daemon with KEYVEIL_MITM=on, or leave these vaults out.`,
      { param: 'vault_ids' },
    );
  }
  const broken = credentials.filter((credential) => !isMountable(credential));
  if (broken.length > 0) {
    throw new KeyveilError('credential_not_mountable', broken.map(describeUnmountable).join('\n'), {
      param: 'vault_ids',
    });
  }
}

function warnOf(credential: Credential, input: MountInput, admitted: HostSet): string[] {
  const label = `${credential.secretName} (${credential.id})`;
  const { networking } = credential;
  if (networking.type === 'unrestricted') {
    if (input.networking.type !== 'unrestricted') return [];
    return [
      `credential_unrestricted: ${label} and the environment are both unrestricted: the sandbox can send this secret to any host.`,
    ];
  }
  const warnings: string[] = [];
  for (const host of networking.allowedHosts) {
    const admittedShare = admitted.shareOf(host);
    if (admittedShare !== 'all') {
      const extent = admittedShare === 'none' ? 'does not admit' : 'admits only in part';
      warnings.push(`credential_host_unreachable: ${label} allows ${host}, which the session's environment ${extent}.`);
    }
    const relayedShare = input.settings.passthroughHosts.shareOf(host);
    if (relayedShare !== 'none') {
      const extent = relayedShare === 'all' ? 'which is' : 'of which a part is';
      warnings.push(
        `credential_host_passthrough: ${label} allows ${host}, ${extent} relayed unread (KEYVEIL_PASSTHROUGH_HOSTS), ` +
          'so nothing is swapped there.',
      );
    }
  }
  return warnings;
}

const ANY_HOST = '*';

/** Ids of the credentials that cover each of the hosts and wildcards that an admitted response can come from. */
function groupByHost(credentials: readonly MountCredential[], admitted: HostSet): readonly MountCredential[][] {
  const byPattern = new Map<string, MountCredential[]>([[ANY_HOST, []]]);
  for (const credential of credentials) {
    const { networking } = credential;
    const patterns = networking.type === 'unrestricted' ? [ANY_HOST] : networking.allowedHosts;
    for (const pattern of new Set(patterns)) byPattern.set(pattern, [...(byPattern.get(pattern) ?? []), credential]);
  }
  return [...byPattern.keys()].flatMap((pattern) => {
    if (pattern !== ANY_HOST && admitted.shareOf(pattern) === 'none') return [];
    // Two patterns that meet are one within the other: whatever covers all of this one covers what it has in common.
    const wider = pattern.split('.').flatMap((_, index, labels) => {
      const suffix = labels.slice(index + 1).join('.');
      return suffix === '' || `*.${suffix}` === pattern ? [] : [`*.${suffix}`];
    });
    return [[...new Set([pattern, ANY_HOST, ...wider].flatMap((each) => byPattern.get(each) ?? []))]];
  });
}

/** Warnings of values that are veiled in their raw form alone at some host, since too many long ones cover it. */
function warnOfRawOnly({ vaults }: MountInput, admitted: HostSet): string[] {
  const credentials = vaults.flatMap((vault) => vault.credentials);
  const rawOnlyOf = (group: readonly MountCredential[]): ReadonlySet<string> =>
    findRawOnly(group.map(({ id, valueByteLength: byteLength }) => ({ id, byteLength })));
  if (rawOnlyOf(credentials).size === 0) return [];
  const rawOnly = new Set(groupByHost(credentials, admitted).flatMap((group) => [...rawOnlyOf(group)]));
  return credentials
    .filter(({ id }) => rawOnly.has(id))
    .map(
      ({ secretName, id }) =>
        `veil_raw_only: ${secretName} (${id}) is veiled in its raw form alone (no base64, no escaped forms), since ` +
        'the values that cover a host with it are too long together. Use fewer or shorter values in one session.',
    );
}

/**
 * Decides what a session mounts. The first vault that has a name wins. Throws `mitm_disabled` or
 * `credential_not_mountable` (also for a credential that another vault's shadows).
 */
export function decideMounts(input: MountInput): MountResult {
  requireMountable(
    input.vaults.flatMap((vault) => vault.credentials),
    input.settings,
  );
  const admitted = compileAdmission(input.networking);
  const mounts = new Map<string, Mount>();
  const warnings: string[] = [];
  for (const vault of input.vaults) {
    for (const credential of vault.credentials) {
      warnings.push(...warnOf(credential, input, admitted));
      if (input.settings.isReserved(credential.secretName)) {
        warnings.push(
          `name_reserved: ${credential.secretName} (${credential.id}) is a reserved name now and was not mounted.`,
        );
      } else if (!mounts.has(credential.secretName) && credential.placeholder !== null) {
        const { secretName, placeholder, id } = credential;
        mounts.set(secretName, { secretName, placeholder, vaultId: vault.id, credentialId: id });
      }
    }
  }
  return { mounts: [...mounts.values()], warnings: [...warnings, ...warnOfRawOnly(input, admitted)] };
}
