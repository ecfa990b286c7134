// npm's scripts as processes: a signal to npm ends what the script runs, and leaves nothing behind.
import { execFileSync, spawn, spawnSync, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { test, type Test } from 'tap';
import { createClient } from '../../cli/client.ts';

const root = join(import.meta.dirname, '../..');
const POLL_INTERVAL_MS = 50;
const GONE_WITHIN_MS = 60_000;

interface Scripts {
  readonly scripts: Readonly<Record<string, string>>;
}
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Scripts;

/** A folder with the real scripts and the real build; building itself is left out, for other tests run from dist/. */
function preparePackage(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'kvn-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(root, 'package.json'), join(folder, 'package.json'));
  symlinkSync(join(root, 'dist'), join(folder, 'dist'));
  mkdirSync(join(folder, 'scripts'));
  mkdirSync(join(folder, 'tmp'));
  writeFileSync(join(folder, 'scripts/build.mjs'), '');
  return folder;
}

interface Npm {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  readonly output: () => string;
  readonly exit: Promise<unknown>;
}

interface NpmOptions {
  readonly folder: string;
  readonly words: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

function startNpm(t: Test, { folder, words, env = {} }: NpmOptions): Npm {
  // In a process group of its own, which stands for a terminal's foreground group.
  const child = spawn('npm', words, {
    cwd: folder,
    env: { PATH: process.env['PATH'], HOME: folder, TMPDIR: join(folder, 'tmp'), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  t.teardown(() => {
    try {
      process.kill(-(child.pid as number), 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  });
  return { child, output: () => output, exit: once(child, 'exit') };
}

async function until(isTrue: () => boolean | Promise<boolean>, what: () => string): Promise<void> {
  for (const start = Date.now(); !(await isTrue()); await delay(POLL_INTERVAL_MS)) {
    if (Date.now() - start > GONE_WITHIN_MS) throw new Error(what());
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
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

/** Command lines of the processes of a group (Linux). */
function processesOf(group: number): string[] {
  const stats = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return stats.flatMap((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      const [state, , owner] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return Number(owner) === group && state !== 'Z'
        ? [readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')]
        : [];
    } catch {
      return []; // It has ended in the meantime.
    }
  });
}

for (const [name, send] of [
  ['SIGTERM to npm', (npm: Npm) => npm.child.kill('SIGTERM')],
  [
    "SIGINT to npm and all it runs, as a terminal's Ctrl-C is",
    (npm: Npm) => process.kill(-(npm.child.pid as number), 'SIGINT'),
  ],
] as const) {
  void test(`npm start: ${name} drains and stops the daemon`, async (t) => {
    const folder = preparePackage(t);
    const [proxyPort, adminPort] = [await freePort(), await freePort()];
    const npm = startNpm(t, {
      folder,
      words: ['start'],
      env: {
        KEYVEIL_PROXY_LISTEN: `127.0.0.1:${proxyPort}`,
        KEYVEIL_ADMIN_LISTEN: `127.0.0.1:${adminPort}`,
      },
    });
    const client = createClient({ dataDir: join(folder, 'data'), url: null, adminToken: null });
    const isReady = (): Promise<boolean> =>
      client.call('GET', '/readyz').then(
        () => true,
        () => false,
      );
    await until(isReady, npm.output);
    send(npm);
    await npm.exit;
    await until(
      () => processesOf(npm.child.pid as number).length === 0,
      () => processesOf(npm.child.pid as number).join('\n'),
    );
    t.notOk((await answers(proxyPort)) || (await answers(adminPort)), 'its ports are free');
    t.notOk(existsSync(join(folder, 'data/admin.sock')), 'its socket is gone');
    t.match(npm.output(), /Draining[^]*"msg":"Stopped"/, 'it drained, and was not cut off');
  });
}

void test('npm run demo: SIGTERM to npm ends the demo, its daemon and its folder', async (t) => {
  const folder = preparePackage(t);
  const npm = startNpm(t, { folder, words: ['run', 'demo'] });
  await until(() => npm.output().includes('keyveil vault create'), npm.output);
  npm.child.kill('SIGTERM');
  await npm.exit;
  await until(
    () => processesOf(npm.child.pid as number).length === 0,
    () => processesOf(npm.child.pid as number).join('\n'),
  );
  t.notMatch(npm.output(), 'All of it was verified');
  t.same(
    readdirSync(join(folder, 'tmp')).filter((name) => name.startsWith('keyveil-demo-')),
    [],
  );
});

void test('the command, by a link as npm makes it, is the program with its arguments and the options of its runtime', (t) => {
  const { bin, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    bin: { keyveil: string };
    version: string;
  };
  const folder = t.testdir({});
  const links = ['first', 'a b'].map((name) => join(folder, name));
  symlinkSync(join(root, bin.keyveil), links[0] as string);
  symlinkSync('first', links[1] as string);
  const options = '--import=data:text/javascript,process.stderr.write(JSON.stringify(process.execArgv))';
  for (const command of [join(root, bin.keyveil), ...links]) {
    const env = { PATH: process.env['PATH'] };
    t.match(execFileSync(command, ['--version'], { cwd: folder, env, encoding: 'utf8' }), version, command);
    const child = spawnSync(command, ['vault', 'a b', "it's"], {
      env: { ...env, NODE_OPTIONS: options },
      encoding: 'utf8',
    });
    t.match(child.stderr, /^\["--max-semi-space-size=32"\]/);
    t.match(child.stderr, /a b/, 'an argument stays one');
    t.equal(child.status, 2);
  }
  t.end();
});

void test('the command does not run a main.js that is not its own', (t) => {
  const folder = t.testdir({ bin: {}, work: { 'main.js': "process.stdout.write('another program')" } });
  const script = join(root, 'dist/cli/keyveil.sh');
  symlinkSync(script, join(folder, 'bin/keyveil'));
  const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}` };
  for (const words of [
    ['bash', 'keyveil', '--version'],
    ['sh', '-c', `. ${script}`],
    ['sh', '-c', `sh < ${script}`],
  ]) {
    const [command = '', ...rest] = words;
    const ran = spawnSync(command, rest, { cwd: join(folder, 'work'), env, encoding: 'utf8' });
    t.equal(ran.stdout, '', words.join(' '));
    t.match(ran.stderr, /^keyveil: can't tell where it is installed\. Run it by its path\.$/m);
    t.equal(ran.status, 1);
  }
  t.end();
});

void test('every script that ends in a program hands its process over to it', (t) => {
  const kept = Object.entries(scripts).filter(
    ([name, line]) =>
      ['start', 'demo', 'bench'].includes(name) && !/&& exec (?:node|dist\/cli\/keyveil\.sh) /.test(line),
  );
  t.same(kept, []);
  t.end();
});
