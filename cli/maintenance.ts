// keyveil backup, restore, master-key rotate and admin-token rotate: they work on the data directory itself.
import { resolve } from 'node:path';
import { loadConfig, type Config } from '../daemon/config.ts';
import type { RestoredData } from '../daemon/maintenance.ts';
import type { Command, CommandFlag, Invocation } from './command.ts';

const DIRECTORY_FLAG: CommandFlag = {
  type: 'string',
  value: 'DIR',
  help: 'data directory of the daemon (default: ./data)',
};
const KEY_FLAGS: Readonly<Record<string, CommandFlag>> = {
  'data-dir': DIRECTORY_FLAG,
  'master-key-file': { type: 'string', value: 'FILE', help: 'file with the master key (KEYVEIL_MASTER_KEY_FILE)' },
  'master-key-previous-file': {
    type: 'string',
    value: 'FILE',
    help: 'file with earlier ones (KEYVEIL_MASTER_KEY_PREVIOUS_FILE)',
  },
};

function configOf(invocation: Invocation): Config {
  process.umask(0o077);
  return loadConfig({ env: invocation.env, flags: invocation.textFlags, cwd: invocation.cwd });
}

// Loaded when needed: the other commands start without the weight of the store.
const loadMaintenance = () => import('../daemon/maintenance.ts');

async function backup(invocation: Invocation): Promise<number> {
  const file = resolve(invocation.cwd, invocation.positionals[0] ?? '');
  const { backupData } = await loadMaintenance();
  await backupData(configOf(invocation), file);
  await invocation.terminal.out(`${file}\n`);
  invocation.terminal.err(
    'keyveil: the master key is not in it: keep that elsewhere, the backup is of no use without it\n',
  );
  return 0;
}

function several(count: number, one: string): string {
  return `${count} ${one}${count === 1 ? '' : 's'}`;
}

/** What is good again though it had ended, and what can be done about it. */
function describeRestored({ usable, revived, emergencyStop, emergencyStopKept }: RestoredData): string[] {
  const of = revived ?? usable;
  const scope = revived === null ? 'usable as of the backup' : 'usable again, by the backup';
  const then = revived === null ? '' : ' that had ended or has another token by now';
  const lines = [
    of.sessions > 0
      ? `warning: ${several(of.sessions, 'session')} ${scope}${then}: --archive-sessions ends all, keyveil session archive ends one`
      : null,
    of.tokens > 0
      ? `warning: ${several(of.tokens, 'scoped admin token')} ${scope}${revived === null ? '' : ' that had been deleted'}: --delete-tokens deletes all, keyveil token delete deletes one`
      : null,
    revived !== null && revived.credentials > 0
      ? `warning: ${several(revived.credentials, 'credential')} ${scope}, archived, deleted or rotated since: rotate or archive what must not be used`
      : null,
    emergencyStop.active
      ? `the emergency stop is on${emergencyStopKept ? ', as before the restore' : ', as in the backup'}: keyveil emergency-stop off lifts it`
      : null,
    revived === null
      ? 'there was no database to compare with: what was revoked since the backup is not known here, nor an emergency stop'
      : null,
  ];
  return lines.filter((line) => line !== null);
}

async function restore(invocation: Invocation): Promise<number> {
  const file = resolve(invocation.cwd, invocation.positionals[0] ?? '');
  const { restoreData } = await loadMaintenance();
  const config = configOf(invocation);
  const restored = restoreData(config, {
    file,
    putAside: invocation.isOn('replace'),
    nowMs: Date.now(),
    archiveSessions: invocation.isOn('archive-sessions'),
    deleteTokens: invocation.isOn('delete-tokens'),
  });
  const { putAside } = restored;
  await invocation.terminal.out(
    `Restored into ${config.dataDir}\n${putAside === null ? '' : `The database before is ${putAside}\n`}`,
  );
  for (const line of describeRestored(restored)) invocation.terminal.err(`keyveil: ${line}\n`);
  return 0;
}

async function rotateMasterKey(invocation: Invocation): Promise<number> {
  const [maintenance, { createLogger }] = await Promise.all([loadMaintenance(), import('../daemon/logger.ts')]);
  const logger = createLogger({ level: 'warn', pretty: true, destination: process.stderr });
  const result = await maintenance.rotateMasterKey(configOf(invocation), logger);
  await invocation.terminal.out(`${result.rewrapped} values are under the new key\n`);
  for (const name of result.unreadable) {
    invocation.terminal.err(
      `keyveil: warning: ${name} opened under no key and was left as it is: archive it and create it again\n`,
    );
  }
  return result.unreadable.length === 0 ? 0 : 1;
}

async function rotateAdminToken(invocation: Invocation): Promise<number> {
  const maintenance = await loadMaintenance();
  const path = maintenance.rotateAdminToken(configOf(invocation));
  await invocation.terminal.out(`The new token is in ${path}; the old one is refused from now on\n`);
  return 0;
}

export const MAINTENANCE_COMMANDS: readonly Command[] = [
  {
    name: 'backup',
    summary:
      'Copy the database into a new file, also while the daemon serves; without the master key and the audit log',
    usage: 'FILE',
    examples: ['keyveil backup ./keyveil-backup.db'],
    flags: { 'data-dir': DIRECTORY_FLAG },
    positionals: { min: 1, max: 1 },
    run: backup,
  },
  {
    name: 'restore',
    summary: 'Put a backup into the data directory of a stopped daemon',
    usage: 'FILE [--replace] [--archive-sessions] [--delete-tokens]',
    examples: ['keyveil restore ./keyveil-backup.db --data-dir ./data'],
    flags: {
      ...KEY_FLAGS,
      replace: { type: 'boolean', help: 'rename a database that is there already; an emergency stop of it stays on' },
      'archive-sessions': { type: 'boolean', help: 'end every session of the backup' },
      'delete-tokens': { type: 'boolean', help: 'delete every scoped admin token of the backup' },
    },
    positionals: { min: 1, max: 1 },
    run: restore,
  },
  {
    name: 'master-key rotate',
    summary: 'Wrap every value under a new master key; can be repeated after a crash',
    usage: '',
    examples: ['keyveil master-key rotate --data-dir ./data'],
    flags: KEY_FLAGS,
    positionals: { min: 0, max: 0 },
    run: rotateMasterKey,
  },
  {
    name: 'admin-token rotate',
    summary: 'Make a new admin token in the data directory; the daemon takes it at once',
    usage: '',
    examples: ['keyveil admin-token rotate --data-dir ./data'],
    flags: { 'data-dir': DIRECTORY_FLAG },
    positionals: { min: 0, max: 0 },
    run: rotateAdminToken,
  },
];
