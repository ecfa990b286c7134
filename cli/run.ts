// keyveil run: one command inside a session of its own.
import { constants as fsConstants } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { loadConfig } from '../daemon/config.ts';
import { captureSignals, runChild, type SignalRelay } from './child.ts';
import { createClient, UnreachableError, type AdminClient, type Json } from './client.ts';
import { CLIENT_FLAGS, UsageError, type Command, type Invocation } from './command.ts';
import { parseDuration, segment, textOf } from './names.ts';
import { printWarnings } from './output.ts';
import { createSession } from './session.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';
import { variablesOf, type Environment } from './variables.ts';

const OWN_PREFIX = 'KEYVEIL_';

/** A client of a daemon, and what to do when the command is over. */
interface Reach {
  readonly client: AdminClient;
  close(): Promise<void>;
}

async function startStandalone(invocation: Invocation): Promise<Reach> {
  const { 'data-dir': dataDir } = invocation.textFlags;
  const flags = {
    'proxy-listen': '127.0.0.1:0',
    'admin-listen': '127.0.0.1:0',
    ...(dataDir === undefined ? {} : { 'data-dir': dataDir }),
  };
  const config = loadConfig({ env: invocation.env, flags, cwd: invocation.cwd });
  const [{ startDaemon }, { createLogger }] = await Promise.all([
    import('../daemon/daemon.ts'),
    import('../daemon/logger.ts'),
  ]);
  // Standard output belongs to the command.
  const level = config.logLevel === 'info' ? 'warn' : config.logLevel;
  const logger = createLogger({ level, pretty: true, destination: process.stderr });
  const daemon = await startDaemon({ ...config, workers: 1 }, { logger });
  return {
    client: createClient({ dataDir: config.dataDir, url: null, adminToken: null }),
    close: () => daemon.close(),
  };
}

async function reachDaemon(invocation: Invocation): Promise<Reach> {
  const client = invocation.client();
  try {
    await client.call('GET', '/healthz');
    return { client, close: () => Promise.resolve() };
  } catch (error) {
    if (!(error instanceof UnreachableError) || !invocation.isOn('standalone')) throw error;
    return startStandalone(invocation);
  }
}

async function writeCaFile(path: string, pem: string): Promise<void> {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = fsConstants;
  const file = await open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY, 0o600);
  try {
    await file.writeFile(pem);
  } finally {
    await file.close();
  }
}

/** The caller's variables without ours, then the session's; `--var` leaves only the named secrets of the vaults. */
function childEnvironment(invocation: Invocation, session: Json): Environment {
  const wanted = invocation.flags('var');
  const mounts = Array.isArray(session['mounts']) ? session['mounts'] : [];
  const mounted = new Set(mounts.map((mount) => textOf(mount as Json, 'secret_name')));
  const missing = wanted.filter((name) => !mounted.has(name));
  if (missing.length > 0) {
    throw new UsageError(
      `--var ${missing.join(', ')}: no vault of this session has a credential of that name (it has ${[...mounted].join(', ') || 'none'})`,
    );
  }
  const inherited = Object.entries(invocation.env).filter(([name]) => !name.toUpperCase().startsWith(OWN_PREFIX));
  const own = Object.entries(variablesOf(session)).filter(
    ([name]) => wanted.length === 0 || wanted.includes(name) || !mounted.has(name),
  );
  return Object.fromEntries(
    [...inherited, ...own].filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

interface SessionPlace {
  readonly client: AdminClient;
  /** Private folder of the CA files. */
  readonly folder: string;
  readonly signals: SignalRelay;
}

async function runInSession(invocation: Invocation, { client, folder, signals }: SessionPlace): Promise<number> {
  const [file, ...args] = invocation.rest ?? [];
  if (file === undefined) throw new UsageError('run needs a command: keyveil run --vault NAME -- CMD ARGS');
  const expiresIn = invocation.flag('expires-in');
  const session = await createSession(client, {
    vaults: invocation.flags('vault'),
    environment: invocation.flag('environment'),
    fields: {
      ca_directory: folder,
      title: `keyveil run ${file}`.slice(0, 255),
      ...(expiresIn === undefined ? {} : { expires_in: parseDuration('expires-in', expiresIn) }),
    },
  });
  try {
    await printWarnings(invocation.terminal, session);
    await writeCaFile(join(folder, 'ca.pem'), await client.text('/v1/ca.pem'));
    await writeCaFile(join(folder, 'ca-bundle.pem'), await client.text('/v1/ca-bundle.pem'));
    const env = childEnvironment(invocation, session);
    return await runChild([file, ...args], { env, cwd: invocation.cwd, signals });
  } finally {
    await archive(invocation, client, textOf(session, 'id'));
  }
}

// The command has run, and its exit code counts; but the person must learn that the session is still open.
async function archive(invocation: Invocation, client: AdminClient, id: string): Promise<void> {
  try {
    await client.call('POST', `/v1/sessions/${segment(id)}/archive`, { body: {} });
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown';
    invocation.terminal.err(
      `keyveil: warning: session ${id} could not be archived (${reason}); archive it with keyveil session archive ${id}\n`,
    );
  }
}

async function run(invocation: Invocation): Promise<number> {
  if ((invocation.rest ?? []).length === 0)
    throw new UsageError('run needs a command behind --: keyveil run --vault NAME -- CMD ARGS');
  // From here on a signal must not leave an open session or a folder behind.
  const signals = captureSignals(invocation.terminal.stdin.isTTY === true);
  try {
    const reach = await reachDaemon(invocation);
    try {
      const folder = makeTemporaryFolder('keyveil-run-');
      try {
        return await runInSession(invocation, { client: reach.client, folder, signals });
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    } finally {
      await reach.close();
    }
  } finally {
    signals.release();
  }
}

export const RUN_COMMANDS: readonly Command[] = [
  {
    name: 'run',
    summary: 'Run a command in a session of its own, with placeholders for secrets',
    usage: '[--vault NAME|ID]… [--environment NAME|ID] [--var NAME]… [--standalone] -- CMD ARGS',
    examples: [
      `keyveil run --vault work -- sh -c 'curl -s -H "Authorization: Bearer $NOTION_API_KEY" https://api.notion.com/v1/users/me'`,
    ],
    flags: {
      ...CLIENT_FLAGS,
      vault: {
        type: 'string',
        multiple: true,
        value: 'NAME|ID',
        help: 'a vault to mount; the first one that has a name wins',
      },
      environment: { type: 'string', value: 'NAME|ID', help: 'what can be connected to' },
      var: { type: 'string', multiple: true, value: 'NAME', help: 'only this variable of the vaults' },
      standalone: { type: 'boolean', help: 'start a daemon for this command when none is running' },
      'expires-in': { type: 'string', value: 'TIME', help: 'lifetime of the session, such as 12h or never' },
    },
    positionals: { min: 0, max: 0 },
    takesRest: true,
    run,
  },
];
