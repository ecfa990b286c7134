// keyveil environment …
import { asObject, type Json } from './client.ts';
import { JSON_FLAGS, UsageError, type Command, type CommandFlag, type Invocation } from './command.ts';
import { parseOnOff, parsePairs, resolveEnvironment, segment } from './names.ts';
import { createObjectCommands } from './object-commands.ts';
import { printList, printObject, type Column } from './output.ts';

const POLICY_FLAGS: Readonly<Record<string, CommandFlag>> = {
  host: {
    type: 'string',
    multiple: true,
    value: 'HOST',
    help: 'a host that can be connected to, such as api.example.com or *.example.com',
  },
  unrestricted: { type: 'boolean', help: 'every host can be connected to' },
  'package-managers': { type: 'string', value: 'on|off', help: 'the public package registries as well' },
  'private-cidr': {
    type: 'string',
    multiple: true,
    value: 'CIDR',
    help: 'a private range that can be reached, such as 10.1.0.0/16',
  },
  description: { type: 'string', value: 'TEXT', help: 'words for people' },
  metadata: { type: 'string', multiple: true, value: 'KEY=VALUE', help: 'metadata' },
};

function networkingOf(environment: Json): Json {
  return asObject(asObject(environment['config'])['networking']);
}

const COLUMNS: readonly Column[] = [
  ['ID', (environment) => environment['id']],
  ['NAME', (environment) => environment['name']],
  ['NETWORKING', (environment) => networkingOf(environment)['type']],
  ['HOSTS', (environment) => networkingOf(environment)['allowed_hosts']],
  ['ARCHIVED', (environment) => environment['archived_at']],
];

function networkingFlagsOf(invocation: Invocation): Json | null {
  const hosts = invocation.flags('host');
  const packages = invocation.flag('package-managers');
  if (invocation.isOn('unrestricted')) {
    if (hosts.length > 0 || packages !== undefined)
      throw new UsageError('--unrestricted excludes --host and --package-managers');
    return { type: 'unrestricted' };
  }
  if (hosts.length === 0 && packages === undefined) return null;
  return {
    type: 'limited',
    ...(hosts.length === 0 ? {} : { allowed_hosts: hosts }),
    ...(packages === undefined ? {} : { allow_package_managers: parseOnOff('package-managers', packages) }),
  };
}

function bodyOf(invocation: Invocation): Json {
  const networking = networkingFlagsOf(invocation);
  const cidrs = invocation.flags('private-cidr');
  const description = invocation.flag('description');
  const metadata = parsePairs('metadata', invocation.flags('metadata'));
  const config = {
    ...(networking === null ? {} : { networking }),
    ...(cidrs.length === 0 ? {} : { allowed_private_cidrs: cidrs }),
  };
  return {
    ...(Object.keys(config).length === 0 ? {} : { config: { type: 'cloud', ...config } }),
    ...(description === undefined ? {} : { description }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
}

async function pathOf(invocation: Invocation): Promise<string> {
  return `/v1/environments/${segment(await resolveEnvironment(invocation.client(), invocation.positionals[0] ?? ''))}`;
}

async function create(invocation: Invocation): Promise<number> {
  if (networkingFlagsOf(invocation) === null)
    throw new UsageError('say what can be connected to: --host HOST (again for more), or --unrestricted');
  const body = { name: invocation.positionals[0], ...bodyOf(invocation) };
  await printObject(invocation, await invocation.client().call('POST', '/v1/environments', { body }));
  return 0;
}

async function update(invocation: Invocation): Promise<number> {
  const body = bodyOf(invocation);
  if (Object.keys(body).length === 0)
    throw new UsageError('nothing to change: keyveil environment update --help lists the flags');
  await printObject(invocation, await invocation.client().call('POST', await pathOf(invocation), { body }));
  return 0;
}

const ONE = { min: 1, max: 1 } as const;

export const ENVIRONMENT_COMMANDS: readonly Command[] = [
  {
    name: 'environment create',
    summary: 'Create an environment: what its sessions can connect to',
    usage: 'NAME --host HOST',
    examples: ['keyveil environment create ci --host api.github.com --package-managers on'],
    flags: { ...JSON_FLAGS, ...POLICY_FLAGS },
    positionals: ONE,
    run: create,
  },
  {
    name: 'environment list',
    summary: 'List environments, newest first',
    usage: '',
    examples: ['keyveil environment list'],
    flags: { ...JSON_FLAGS, all: { type: 'boolean', help: 'archived ones as well' } },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      const items = invocation.client().list('/v1/environments', { includeArchived: invocation.isOn('all') });
      await printList(invocation, items, COLUMNS);
      return 0;
    },
  },
  {
    name: 'environment update',
    summary: 'Change an environment; running sessions obey at once, and fields that are not given are kept',
    usage: 'NAME|ID [--host HOST]…',
    examples: ['keyveil environment update ci --host api.github.com --host uploads.github.com'],
    flags: { ...JSON_FLAGS, ...POLICY_FLAGS },
    positionals: ONE,
    run: update,
  },
  ...createObjectCommands({
    kind: 'environment',
    usage: 'NAME|ID',
    sample: 'ci',
    flags: JSON_FLAGS,
    summaries: {
      show: 'Show an environment',
      archive: 'Archive an environment: no new sessions; running ones keep it',
      delete: 'Delete an environment that no active session uses',
    },
    pathOf,
  }),
];
