// keyveil session …
import type { AdminClient, Json } from './client.ts';
import { CLIENT_FLAGS, JSON_FLAGS, type Command, type CommandFlag, type Invocation } from './command.ts';
import { parseDuration, parsePairs, resolveEnvironment, resolveVault, segment } from './names.ts';
import { printList, printObject, printWarnings, type Column } from './output.ts';
import { FORMAT_NAMES, formatVariables, variablesOf } from './variables.ts';

const CREATE_FLAGS: Readonly<Record<string, CommandFlag>> = {
  vault: {
    type: 'string',
    multiple: true,
    value: 'NAME|ID',
    help: 'a vault to mount; the first one that has a name wins',
  },
  environment: {
    type: 'string',
    value: 'NAME|ID',
    help: 'what can be connected to (default: the default environment of the daemon)',
  },
  title: { type: 'string', value: 'TEXT', help: 'words for people' },
  'expires-in': { type: 'string', value: 'TIME', help: 'lifetime, such as 900, 15m, 12h, 7d or never' },
  'ca-directory': {
    type: 'string',
    value: 'DIR',
    help: 'where ca.pem and ca-bundle.pem lie in the sandbox (default: /etc/keyveil)',
  },
  metadata: { type: 'string', multiple: true, value: 'KEY=VALUE', help: 'metadata' },
};
const FORMAT_FLAG: CommandFlag = {
  type: 'string',
  value: FORMAT_NAMES,
  help: 'print the variables alone, in this format',
};

const COLUMNS: readonly Column[] = [
  ['ID', (session) => session['id']],
  ['STATUS', (session) => session['status']],
  ['TITLE', (session) => session['title']],
  ['VAULTS', (session) => session['vault_ids']],
  ['ENVIRONMENT', (session) => session['environment_id']],
  ['EXPIRES', (session) => session['expires_at']],
];

/** What a session is made of, as flags name it. */
export interface SessionWish {
  readonly vaults: readonly string[];
  readonly environment: string | undefined;
  readonly fields: Json;
}

/** Creates a session; vaults and environment may be named or given by id. */
export async function createSession(client: AdminClient, wish: SessionWish): Promise<Json> {
  const vaultIds: string[] = [];
  for (const vault of wish.vaults) vaultIds.push(await resolveVault(client, vault));
  const environmentId = wish.environment === undefined ? null : await resolveEnvironment(client, wish.environment);
  const body = {
    vault_ids: vaultIds,
    ...(environmentId === null ? {} : { environment_id: environmentId }),
    ...wish.fields,
  };
  return client.call('POST', '/v1/sessions', { body });
}

function fieldsOf(invocation: Invocation): Json {
  const title = invocation.flag('title');
  const expiresIn = invocation.flag('expires-in');
  const caDirectory = invocation.flag('ca-directory');
  const metadata = parsePairs('metadata', invocation.flags('metadata'));
  return {
    ...(title === undefined ? {} : { title }),
    ...(expiresIn === undefined ? {} : { expires_in: parseDuration('expires-in', expiresIn) }),
    ...(caDirectory === undefined ? {} : { ca_directory: caDirectory }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
}

async function printSession(invocation: Invocation, session: Json): Promise<void> {
  const format = invocation.flag('format');
  if (format === undefined) return printObject(invocation, session);
  await invocation.terminal.out(formatVariables(variablesOf(session), format));
  await printWarnings(invocation.terminal, session);
}

function pathOf(invocation: Invocation): string {
  return `/v1/sessions/${segment(invocation.positionals[0] ?? '')}`;
}

const ONE = { min: 1, max: 1 } as const;

function action(
  name: string,
  text: { summary: string; path: string; flags?: Readonly<Record<string, CommandFlag>> },
): Command {
  return {
    name: `session ${name}`,
    summary: text.summary,
    usage: 'ID',
    examples: [`keyveil session ${name} "$SESSION_ID"`],
    flags: { ...JSON_FLAGS, ...text.flags },
    positionals: ONE,
    async run(invocation) {
      await printSession(
        invocation,
        await invocation.client().call('POST', `${pathOf(invocation)}/${text.path}`, { body: {} }),
      );
      return 0;
    },
  };
}

export const SESSION_COMMANDS: readonly Command[] = [
  {
    name: 'session create',
    summary: 'Open a session; its token is in the variables, and shown this once',
    usage: '[--vault NAME|ID]… [--environment NAME|ID]',
    examples: ['keyveil session create --vault work --format sh > sandbox.env'],
    flags: { ...JSON_FLAGS, ...CREATE_FLAGS, format: FORMAT_FLAG },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      // A mistake in the format must not leave a session behind whose token nobody saw.
      const format = invocation.flag('format');
      if (format !== undefined) formatVariables({}, format);
      const wish = {
        vaults: invocation.flags('vault'),
        environment: invocation.flag('environment'),
        fields: fieldsOf(invocation),
      };
      await printSession(invocation, await createSession(invocation.client(), wish));
      return 0;
    },
  },
  {
    name: 'session list',
    summary: 'List sessions, newest first',
    usage: '',
    examples: ['keyveil session list'],
    flags: { ...JSON_FLAGS, all: { type: 'boolean', help: 'archived ones as well' } },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      await printList(
        invocation,
        invocation.client().list('/v1/sessions', { includeArchived: invocation.isOn('all') }),
        COLUMNS,
      );
      return 0;
    },
  },
  {
    name: 'session show',
    summary: 'Show a session; its token is never shown again',
    usage: 'ID',
    examples: ['keyveil session show "$SESSION_ID"'],
    flags: JSON_FLAGS,
    positionals: ONE,
    async run(invocation) {
      await printObject(invocation, await invocation.client().call('GET', pathOf(invocation)));
      return 0;
    },
  },
  {
    name: 'session env',
    summary: 'Print the variables of a session, without those that hold its token',
    usage: `ID [--format ${FORMAT_NAMES}]`,
    examples: ['keyveil session env "$SESSION_ID" --format docker > sandbox.env'],
    flags: { ...CLIENT_FLAGS, format: { ...FORMAT_FLAG, help: 'the format (default: sh)' } },
    positionals: ONE,
    async run(invocation) {
      const session = await invocation.client().call('GET', pathOf(invocation));
      await invocation.terminal.out(formatVariables(variablesOf(session), invocation.flag('format') ?? 'sh'));
      invocation.terminal.err(
        'keyveil: the proxy variables are not among them, since they hold the token: session create and session rotate-token print those\n',
      );
      return 0;
    },
  },
  action('rotate-token', {
    summary: 'Give a session a new token; connections with the old one are cut',
    path: 'rotate_token',
    flags: { format: FORMAT_FLAG },
  }),
  action('archive', { summary: 'End a session; its connections are cut', path: 'archive' }),
  action('resume', { summary: 'Lift the suspension of a session', path: 'resume' }),
];
