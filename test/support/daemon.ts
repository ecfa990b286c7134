// A daemon in this process on a temporary data directory, and what a test needs to act as operator and as sandbox.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../../daemon/config.ts';
import { startDaemon, type Daemon } from '../../daemon/daemon.ts';
import type { Clock, LogFields, Logger } from '../../model/ports.ts';
import { createOperator, prepareEnvironment, type EnvironmentOptions, type Operator } from './operator.ts';
import { createTestAuthority, type TestAuthority } from './test-authority.ts';

export { basicLogin, readAll, readHead, type TestSession } from './operator.ts';

export interface TestDaemon extends Operator {
  readonly daemon: Daemon;
  readonly directory: string;
  readonly authority: TestAuthority;
  /** All that was logged, at the most verbose level. */
  readonly log: string[];
  /** Starts the daemon again on the same directory. */
  restart(environment?: Readonly<Record<string, string>>): Promise<void>;
  close(): Promise<void>;
}

export interface TestDaemonOptions extends EnvironmentOptions {
  readonly clock?: Clock;
}

function createMemoryLogger(log: string[]): Logger {
  const add = (level: string) => (fields: LogFields, message: string) => {
    const { error, ...rest } = fields;
    const cause =
      error instanceof Error
        ? `${error.name}: ${error.message} ${String(error.stack)} ${String(error.cause)}`
        : String(error);
    log.push(`${level} ${message} ${JSON.stringify(rest)} ${error === undefined ? '' : cause}`);
  };
  return { debugIsOn: true, debug: add('debug'), info: add('info'), warn: add('warn'), error: add('error') };
}

async function launch(
  directory: string,
  environment: Record<string, string>,
  parts: { logger: Logger; clock?: Clock },
) {
  const config = loadConfig({ env: environment, flags: {}, cwd: directory, execArgv: [] });
  return startDaemon(config, parts);
}

/** Starts a daemon whose hosts are servers on this machine. */
export async function startTestDaemon(options: TestDaemonOptions = {}): Promise<TestDaemon> {
  const directory = mkdtempSync(join(tmpdir(), 'kv-'));
  const authority = options.authority ?? createTestAuthority();
  const base = prepareEnvironment(directory, authority, options);
  const log: string[] = [];
  const parts = { logger: createMemoryLogger(log), ...(options.clock === undefined ? {} : { clock: options.clock }) };
  let daemon = await launch(directory, base, parts);
  return {
    get daemon() {
      return daemon;
    },
    directory,
    authority,
    log,
    ...createOperator(() => daemon),
    async restart(environment = {}) {
      await daemon.close();
      Object.assign(base, environment);
      daemon = await launch(directory, base, parts);
    },
    async close() {
      await daemon.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
