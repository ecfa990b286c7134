// keyveil serve: the daemon, until a signal ends it.
import { performance } from 'node:perf_hooks';
import { knownFlags } from '../daemon/config-source.ts';
import { forgetSecretVariables, loadConfig } from '../daemon/config.ts';
import { SETTINGS } from '../daemon/config-schema.ts';
import { flagOf } from '../daemon/config-setting.ts';
import { keepInspectorShut, keepMemoryOutOfCores } from '../daemon/core-dumps.ts';
import { warnOfFewDescriptors } from '../daemon/descriptors.ts';
import type { Daemon } from '../daemon/daemon.ts';
import type { Logger } from '../model/ports.ts';
import type { Command, CommandFlag, Invocation } from './command.ts';

const SIGNAL_NUMBERS = { SIGTERM: 15, SIGINT: 2 } as const;
/** Ctrl-C under npm arrives twice at once: from the terminal, and passed on by npm. */
const SAME_SIGNAL_WITHIN_MS = 500;

/** What stands for the value in the help, by the end of the variable's name. */
const VALUE_NAMES = [
  ['_FILE', 'FILE'],
  ['_DIR', 'DIR'],
  ['_LISTEN', 'HOST:PORT'],
  ['_URL', 'URL'],
  ['_BYTES', 'SIZE'],
  ['_BYTES_MAX', 'SIZE'],
  ['_MAX_BYTES', 'SIZE'],
  ['_SECONDS', 'SECONDS'],
  ['_DAYS', 'DAYS'],
] as const;

function valueOf(variable: string, fallback: string | null): string {
  if (fallback === 'on' || (fallback === 'off' && !/_LIMIT$|_SECOND$/.test(variable))) return 'on|off';
  return VALUE_NAMES.find(([end]) => variable.endsWith(end))?.[1] ?? 'VALUE';
}

/** The first clause of a description, without its Markdown. */
function briefly(description: string): string {
  const [sentence = ''] = description.split(/[.;](?:\s|$)/);
  return sentence.replaceAll('`', '');
}

function serveFlags(): Readonly<Record<string, CommandFlag>> {
  const known = new Set(knownFlags());
  const flags = Object.values(SETTINGS).map((setting): [string, CommandFlag] => {
    const variable = setting.isSecret ? `${setting.variable}_FILE` : setting.variable;
    const fallback = setting.fallback === null || setting.fallback === '' ? '' : ` (default: ${setting.fallback})`;
    const help = `${setting.isSecret ? 'file: ' : ''}${briefly(setting.description)}${fallback}`;
    return [flagOf(variable).slice(2), { type: 'string', value: valueOf(variable, setting.fallback), help }];
  });
  // --url is for the commands that look for a daemon.
  return Object.fromEntries(flags.filter(([name]) => known.has(name) && name !== 'url'));
}

/** What a crash logs: never a message, which could quote a secret. */
function failOnUncaught(logger: Logger): void {
  process.on('uncaughtException', (error) => {
    logger.error({ error }, 'Uncaught exception: the daemon stops');
    process.exit(1);
  });
  process.on('unhandledRejection', (error) => {
    logger.error({ error }, 'Unhandled rejection: the daemon stops');
    process.exit(1);
  });
}

async function stopGently(daemon: Daemon): Promise<void> {
  await daemon.drain();
  await daemon.close();
}

/** Resolves once a signal has drained and closed the daemon, or once the daemon has ended by itself. */
async function serveUntilSignal(daemon: Daemon, logger: Logger): Promise<void> {
  const stopped = new Promise<void>((resolve, reject) => {
    let isStopping = false;
    let stoppingSince = 0;
    for (const [signal, number] of Object.entries(SIGNAL_NUMBERS)) {
      process.on(signal, () => {
        if (isStopping) {
          if (performance.now() - stoppingSince < SAME_SIGNAL_WITHIN_MS) return;
          logger.warn({ name: signal }, 'Second signal: the daemon ends at once');
          process.exit(128 + number);
        }
        isStopping = true;
        stoppingSince = performance.now();
        logger.info({ name: signal }, 'Draining: requests in flight may end; a second signal ends them at once');
        stopGently(daemon).then(resolve, reject);
      });
    }
    daemon.closed.then(() => isStopping || resolve(), reject);
  });
  await stopped;
}

async function run(invocation: Invocation): Promise<number> {
  const coreWarnings = keepMemoryOutOfCores();
  keepInspectorShut();
  process.umask(0o077);
  const config = loadConfig({ env: invocation.env, flags: invocation.textFlags, cwd: invocation.cwd });
  forgetSecretVariables();
  // Loaded here, so that the other commands start without the weight of the daemon.
  const [{ tuneRuntime }, { startDaemon }, { isWorkerProcess, runWorker }, { createLogger }] = await Promise.all([
    import('../daemon/runtime-costs.ts'),
    import('../daemon/daemon.ts'),
    import('../daemon/worker.ts'),
    import('../daemon/logger.ts'),
  ]);
  tuneRuntime();
  const logger = createLogger({ level: config.logLevel, pretty: process.stdout.isTTY });
  failOnUncaught(logger);
  if (isWorkerProcess()) {
    await runWorker(config, logger);
    return 0;
  }
  for (const warning of [...coreWarnings, warnOfFewDescriptors()]) if (warning !== null) logger.warn({}, warning);
  const daemon = await startDaemon(config, { logger });
  const { proxyAddress, adminAddress, socketPath } = daemon;
  logger.info({ address: proxyAddress.address, port: proxyAddress.port }, 'The proxy listens');
  logger.info({ address: adminAddress.address, port: adminAddress.port }, 'The admin API listens');
  // Whoever reads that it is ready may send a signal at once.
  const stopped = serveUntilSignal(daemon, logger);
  logger.info({ path: socketPath }, 'Ready');
  await stopped;
  logger.info({}, 'Stopped');
  return 0;
}

export const SERVE_COMMANDS: readonly Command[] = [
  {
    name: 'serve',
    summary: 'Run the daemon: proxy and admin API',
    usage: '[--data-dir DIR] [--proxy-listen HOST:PORT] …',
    examples: ['keyveil serve --data-dir ./data', 'KEYVEIL_LOG_LEVEL=debug keyveil serve'],
    flags: serveFlags(),
    note: 'Each flag is a variable too: --proxy-listen is KEYVEIL_PROXY_LISTEN. docs/configuration.md has all of them in full.',
    positionals: { min: 0, max: 0 },
    run,
  },
];
