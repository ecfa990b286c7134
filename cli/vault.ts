// keyveil vault …
import { JSON_FLAGS, type Command, type Invocation } from './command.ts';
import { parsePairs, quote, resolveVault, segment, vaultsNamed } from './names.ts';
import { createObjectCommands } from './object-commands.ts';
import { printList, printObject, type Column } from './output.ts';

const METADATA_FLAG = { type: 'string', multiple: true, value: 'KEY=VALUE', help: 'metadata' } as const;
const ALL_FLAG = { type: 'boolean', help: 'archived ones as well' } as const;

const COLUMNS: readonly Column[] = [
  ['ID', (vault) => vault['id']],
  ['NAME', (vault) => vault['display_name']],
  ['CREATED', (vault) => vault['created_at']],
  ['ARCHIVED', (vault) => vault['archived_at']],
];

async function pathOf(invocation: Invocation): Promise<string> {
  return `/v1/vaults/${segment(await resolveVault(invocation.client(), invocation.positionals[0] ?? ''))}`;
}

export const VAULT_COMMANDS: readonly Command[] = [
  {
    name: 'vault create',
    summary: 'Create a vault',
    usage: 'NAME',
    examples: ['keyveil vault create work'],
    flags: { ...JSON_FLAGS, metadata: METADATA_FLAG },
    positionals: { min: 1, max: 1 },
    async run(invocation) {
      const metadata = parsePairs('metadata', invocation.flags('metadata'));
      const name = invocation.positionals[0] ?? '';
      const created = await invocation.client().call('POST', '/v1/vaults', { body: { display_name: name, metadata } });
      await printObject(invocation, created);
      const ids = await vaultsNamed(invocation.client(), name);
      if (ids.length > 1) {
        const words = `warning: ${ids.length} vaults are named ${quote(name)} now (${ids.join(', ')})`;
        invocation.terminal.err(`keyveil: ${words}: commands take the id of one, and no longer the name\n`);
      }
      return 0;
    },
  },
  {
    name: 'vault list',
    summary: 'List vaults, newest first',
    usage: '',
    examples: ['keyveil vault list --json'],
    flags: { ...JSON_FLAGS, all: ALL_FLAG },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      await printList(
        invocation,
        invocation.client().list('/v1/vaults', { includeArchived: invocation.isOn('all') }),
        COLUMNS,
      );
      return 0;
    },
  },
  ...createObjectCommands({
    kind: 'vault',
    usage: 'NAME|ID',
    sample: 'work',
    flags: JSON_FLAGS,
    summaries: {
      show: 'Show a vault',
      archive: 'Archive a vault and its credentials; their values are purged',
      delete: 'Delete a vault and its credentials for good',
    },
    pathOf,
  }),
];
