// The built daemon as a process of its own, for what only a process shows: its death, its memory, its log.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { createOperator, prepareEnvironment, type EnvironmentOptions, type Operator } from './operator.ts';
import { createTestAuthority, type TestAuthority } from './test-authority.ts';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const KIB = 1024;
// Places after the process's name in /proc/PID/stat (proc(5)); Linux shows ticks of a hundredth of a second.
const USER_TICKS = 11;
const SYSTEM_TICKS = 12;
const TICKS_PER_SECOND = 100;

export interface DaemonProcess extends Operator {
  /** Where it runs, and where its data directory lies. */
  readonly directory: string;
  readonly dataDirectory: string;
  readonly authority: TestAuthority;
  readonly pid: number;
  readonly proxyPort: number;
  readonly adminPort: number;
  /** Every line of its log so far, whichever process of the daemon wrote it. */
  readonly log: string[];
  /** Resident bytes of the process now (Linux). */
  residentBytes(): number;
  /** Processor time of the process until now, user and system (Linux). */
  cpuSeconds(): number;
  /** Ends it as a power cut would; resolves when it is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same directory. */
  start(): Promise<void>;
  /** Stops it gently, and resolves with its exit code; the directory stays until `close`. */
  stop(): Promise<number | null>;
  close(): Promise<void>;
}

interface Running {
  readonly child: ChildProcess;
  readonly socketPath: string;
  readonly proxyAddress: { readonly port: number };
  readonly adminPort: number;
}

interface LogLine {
  readonly msg: string;
  readonly port?: number;
  readonly path?: string;
}

/** Starts the daemon in a directory; resolves when it says that it is ready. */
async function launch(cwd: string, environment: Record<string, string>, log: string[]): Promise<Running> {
  if (!existsSync(MAIN)) throw new Error('There is no built command line: run `npm run build` first.');
  const env = { PATH: process.env['PATH'], KEYVEIL_LOG_LEVEL: 'debug', ...environment };
  const child = spawn(process.execPath, [MAIN, 'serve'], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  child.stderr.on('data', (chunk: Buffer) => log.push(chunk.toString('latin1')));
  const ports = { proxy: 0, admin: 0 };
  const socketPath = await new Promise<string>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`The daemon ended with ${String(code)}:\n${log.join('\n')}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      log.push(line);
      if (!line.startsWith('{')) return;
      const { msg, port, path } = JSON.parse(line) as LogLine;
      if (msg.startsWith('The proxy listens')) ports.proxy = port ?? 0;
      if (msg.startsWith('The admin API listens')) ports.admin = port ?? 0;
      if (msg === 'Ready') resolve(path as string);
    });
  });
  return { child, socketPath, proxyAddress: { port: ports.proxy }, adminPort: ports.admin };
}

/** Starts the built daemon; its log level is debug unless `environment` says otherwise. */
export async function startDaemonProcess(options: EnvironmentOptions = {}): Promise<DaemonProcess> {
  const directory = mkdtempSync(join(tmpdir(), 'kvd-'));
  const authority = options.authority ?? createTestAuthority();
  const environment = prepareEnvironment(directory, authority, options);
  const log: string[] = [];
  let running = await launch(directory, environment, log);
  const end = async (signal: 'SIGKILL' | 'SIGTERM'): Promise<number | null> => {
    const { child } = running;
    if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
    const gone = once(child, 'close');
    child.kill(signal);
    await gone;
    return child.exitCode;
  };
  return {
    directory,
    dataDirectory: environment['KEYVEIL_DATA_DIR'] as string,
    authority,
    get pid() {
      return running.child.pid as number;
    },
    get proxyPort() {
      return running.proxyAddress.port;
    },
    get adminPort() {
      return running.adminPort;
    },
    log,
    ...createOperator(() => running),
    residentBytes() {
      const status = readFileSync(`/proc/${String(running.child.pid)}/status`, 'latin1');
      return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * KIB;
    },
    cpuSeconds() {
      const stat = readFileSync(`/proc/${String(running.child.pid)}/stat`, 'latin1');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return (Number(fields[USER_TICKS]) + Number(fields[SYSTEM_TICKS])) / TICKS_PER_SECOND;
    },
    async kill() {
      await end('SIGKILL');
    },
    async start() {
      running = await launch(directory, environment, log);
    },
    stop: () => end('SIGTERM'),
    async close() {
      await end('SIGKILL');
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
