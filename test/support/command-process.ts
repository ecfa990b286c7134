// The command line as a process of its own: from its sources, or as it is built.
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../cli/main.ts', import.meta.url));
const BUILT = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const REGISTER = new URL('../../scripts/ts-register.mjs', import.meta.url).href;

export interface CommandProcess {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  /** Standard output and standard error so far. */
  readonly output: () => string;
  /** Resolves once the output holds the text. */
  until(text: string): Promise<void>;
  readonly exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** Starts a command from the sources. */
export function startCommand(words: readonly string[], env: Readonly<Record<string, string>> = {}): CommandProcess {
  return follow(spawn(process.execPath, ['--import', REGISTER, MAIN, ...words], optionsOf(env)));
}

/** Starts the built command as the user `uid`, which only root can; undefined for the user of this process. */
export function startBuiltCommandAs(uid: number | undefined, words: readonly string[]): CommandProcess {
  if (!existsSync(BUILT)) throw new Error('There is no built command line: run `npm run build` first.');
  const user = uid === undefined ? {} : { uid, gid: uid };
  // Through env(1), which takes away what the test runner adds to follow its children: that writes to this user's files.
  const clean = ['-i', `PATH=${process.env['PATH'] ?? ''}`, process.execPath, BUILT, ...words];
  return follow(spawn('env', clean, { ...optionsOf({}), ...user }));
}

function optionsOf(env: Readonly<Record<string, string>>) {
  const stdio: ['ignore', 'pipe', 'pipe'] = ['ignore', 'pipe', 'pipe'];
  return { env: { PATH: process.env['PATH'], ...env }, stdio };
}

function follow(child: CommandProcess['child']): CommandProcess {
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  const exit = once(child, 'close').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }));
  return {
    child,
    output: () => output,
    exit,
    until: (text) =>
      new Promise((resolve, reject) => {
        const look = () => output.includes(text) && resolve();
        child.stdout.on('data', look);
        child.stderr.on('data', look);
        child.once('close', () => reject(new Error(`ended without ${text}: ${output}`)));
        look();
      }),
  };
}
