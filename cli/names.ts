// Resolves what a person types for a vault or a credential: an id, or a name that stands for exactly one.
import { isId } from '../model/ids.ts';
import { escapeControls } from '../model/printable.ts';
import { ApiError, asObject, type AdminClient, type Json } from './client.ts';
import { UsageError } from './command.ts';

/** A text field of an object; empty when there is none. */
export function textOf(item: Json, name: string): string {
  const value = item[name];
  return typeof value === 'string' ? value : '';
}

/** Ids of the active vaults with this display name, newest first. */
export async function vaultsNamed(client: AdminClient, name: string): Promise<string[]> {
  const ids: string[] = [];
  for await (const vault of client.list('/v1/vaults')) {
    if (textOf(vault, 'display_name') === name) ids.push(textOf(vault, 'id'));
  }
  return ids;
}

/** Says what helps where the token's scope admits no list: an id needs none. */
async function lookUp(kind: 'vault' | 'environment', text: string, find: () => Promise<string[]>): Promise<string[]> {
  try {
    return await find();
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'insufficient_scope') throw error;
    const sample = kind === 'vault' ? 'vlt_…' : 'env_…';
    const message = `${quote(text)} is a name, and this token may not look names up: give the id of the ${kind} (${sample}), which its operator knows. ${error.message}`;
    throw new ApiError(error.status, error.code, { message });
  }
}

/** Id of the active vault with this id or display name. Throws a UsageError when there is none, or more than one. */
export async function resolveVault(client: AdminClient, text: string): Promise<string> {
  if (isId('vault', text)) return text;
  const ids = await lookUp('vault', text, () => vaultsNamed(client, text));
  return onlyOne(ids, `vault ${quote(text)}`, 'keyveil vault list');
}

/** Id of the active credential of a vault with this id or secret name. */
export async function resolveCredential(client: AdminClient, vaultId: string, text: string): Promise<string> {
  if (isId('credential', text)) return text;
  const ids: string[] = [];
  for await (const credential of client.list(`/v1/vaults/${vaultId}/credentials`)) {
    if (textOf(asObject(credential['auth']), 'secret_name') === text) ids.push(textOf(credential, 'id'));
  }
  return onlyOne(ids, `credential ${quote(text)} in this vault`, `keyveil credential list --vault ${vaultId}`);
}

/** Id of the active environment with this id or name. */
export async function resolveEnvironment(client: AdminClient, text: string): Promise<string> {
  if (isId('environment', text)) return text;
  const ids = await lookUp('environment', text, async () => {
    const found: string[] = [];
    for await (const environment of client.list('/v1/environments')) {
      if (textOf(environment, 'name') === text) found.push(textOf(environment, 'id'));
    }
    return found;
  });
  return onlyOne(ids, `environment ${quote(text)}`, 'keyveil environment list');
}

/** A typed text for a message. */
export function quote(text: string): string {
  return escapeControls(JSON.stringify(text));
}

function onlyOne(ids: readonly string[], what: string, listing: string): string {
  const [id] = ids;
  if (id === undefined) throw new UsageError(`there is no active ${what}: ${listing} shows what there is`);
  if (ids.length > 1)
    throw new UsageError(`there are ${ids.length} of ${what}: give the id of one (${ids.join(', ')})`);
  return id;
}

/** Encodes a piece of a path, so that a typed id can't reach another route. */
export function segment(text: string): string {
  return encodeURIComponent(text);
}

/** `KEY=VALUE` pairs of a flag. */
export function parsePairs(flag: string, pairs: readonly string[]): Readonly<Record<string, string>> {
  const entries = pairs.map((pair): [string, string] => {
    const equals = pair.indexOf('=');
    if (equals < 1) throw new UsageError(`--${flag} must be KEY=VALUE, not ${quote(pair)}`);
    return [pair.slice(0, equals), pair.slice(equals + 1)];
  });
  return Object.fromEntries(entries);
}

/** `on` or `off` of a flag. */
export function parseOnOff(flag: string, text: string): boolean {
  if (text === 'on' || text === 'off') return text === 'on';
  throw new UsageError(`--${flag} must be on or off, not ${quote(text)}`);
}

/** Seconds of a flag such as `90`, `15m`, `12h` or `7d`; null for `never`. */
export function parseDuration(flag: string, text: string): number | null {
  if (text === 'never') return null;
  const match = /^([1-9][0-9]{0,9})(s|m|h|d)?$/.exec(text);
  const unit = { s: 1, m: 60, h: 3600, d: 86_400 }[match?.[2] ?? 's'];
  if (match?.[1] === undefined || unit === undefined) {
    throw new UsageError(`--${flag} must be a time such as 900, 15m, 12h, 7d or never, not ${quote(text)}`);
  }
  return Number(match[1]) * unit;
}
