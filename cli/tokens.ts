// keyveil token … (scoped admin tokens) and keyveil emergency-stop.
import { JSON_FLAGS, UsageError, type Command } from './command.ts';
import { parseDuration, segment } from './names.ts';
import { printList, printObject, type Column } from './output.ts';

const COLUMNS: readonly Column[] = [
  ['ID', (token) => token['id']],
  ['NAME', (token) => token['name']],
  ['SCOPE', (token) => token['scope']],
  ['LAST USED', (token) => token['last_used_at']],
  ['EXPIRES', (token) => token['expires_at']],
];

export const TOKEN_COMMANDS: readonly Command[] = [
  {
    name: 'token create',
    summary: 'Create a scoped token of the admin API; it is shown this once',
    usage: 'NAME --scope admin|broker|auditor',
    examples: ['keyveil token create ci --scope broker --expires-in 30d'],
    flags: {
      ...JSON_FLAGS,
      scope: { type: 'string', value: 'admin|broker|auditor', help: 'all, sessions only, or reading only (required)' },
      'expires-in': { type: 'string', value: 'TIME', help: 'lifetime, such as 12h, 30d or never (default: never)' },
    },
    positionals: { min: 1, max: 1 },
    async run(invocation) {
      const scope = invocation.flag('scope');
      if (scope === undefined) throw new UsageError('--scope is needed: --scope admin|broker|auditor');
      const expiresIn = invocation.flag('expires-in');
      const body = {
        name: invocation.positionals[0],
        scope,
        ...(expiresIn === undefined ? {} : { expires_in: parseDuration('expires-in', expiresIn) }),
      };
      await printObject(invocation, await invocation.client().call('POST', '/v1/admin_tokens', { body }));
      return 0;
    },
  },
  {
    name: 'token list',
    summary: 'List scoped tokens, newest first',
    usage: '',
    examples: ['keyveil token list'],
    flags: JSON_FLAGS,
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      await printList(invocation, invocation.client().list('/v1/admin_tokens'), COLUMNS);
      return 0;
    },
  },
  {
    name: 'token delete',
    summary: 'Delete a scoped token: it stops working at once',
    usage: 'ID',
    examples: ['keyveil token delete "$TOKEN_ID"'],
    flags: JSON_FLAGS,
    positionals: { min: 1, max: 1 },
    async run(invocation) {
      const path = `/v1/admin_tokens/${segment(invocation.positionals[0] ?? '')}`;
      await printObject(invocation, await invocation.client().call('DELETE', path));
      return 0;
    },
  },
];

export const EMERGENCY_STOP_COMMANDS: readonly Command[] = [
  {
    name: 'emergency-stop',
    summary: 'Refuse everything that would need a secret, or lift that; without a word, show the state',
    usage: '[on|off] [--reason TEXT]',
    examples: ['keyveil emergency-stop on --reason "key leaked"', 'keyveil emergency-stop off'],
    flags: { ...JSON_FLAGS, reason: { type: 'string', value: 'TEXT', help: 'why, for the record' } },
    positionals: { min: 0, max: 1 },
    async run(invocation) {
      const [word] = invocation.positionals;
      const client = invocation.client();
      if (word !== undefined && word !== 'on' && word !== 'off')
        throw new UsageError(`emergency-stop takes on or off, not ${JSON.stringify(word)}`);
      const body = { active: word === 'on', reason: invocation.flag('reason') ?? null };
      const path = '/v1/emergency_stop';
      await printObject(
        invocation,
        word === undefined ? await client.call('GET', path) : await client.call('POST', path, { body }),
      );
      return 0;
    },
  },
];
