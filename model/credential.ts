// Credentials: the record, and the rules of its fields that need no IO.
import { LOW_ENTROPY_BYTES_BELOW, SECRET_VALUE_BYTES_MAX } from './limits.ts';
import type { CredentialNetworking } from './networking.ts';
import type { Secret } from './secret.ts';
import type { Metadata, MetadataPatch } from './vault.ts';

/** Where in a request the value may be put. */
export interface InjectionLocation {
  readonly header: boolean;
  readonly body: boolean;
}

/** One `environment_variable` credential, without its value. Times are milliseconds since the epoch. */
export interface Credential {
  readonly id: string;
  readonly vaultId: string;
  readonly displayName: string | null;
  readonly secretName: string;
  /** Null in rows that an older system left; such a credential can't be mounted. */
  readonly placeholder: string | null;
  /** Null in rows that an older system left; such a credential can't be mounted. */
  readonly injectionLocation: InjectionLocation | null;
  readonly networking: CredentialNetworking;
  /** 1, then one more per rotation. */
  readonly secretVersion: number;
  readonly rotatedAt: number | null;
  readonly lastUsedAt: number | null;
  readonly metadata: Metadata;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly archivedAt: number | null;
}

export interface NewCredential {
  readonly vaultId: string;
  readonly displayName: string | null;
  readonly secretName: string;
  readonly secretValue: Secret;
  readonly placeholderPrefix: string;
  readonly networking: CredentialNetworking;
  readonly injectionLocation: InjectionLocation;
  readonly metadata: Metadata;
}

/** Omitted fields are kept. */
export interface CredentialPatch {
  readonly displayName?: string | null;
  readonly secretValue?: Secret;
  readonly networking?: CredentialNetworking;
  /** Merged field by field over the stored value. */
  readonly injectionLocation?: Partial<InjectionLocation>;
  readonly metadata?: MetadataPatch;
}

/** Whether a credential can be turned into an environment variable. */
export function isMountable(credential: Pick<Credential, 'placeholder' | 'injectionLocation'>): boolean {
  return credential.placeholder !== null && credential.injectionLocation !== null;
}

/** What a `secret_name` may look like. */
export const SECRET_NAME_PATTERN = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

export type SecretValueFault = 'empty' | 'too_long' | 'nul';

/** Checks a value's size in bytes of UTF-8 and that it holds no NUL; null when it is fine. */
export function findSecretValueFault(value: Secret): SecretValueFault | null {
  if (value.byteLength === 0) return 'empty';
  if (value.byteLength > SECRET_VALUE_BYTES_MAX) return 'too_long';
  return value.reveal().includes(0) ? 'nul' : null;
}

/** Whether the value can stand in a header field (RFC 9110 section 5.5: no CR, LF or other control character). */
export function isHeaderSafe(value: Secret): boolean {
  for (const byte of value.reveal()) if (byte < 0x20 || byte === 0x7f) return false;
  return true;
}

/** Whether the value is so short or plain that an upstream's or the veil's behaviour could confirm a guess. */
export function isLowEntropy(value: Secret): boolean {
  if (value.byteLength < LOW_ENTROPY_BYTES_BELOW) return true;
  return value.reveal().every((byte) => byte >= 0x30 && byte <= 0x39);
}
