// The demo's stage: prints each step as the command a person would type, runs it, and keeps count of what was verified.
import { spawn, type ChildProcess, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createClient } from './client.ts';

const READY_WITHIN_MS = 60_000;
const POLL_INTERVAL_MS = 50;
const STOP_WITHIN_MS = 30_000;

export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
}

export interface StageOptions {
  readonly folder: string;
  readonly print: (text: string) => void;
  readonly path: string;
}

/** A failed verification or step: the demo ends with exit code 1. */
export class DemoFailure extends Error {
  override readonly name = 'DemoFailure';
}

/** The interpreter and script that stand for `keyveil`, in the sources and in the build. */
function keyveilCommand(): [string, ...string[]] {
  const main = fileURLToPath(new URL(import.meta.url.endsWith('.ts') ? './main.ts' : './main.js', import.meta.url));
  return [process.execPath, ...process.execArgv, main];
}

async function collect(child: ChildProcess, input: string): Promise<CommandResult> {
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  // A command that reads nothing may have ended by now; what it says and its exit code tell how it went.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(input);
  const [exitCode] = (await once(child, 'close')) as [number | null];
  return { stdout, stderr, exitCode };
}

/** A free port of 127.0.0.1, so that the printed commands can name it. */
export async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Prints, runs and verifies. */
export class Stage {
  readonly #options: StageOptions;
  readonly #children = new Set<ChildProcess>();
  #daemon: ChildProcess | null = null;
  #daemonLog = '';
  #isOver = false;

  constructor(options: StageOptions) {
    this.#options = options;
  }

  /** Runs a child that ends with the stage. */
  #spawn(
    command: readonly [string, ...string[]],
    env: Readonly<Record<string, string>>,
  ): ChildProcessWithoutNullStreams {
    if (this.#isOver) throw new DemoFailure('the stage is closed');
    const [file, ...args] = command;
    const child = spawn(file, args, { cwd: this.#options.folder, env });
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    return child;
  }

  say(text: string): void {
    this.#options.print(`\n# ${text}\n`);
  }

  show(text: string): void {
    this.#options.print(text.replace(/^(?=.)/gm, '  '));
  }

  /** Prints `$ keyveil …`, runs it, and answers what it wrote; a failure ends the demo. */
  async keyveil(
    line: string,
    args: readonly string[],
    options: { input?: string; isQuiet?: boolean } = {},
  ): Promise<string> {
    this.#options.print(`$ ${line}\n`);
    const child = this.#spawn([...keyveilCommand(), ...args], { PATH: this.#options.path });
    const result = await collect(child, options.input ?? '');
    if (options.isQuiet !== true) this.show(result.stdout);
    this.show(result.stderr);
    if (result.exitCode !== 0) throw new DemoFailure(`${line} ended with exit code ${String(result.exitCode)}`);
    return result.stdout;
  }

  /** Runs a script as the sandbox does: with the session's variables and nothing else. */
  async sandbox(script: string): Promise<CommandResult> {
    this.#options.print(`sandbox$ ${script}\n`);
    const child = this.#spawn(['sh', '-c', `. ./sandbox.env && ${script}`], { PATH: this.#options.path });
    const result = await collect(child, '');
    this.show(result.stdout + result.stderr);
    return result;
  }

  verify(claim: string, isTrue: boolean): void {
    this.#options.print(`${isTrue ? '  ✓' : '  ✗'} ${claim}\n`);
    if (!isTrue) throw new DemoFailure(`not verified: ${claim}`);
  }

  /** Starts the daemon in the background and waits until it is ready. */
  async startDaemon(line: string, args: readonly string[]): Promise<void> {
    this.#options.print(`$ ${line} &\n`);
    const daemon = this.#spawn([...keyveilCommand(), ...args], { PATH: this.#options.path });
    daemon.stdin.end();
    this.#daemon = daemon;
    for (const stream of [daemon.stdout, daemon.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (this.#daemonLog += text));
    const client = createClient({ dataDir: `${this.#options.folder}/data`, url: null, adminToken: null });
    for (const start = Date.now(); Date.now() - start < READY_WITHIN_MS; await delay(POLL_INTERVAL_MS)) {
      if (daemon.exitCode !== null) break;
      const isReady = await client.call('GET', '/readyz').then(
        () => true,
        () => false,
      );
      if (isReady) return;
    }
    throw new DemoFailure(`the daemon did not get ready:\n${this.#daemonLog}`);
  }

  /** What the daemon has logged so far. */
  get daemonLog(): string {
    return this.#daemonLog;
  }

  /** Ends the daemon by SIGTERM and answers its exit code; null when a signal had to end it, or when there was none. */
  async stopDaemon(): Promise<number | null> {
    const daemon = this.#daemon;
    this.#daemon = null;
    if (daemon === null || daemon.exitCode !== null) return daemon?.exitCode ?? null;
    const kill = setTimeout(() => daemon.kill('SIGKILL'), STOP_WITHIN_MS);
    daemon.kill('SIGTERM');
    const [exitCode] = (await once(daemon, 'exit')) as [number | null];
    clearTimeout(kill);
    return exitCode;
  }

  /** Ends the daemon and whatever else still runs; nothing can be started from here on. */
  async close(): Promise<void> {
    this.#isOver = true;
    const others = [...this.#children].filter((child) => child !== this.#daemon);
    const gone = others.map((child) => once(child, 'exit'));
    for (const child of others) child.kill('SIGTERM');
    await Promise.all([this.stopDaemon(), ...gone]);
  }
}
