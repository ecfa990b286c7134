// Resolves what a person types for a vault or a credential: an id, or a name that stands for exactly one.
import { isId } from '../model/ids.ts';
import { escapeControls } from '../model/printable.ts';
import { asObject, type AdminClient, type Json } from './client.ts';
import { UsageError } from './command.ts';

/** A text field of an object; empty when there is none. */
export function textOf(item: Json, name: string): string {
  const value = item[name];
  return typeof value === 'string' ? value : '';
}

/** Id of the active vault with this id or display name. Throws a UsageError when there is none, or more than one. */
export async function resolveVault(client: AdminClient, text: string): Promise<string> {
  if (isId('vault', text)) return text;
  const ids: string[] = [];
  for await (const vault of client.list('/v1/vaults')) {
    if (textOf(vault, 'display_name') === text) ids.push(textOf(vault, 'id'));
  }
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
  const ids: string[] = [];
  for await (const environment of client.list('/v1/environments')) {
    if (textOf(environment, 'name') === text) ids.push(textOf(environment, 'id'));
  }
  return onlyOne(ids, `environment ${quote(text)}`, 'keyveil environment list');
}

function quote(text: string): string {
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
