// Reads and writes the JSON columns; what can't be read becomes null, and the caller decides what denies.
import type { CredentialNetworking, EnvironmentNetworking } from '../model/networking.ts';
import type { Mount } from '../model/session.ts';
import type { Metadata } from '../model/vault.ts';

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Text that another hand left in the file; the callers deny or leave out what is null.
    return null;
  }
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

/** A list of strings, or null. */
export function parseTexts(text: string): readonly string[] | null {
  const value = parseJson(text);
  return Array.isArray(value) && value.every(isText) ? value : null;
}

/** Only pairs of strings; anything else in the column is left out. */
export function parseMetadata(text: string): Metadata {
  return Object.fromEntries(
    Object.entries(asRecord(parseJson(text)) ?? {}).filter((pair): pair is [string, string] => isText(pair[1])),
  );
}

function asHosts(value: unknown): readonly string[] | null {
  return Array.isArray(value) && value.every(isText) ? value : null;
}

/** A credential's networking, or null. */
export function parseCredentialNetworking(text: string): CredentialNetworking | null {
  const value = asRecord(parseJson(text));
  if (value?.['type'] === 'unrestricted') return { type: 'unrestricted' };
  const allowedHosts = asHosts(value?.['allowedHosts']);
  return value?.['type'] === 'limited' && allowedHosts !== null ? { type: 'limited', allowedHosts } : null;
}

/** An environment's networking, or null. */
export function parseEnvironmentNetworking(text: string): EnvironmentNetworking | null {
  const value = asRecord(parseJson(text));
  if (value?.['type'] === 'unrestricted') return { type: 'unrestricted' };
  const allowedHosts = asHosts(value?.['allowedHosts']);
  const allowPackageManagers = value?.['allowPackageManagers'];
  if (value?.['type'] !== 'limited' || allowedHosts === null || typeof allowPackageManagers !== 'boolean') return null;
  return { type: 'limited', allowedHosts, allowPackageManagers };
}

/** One spelling per networking, since the text is bound to the sealed value. */
export function formatCredentialNetworking(networking: CredentialNetworking): string {
  if (networking.type === 'unrestricted') return JSON.stringify({ type: 'unrestricted' });
  return JSON.stringify({ type: 'limited', allowedHosts: networking.allowedHosts });
}

export function formatEnvironmentNetworking(networking: EnvironmentNetworking): string {
  if (networking.type === 'unrestricted') return JSON.stringify({ type: 'unrestricted' });
  const { allowedHosts, allowPackageManagers } = networking;
  return JSON.stringify({ type: 'limited', allowedHosts, allowPackageManagers });
}

function isMount(value: unknown): value is Mount {
  const fields = asRecord(value);
  return (
    fields !== null && ['secretName', 'placeholder', 'vaultId', 'credentialId'].every((name) => isText(fields[name]))
  );
}

/** A session's mounts; entries that can't be read are left out. */
export function parseMounts(text: string): readonly Mount[] {
  const value = parseJson(text);
  return Array.isArray(value) ? value.filter(isMount) : [];
}
