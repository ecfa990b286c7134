// keyveil credential …
import { Readable } from 'node:stream';
import { asObject, type Json } from './client.ts';
import { JSON_FLAGS, UsageError, type Command, type CommandFlag, type Invocation } from './command.ts';
import { activeNamesOf, createEntry, selectEntries } from './credential-import.ts';
import { parseDotenv } from './dotenv.ts';
import { parseOnOff, parsePairs, resolveCredential, resolveVault, segment } from './names.ts';
import { createObjectCommands } from './object-commands.ts';
import { printList, printObject, printWarnings, type Column } from './output.ts';
import { readSecret, readTextFile } from './secret-input.ts';

const VAULT_FLAG: CommandFlag = { type: 'string', value: 'NAME|ID', help: 'the vault (required)' };
const FROM_FILE_FLAG: CommandFlag = {
  type: 'string',
  value: 'FILE',
  help: 'read the secret from a file (default: standard input)',
};
const AUTH_FLAGS: Readonly<Record<string, CommandFlag>> = {
  host: {
    type: 'string',
    multiple: true,
    value: 'HOST',
    help: 'a host that gets the secret, such as api.example.com or *.example.com',
  },
  unrestricted: { type: 'boolean', help: 'every host gets the secret' },
  header: { type: 'string', value: 'on|off', help: 'swap in headers; a new credential: on' },
  body: { type: 'string', value: 'on|off', help: 'swap in bodies; a new credential: off' },
};
const CREATE_FLAGS: Readonly<Record<string, CommandFlag>> = {
  ...AUTH_FLAGS,
  'placeholder-prefix': { type: 'string', value: 'TEXT', help: 'what the placeholder begins with, such as sk-' },
  'display-name': { type: 'string', value: 'TEXT', help: 'a name for people' },
  metadata: { type: 'string', multiple: true, value: 'KEY=VALUE', help: 'metadata' },
};

function field(name: string): (credential: Json) => unknown {
  return (credential) => asObject(credential['auth'])[name];
}

function hostsOf(credential: Json): unknown {
  const networking = asObject(asObject(credential['auth'])['networking']);
  return networking['allowed_hosts'] ?? networking['type'];
}

const COLUMNS: readonly Column[] = [
  ['ID', (credential) => credential['id']],
  ['NAME', field('secret_name')],
  ['PLACEHOLDER', field('placeholder')],
  ['HOSTS', hostsOf],
  ['VERSION', field('secret_version')],
  ['LAST USED', field('last_used_at')],
  ['ARCHIVED', (credential) => credential['archived_at']],
];

async function vaultPathOf(invocation: Invocation): Promise<{ vaultId: string; path: string }> {
  const vault = invocation.flag('vault');
  if (vault === undefined) throw new UsageError(`--vault is needed: --vault NAME|ID (keyveil vault list shows them)`);
  const vaultId = await resolveVault(invocation.client(), vault);
  return { vaultId, path: `/v1/vaults/${segment(vaultId)}/credentials` };
}

async function pathOf(invocation: Invocation): Promise<string> {
  const { vaultId, path } = await vaultPathOf(invocation);
  return `${path}/${segment(await resolveCredential(invocation.client(), vaultId, invocation.positionals[0] ?? ''))}`;
}

function networkingOf(invocation: Invocation): Json | null {
  const hosts = invocation.flags('host');
  if (invocation.isOn('unrestricted')) {
    if (hosts.length > 0) throw new UsageError('--host and --unrestricted exclude each other');
    return { type: 'unrestricted' };
  }
  return hosts.length === 0 ? null : { type: 'limited', allowed_hosts: hosts };
}

function locationOf(invocation: Invocation): Json | null {
  const entries = ['header', 'body'].flatMap((name): [string, boolean][] => {
    const text = invocation.flag(name);
    return text === undefined ? [] : [[name, parseOnOff(name, text)]];
  });
  return entries.length === 0 ? null : Object.fromEntries(entries);
}

// What every credential of one command line shares. On create the API takes an omitted location as off, so that
// `--body on` alone would switch headers off; people who type that mean "bodies as well".
function createBodyOf(invocation: Invocation): { networking: Json; rest: Json; outer: Json } {
  const networking = networkingOf(invocation);
  if (networking === null)
    throw new UsageError('say where the secret may go: --host HOST (again for more), or --unrestricted');
  const location = locationOf(invocation);
  const prefix = invocation.flag('placeholder-prefix');
  const displayName = invocation.flag('display-name');
  return {
    networking,
    rest: {
      ...(location === null ? {} : { injection_location: { header: true, body: false, ...location } }),
      ...(prefix === undefined ? {} : { placeholder_prefix: prefix }),
    },
    outer: {
      ...(displayName === undefined ? {} : { display_name: displayName }),
      metadata: parsePairs('metadata', invocation.flags('metadata')),
    },
  };
}

function authOf(name: string, value: string, shared: ReturnType<typeof createBodyOf>): Json {
  const auth = { type: 'environment_variable', secret_name: name, secret_value: value, networking: shared.networking };
  return { ...shared.outer, auth: { ...auth, ...shared.rest } };
}

async function importDotenv(invocation: Invocation): Promise<number> {
  const file = invocation.flag('dotenv');
  if (file === undefined) throw new UsageError('--dotenv is needed: --dotenv FILE');
  const shared = createBodyOf(invocation);
  const entries = parseDotenv(readTextFile(invocation, 'dotenv', file), file);
  const { path } = await vaultPathOf(invocation);
  const location = asObject(shared.rest['injection_location']);
  const source = { file, headerIsOn: location['header'] !== false, skipsExisting: invocation.isOn('skip-existing') };
  const { wanted, skipped } = selectEntries(entries, await activeNamesOf(invocation.client(), path), source);
  if (skipped.length > 0) invocation.terminal.err(`keyveil: left as they are: ${skipped.join(', ')}\n`);
  const created: Json[] = [];
  try {
    for (const entry of wanted) {
      const body = authOf(entry.name, entry.value, shared);
      const credential = await createEntry(entry, file, () => invocation.client().call('POST', path, { body }));
      created.push(credential);
      await printWarnings(invocation.terminal, credential);
    }
  } finally {
    // Also after a failure: what was made stays, and is left out by --skip-existing in the next run.
    await printList(invocation, Readable.from(created) as AsyncIterable<Json>, COLUMNS);
  }
  return 0;
}

async function update(invocation: Invocation): Promise<number> {
  const networking = networkingOf(invocation);
  const location = locationOf(invocation);
  const displayName = invocation.flag('display-name');
  const metadata = parsePairs('metadata', invocation.flags('metadata'));
  const auth = {
    ...(networking === null ? {} : { networking }),
    ...(location === null ? {} : { injection_location: location }),
  };
  const body = {
    ...(Object.keys(auth).length === 0 ? {} : { auth: { type: 'environment_variable', ...auth } }),
    ...(displayName === undefined ? {} : { display_name: displayName }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
  if (Object.keys(body).length === 0)
    throw new UsageError(
      'nothing to change: give --host, --unrestricted, --header, --body, --display-name or --metadata',
    );
  await printObject(invocation, await invocation.client().call('POST', await pathOf(invocation), { body }));
  return 0;
}

async function rotate(invocation: Invocation): Promise<number> {
  const path = await pathOf(invocation);
  const value = await readSecret(invocation, 'New value: ');
  const body = { auth: { type: 'environment_variable', secret_value: value } };
  await printObject(invocation, await invocation.client().call('POST', path, { body }));
  return 0;
}

async function create(invocation: Invocation): Promise<number> {
  const shared = createBodyOf(invocation);
  const { path } = await vaultPathOf(invocation);
  const value = await readSecret(invocation, 'Value: ');
  const body = authOf(invocation.positionals[0] ?? '', value, shared);
  await printObject(invocation, await invocation.client().call('POST', path, { body }));
  return 0;
}

const ONE = { min: 1, max: 1 } as const;
const OF_VAULT = { ...JSON_FLAGS, vault: VAULT_FLAG } as const;

export const CREDENTIAL_COMMANDS: readonly Command[] = [
  {
    name: 'credential create',
    summary: 'Create a credential; its value is read from standard input or a file',
    usage: 'NAME --vault NAME|ID --host HOST',
    examples: ['printf %s "$KEY" | keyveil credential create NOTION_API_KEY --vault work --host api.notion.com'],
    flags: { ...OF_VAULT, ...CREATE_FLAGS, 'from-file': FROM_FILE_FLAG },
    positionals: ONE,
    run: create,
  },
  {
    name: 'credential import',
    summary: 'Create one credential per line of a dotenv file; every line is checked before the first is created',
    usage: '--dotenv FILE --vault NAME|ID --host HOST',
    examples: ['keyveil credential import --dotenv .env --vault work --host "*.example.com"'],
    flags: {
      ...OF_VAULT,
      ...CREATE_FLAGS,
      dotenv: { type: 'string', value: 'FILE', help: 'lines NAME=VALUE (required)' },
      'skip-existing': { type: 'boolean', help: 'leave out names that the vault has already' },
    },
    positionals: { min: 0, max: 0 },
    run: importDotenv,
  },
  {
    name: 'credential list',
    summary: 'List the credentials of a vault, newest first',
    usage: '--vault NAME|ID',
    examples: ['keyveil credential list --vault work'],
    flags: { ...OF_VAULT, all: { type: 'boolean', help: 'archived ones as well' } },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      const { path } = await vaultPathOf(invocation);
      await printList(invocation, invocation.client().list(path, { includeArchived: invocation.isOn('all') }), COLUMNS);
      return 0;
    },
  },
  {
    name: 'credential update',
    summary: 'Change hosts, locations, display name or metadata; hosts are replaced as a whole',
    usage: 'NAME|ID --vault NAME|ID [--host HOST]… [--header on|off] [--body on|off]',
    examples: ['keyveil credential update NOTION_API_KEY --vault work --body on'],
    flags: {
      ...OF_VAULT,
      ...AUTH_FLAGS,
      'display-name': { type: 'string', value: 'TEXT', help: 'a name for people' },
      metadata: { type: 'string', multiple: true, value: 'KEY=VALUE', help: 'metadata to set' },
    },
    positionals: ONE,
    run: update,
  },
  {
    name: 'credential rotate',
    summary: 'Give a credential a new value; the placeholder stays',
    usage: 'NAME|ID --vault NAME|ID',
    examples: ['printf %s "$NEW_KEY" | keyveil credential rotate NOTION_API_KEY --vault work'],
    flags: { ...OF_VAULT, 'from-file': FROM_FILE_FLAG },
    positionals: ONE,
    run: rotate,
  },
  ...createObjectCommands({
    kind: 'credential',
    usage: 'NAME|ID --vault NAME|ID',
    sample: 'NOTION_API_KEY --vault work',
    flags: OF_VAULT,
    summaries: {
      show: 'Show a credential; its value is never shown',
      archive: 'Archive a credential: its value is purged and its name freed',
      delete: 'Delete a credential for good',
    },
    pathOf,
  }),
];
