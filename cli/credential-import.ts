// What keyveil credential import checks before it creates anything, and how it names what went wrong later.
import { findSecretValueFault, isHeaderSafe, SECRET_NAME_PATTERN } from '../model/credential.ts';
import { StartError } from '../model/errors.ts';
import { CREDENTIALS_PER_VAULT_MAX } from '../model/limits.ts';
import { createReservedNameCheck } from '../model/reserved-names.ts';
import { Secret } from '../model/secret.ts';
import { ApiError, asObject, type AdminClient, type Json } from './client.ts';
import { UsageError } from './command.ts';
import type { DotenvEntry } from './dotenv.ts';
import { textOf } from './names.ts';

const isReserved = createReservedNameCheck([]);

/** Names of the active credentials of a vault, from the path of its list. */
export async function activeNamesOf(client: AdminClient, path: string): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  for await (const credential of client.list(path)) names.add(textOf(asObject(credential['auth']), 'secret_name'));
  return names;
}

function faultOf({ name, value }: DotenvEntry, headerIsOn: boolean): string | null {
  if (!SECRET_NAME_PATTERN.test(name)) return 'is longer than 128 characters';
  if (isReserved(name)) return "is a reserved name: a sandbox's tools give it a meaning";
  const secret = Secret.fromText(value);
  switch (findSecretValueFault(secret)) {
    case 'empty':
      return 'has no value';
    case 'too_long':
      return 'has a value that is too long';
    case 'nul':
      return 'has a value with a NUL character';
    case null:
      return headerIsOn && !isHeaderSafe(secret)
        ? 'has a value with a line break or another control character, which no header can carry: take the line out, or import with --header off --body on'
        : null;
  }
}

export interface ImportSource {
  readonly file: string;
  readonly headerIsOn: boolean;
  readonly skipsExisting: boolean;
}

/** The entries to create, and the names that are left out. */
export interface Selection {
  readonly wanted: readonly DotenvEntry[];
  readonly skipped: readonly string[];
}

/**
 * Checks every entry. Throws an error with a line per entry that can't be created, so that a mistake in the last one
 * is known before the first is made; it never quotes a value.
 */
export function selectEntries(
  entries: readonly DotenvEntry[],
  existing: ReadonlySet<string>,
  source: ImportSource,
): Selection {
  const describe = (entry: DotenvEntry, fault: string): string => `${placeOf(entry, source.file)} ${fault}`;
  const faults = entries.flatMap((entry) => {
    const fault = faultOf(entry, source.headerIsOn);
    return fault === null ? [] : [describe(entry, fault)];
  });
  if (faults.length > 0) throw new UsageError([...faults, 'nothing was created'].join('\n'));
  const taken = entries.filter(({ name }) => existing.has(name));
  if (taken.length > 0 && !source.skipsExisting) {
    const lines = taken.map((entry) => describe(entry, 'is in the vault already'));
    const advice = 'nothing was created: rotate or archive these, or leave them out by --skip-existing';
    throw new StartError([...lines, advice].join('\n'));
  }
  const wanted = entries.filter(({ name }) => !existing.has(name));
  if (existing.size + wanted.length > CREDENTIALS_PER_VAULT_MAX) {
    throw new StartError(
      `${source.file} has ${wanted.length} new names, and the vault has ${existing.size} of at most ${CREDENTIALS_PER_VAULT_MAX} credentials: nothing was created`,
    );
  }
  return { wanted, skipped: taken.map(({ name }) => name) };
}

function placeOf({ line, name }: DotenvEntry, file: string): string {
  return `${file}, line ${line}: ${name}`;
}

/** Creates one; a refusal names the line, and how to go on. */
export async function createEntry(entry: DotenvEntry, file: string, create: () => Promise<Json>): Promise<Json> {
  try {
    return await create();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const message = `${placeOf(entry, file)}: ${error.message} The lines before it were imported: run it again with --skip-existing`;
    throw new ApiError(error.status, error.code, { message, param: error.param });
  }
}
