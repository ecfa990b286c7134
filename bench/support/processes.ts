// Processes of a benchmark: started until they say that they are ready, measured through /proc, and stopped.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';

const TICKS_PER_SECOND = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));
const START_TIMEOUT_MS = 60_000;
const running = new Set<ChildProcess>();

export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** A line of standard output that says that the program is ready; else its port is tried until it answers. */
  readonly readyLine?: RegExp;
  readonly readyPort?: number;
  /** Drops what the program says of errors: some peers tell of each client that leaves. */
  readonly isQuiet?: boolean;
  /** Gives the child a channel for messages. */
  readonly withChannel?: boolean;
}

export interface Program {
  readonly child: ChildProcess;
  /** What the ready line's groups matched. */
  readonly ready: readonly string[];
  stop(): Promise<void>;
}

interface Usage {
  readonly parent: number;
  readonly cpuSeconds: number;
}

/** Fields of /proc/PID/stat (proc(5)): the name in brackets may hold blanks, so they are counted from its end. */
function readUsage(pid: number): Usage | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { parent: Number(fields[1]), cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND };
  } catch {
    return null; // ended meanwhile
  }
}

/** A process and its descendants. */
export function processTree(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    const usage = /^\d+$/.test(name) ? readUsage(Number(name)) : null;
    if (usage !== null) parents.set(Number(name), usage.parent);
  }
  const tree = [root];
  for (const pid of tree) for (const [child, parent] of parents) if (parent === pid) tree.push(child);
  return tree;
}

/** User and system time of all threads of the processes so far, in seconds. */
export function cpuSecondsOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + (readUsage(pid)?.cpuSeconds ?? 0), 0);
}

/** Resident memory of the processes, in bytes. */
export function residentBytesOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const match = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return sum + Number(match?.[1] ?? 0) * 1024;
  }, 0);
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

async function untilPortAnswers(port: number): Promise<string[]> {
  while (!(await answers(port))) await new Promise((resolve) => setTimeout(resolve, 50));
  return [];
}

function untilLine(child: ChildProcess, pattern: RegExp): Promise<string[]> {
  return new Promise((resolve) => {
    const lines = createInterface(child.stdout as NonNullable<ChildProcess['stdout']>);
    lines.on('line', (line) => {
      const match = pattern.exec(line);
      if (match !== null) resolve([...match].slice(1));
    });
  });
}

/** Starts a program; rejects when it ends, or says nothing for a minute, before it is ready. */
export async function startProgram(command: readonly string[], options: ProgramOptions): Promise<Program> {
  const [file, ...args] = command as [string, ...string[]];
  const channel = options.withChannel === true ? (['ipc'] as const) : [];
  const child = spawn(file, args, {
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', options.isQuiet === true ? 'ignore' : 'inherit', ...channel],
  });
  running.add(child);
  child.once('exit', () => running.delete(child));
  const ready =
    options.readyLine === undefined
      ? untilPortAnswers(options.readyPort as number)
      : untilLine(child, options.readyLine);
  let timer: NodeJS.Timeout | undefined;
  const failed = new Promise<never>((_resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`${command.join(' ')} ${why}`));
    child.once('error', (error) => fail(error.message));
    child.once('exit', (code, signal) => fail(`ended before it was ready (${code ?? signal})`));
    timer = setTimeout(() => fail('did not become ready'), START_TIMEOUT_MS);
  });
  failed.catch(() => undefined);
  try {
    const groups = await Promise.race([ready, failed]);
    if (options.readyLine === undefined) child.stdout?.resume();
    return { child, ready: groups, stop: () => stop(child) };
  } finally {
    clearTimeout(timer);
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await exited;
  clearTimeout(timer);
}

/** Ends what is still running; for the end of the benchmark, whatever it came to. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].map(stop));
}

/** Runs a command to its end; resolves with its standard output, rejects when it fails. */
export async function runCommand(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const [file, ...args] = command as [string, ...string[]];
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let output = '';
  let trouble = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (trouble += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  running.delete(child);
  if (code !== 0) throw new Error(`${command.join(' ')} failed (${code}): ${trouble.slice(-2000)}`);
  return output;
}

/** Whether a program is on the path. */
export function isInstalled(name: string): boolean {
  try {
    execFileSync('sh', ['-c', `command -v ${name}`], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
