// Runs a command as a child: its standard streams are ours, signals reach it, and its exit code comes back.
import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import type { Environment } from './variables.ts';

const FORWARDED: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'];

export interface ChildOptions {
  readonly env: Environment;
  readonly cwd: string;
  readonly signals: SignalRelay;
}

/** Signals of this process, kept until there is a child to take them. */
export interface SignalRelay {
  /** The first one that came before there was a child; null when none did. */
  pending(): NodeJS.Signals | null;
  sendTo(child: ChildProcess): void;
  release(): void;
}

/** The child could not be started; exit codes as a shell has them: 127 not found, 126 not executable. */
export class SpawnFailure extends Error {
  override readonly name = 'SpawnFailure';
  readonly exitCode: number;

  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Takes signals from now on. A terminal sends its Ctrl-C to the whole foreground group, the child included. */
export function captureSignals(isTerminal: boolean): SignalRelay {
  let child: ChildProcess | null = null;
  let first: NodeJS.Signals | null = null;
  const take = (signal: NodeJS.Signals): void => {
    if (child === null) first ??= signal;
    else if (!isTerminal || (signal !== 'SIGINT' && signal !== 'SIGQUIT')) child.kill(signal);
  };
  for (const signal of FORWARDED) process.on(signal, take);
  return {
    pending: () => first,
    sendTo: (started) => void (child = started),
    release: () => FORWARDED.forEach((signal) => void process.off(signal, take)),
  };
}

/** Exit code of a process that a signal ended. */
function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** Resolves to the exit code, or 128 + n when signal n ended the child. Rejects with a SpawnFailure. */
export function runChild(command: readonly [string, ...string[]], options: ChildOptions): Promise<number> {
  const [file, ...args] = command;
  const early = options.signals.pending();
  if (early !== null) return Promise.resolve(exitCodeOf(early));
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { env: options.env, cwd: options.cwd, stdio: 'inherit' });
    options.signals.sendTo(child);
    child.once('error', (error: NodeJS.ErrnoException) => {
      const exitCode = error.code === 'ENOENT' ? 127 : 126;
      reject(new SpawnFailure(exitCode, `${file} can't be run (${error.code ?? 'unknown'})`));
    });
    child.once('exit', (code, signal) => resolve(signal === null ? (code ?? 1) : exitCodeOf(signal)));
  });
}
