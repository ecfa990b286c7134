// Session policies made by hand, for tests of what the data plane does with placeholders.
import { KeyveilError } from '../../model/errors.ts';
import { createHostSet, EVERY_HOST } from '../../model/host-pattern.ts';
import type { ArchivedPlaceholder, PolicyCredential, SessionPolicy } from '../../model/ports.ts';
import { Secret } from '../../model/secret.ts';

export interface CredentialInput {
  readonly placeholder: string;
  /** Null: opening it throws `credential_unreadable`. */
  readonly value: string | Buffer | null;
  readonly secretName?: string;
  readonly secretVersion?: number;
  /** Null covers every host. */
  readonly hosts?: readonly string[] | null;
  readonly header?: boolean;
  readonly body?: boolean;
}

function secretOf(value: string | Buffer): Secret {
  return typeof value === 'string' ? Secret.fromText(value) : Secret.fromBytes(value);
}

/** A credential with header and body on, for every host, unless the input says otherwise. */
export function policyCredential(input: CredentialInput, number: number): PolicyCredential {
  const secret = input.value === null ? null : secretOf(input.value);
  const id = `vcrd_${String(number)}`;
  const hosts = input.hosts ?? null;
  return {
    id,
    vaultId: 'vlt_1',
    secretName: input.secretName ?? `SECRET_${String(number)}`,
    placeholder: input.placeholder,
    coverage: hosts === null ? EVERY_HOST : createHostSet(hosts),
    header: input.header ?? true,
    body: input.body ?? true,
    secretVersion: input.secretVersion ?? 1,
    open() {
      if (secret === null) throw new KeyveilError('credential_unreadable', `Credential ${id} can't be opened.`);
      return secret;
    },
  };
}

/** A policy of these credentials, numbered from 1, in an environment that admits every host. */
export function sessionPolicy(
  credentials: readonly CredentialInput[],
  archived: readonly ArchivedPlaceholder[] = [],
): SessionPolicy {
  return {
    sessionId: 'sesn_1',
    status: 'active',
    expiresAt: null,
    tokenHash: Buffer.alloc(32),
    environmentId: null,
    admission: EVERY_HOST,
    allowedPrivateCidrs: [],
    credentials: credentials.map((credential, index) => policyCredential(credential, index + 1)),
    archived,
    activeCredentialCount: credentials.length,
    emergencyStop: { active: false, reason: null },
    denialLimit: null,
  };
}

/** A placeholder whose random part repeats these letters. */
export function placeholderOf(letters: string, prefix = ''): string {
  return `${prefix}kvph_${letters.repeat(32).slice(0, 32)}`;
}
