// What a process leaves behind that is aborted in the middle of its work: a core without memory in it, and no file. And
// the search is tried: with the kernel's own filter the same cores hold secrets, and a file that an abort leaves is found.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { test, type Test } from 'tap';
import {
  collectProcess,
  createCanarySecrets,
  findLeaks,
  keyNeedles,
  processesOf,
  textNeedles,
  type Evidence,
  type Needles,
} from '../support/canary.ts';
import { exchange, misuseToken, openSession, plantCredentials, useCredential } from '../support/canary-drive.ts';
import { keysOf } from '../support/canary-keys.ts';
import { openCanaryScene, type CanaryScene } from '../support/canary-scene.ts';
import { beginUpload } from '../support/canary-upload.ts';
import { abortForCore, allowCores, coreFilterOf, partsOf, placeOfCores } from '../support/core-files.ts';

/** Bits of the filter that Linux sets by itself: private and shared memory, ELF headers, huge pages. */
const FILTER_OF_LINUX = 0x33;
/** What every core has of code that the kernel gives to each process (vdso(7)). */
const KERNEL_PAGES_BYTES = 256 * 1024;
/** A core is searched piece by piece, each of which fits into a text; needles are shorter than what two share. */
const PIECE_BYTES = 64 * 1024 * 1024;
const SHARED_BYTES = 4096;
const isLinux = process.platform === 'linux';

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));

async function workersOf(scene: CanaryScene, count = 2): Promise<number[]> {
  for (;;) {
    const [, ...workers] = processesOf(scene.keyveil.pid);
    if (workers.length === count) return workers;
    await pause();
  }
}

/** The core of a process that was allowed to leave one: all of it but the registers. */
async function coreWithoutMemory(t: Test, pid: number, directory: string): Promise<Evidence[]> {
  const core = await abortForCore(pid, directory);
  if (core === null) throw new Error('There is no core.');
  const { memory, registers, rest } = partsOf(core);
  t.ok(registers.length > 0 && rest.length > 0);
  t.ok(memory.length <= KERNEL_PAGES_BYTES, `${String(memory.length)} bytes of memory: the kernel's own pages`);
  return [
    { place: 'core', label: 'memory', bytes: memory.subarray(0, KERNEL_PAGES_BYTES) },
    { place: 'core', label: 'all but memory and registers', bytes: rest },
  ];
}

async function leaksOfCore(pid: number, directory: string, needles: Needles): Promise<string[]> {
  const core = (await abortForCore(pid, directory)) ?? Buffer.alloc(0);
  const leaks: string[] = [];
  for (let at = 0; at < core.length; at += PIECE_BYTES) {
    const bytes = core.subarray(at, at + PIECE_BYTES + SHARED_BYTES);
    leaks.push(...findLeaks([{ place: 'core', label: `from ${String(at)}`, bytes }], needles));
  }
  return leaks;
}

/** Gives a process the filter that it would have had by itself. */
function restoreFilter(pid: number): void {
  writeFileSync(`/proc/${String(pid)}/coredump_filter`, String(FILTER_OF_LINUX));
}

test('an aborted process leaves no secret, token or key behind', { skip: !isLinux }, async (t) => {
  const master = randomBytes(32);
  // The daemon starts under this process's limit.
  allowCores(process.pid);
  const scene = await openCanaryScene({ KEYVEIL_MASTER_KEY: master.toString('base64') });
  t.teardown(() => scene.close());
  const { keyveil, admin } = scene;
  const secrets = createCanarySecrets();
  const vaultId = (await admin('POST', '/v1/vaults', { body: { display_name: 'canary' } })).body.id as string;
  const planted = await plantCredentials(scene, vaultId, secrets);
  const session = await openSession(scene, [vaultId]);
  for (const each of planted) await useCredential(scene, session, each);
  await misuseToken(scene, session);
  const texts = Object.entries({ ...secrets, 'admin token': scene.adminToken, 'session token': session.token });
  const keys = keysOf(keyveil.dataDirectory, master);
  const needles: Needles = texts.reduce((sum, [name, text]) => ({ ...sum, ...textNeedles(name, text) }), keys);
  const plain = { ...textNeedles('plain', secrets['plain'] as string), ...keyNeedles('master key', master) };

  const useAll = async (): Promise<void> => {
    for (const { placeholder } of [...planted, ...planted]) {
      await exchange(scene, session, { host: 'echo.test', request: 'POST /say/nothing', body: placeholder });
    }
  };
  const [first = 0, second = 0] = await workersOf(scene);
  t.strictSame(
    findLeaks(
      [first, second].flatMap((pid) => collectProcess(pid, [])),
      needles,
    ),
    [],
    'a worker is started without the secrets of the environment',
  );
  const place = placeOfCores(keyveil.directory);
  const parts: Evidence[] = [];
  await t.test('cores', { skip: 'reason' in place && place.reason }, async (t) => {
    const { directory } = place as { directory: string };
    for (const pid of processesOf(keyveil.pid)) t.equal(coreFilterOf(pid), 0, 'no mapping is written');
    const upload = await beginUpload(scene, session, planted[1]?.placeholder ?? '');
    await useAll();
    allowCores(first);
    parts.push(...(await coreWithoutMemory(t, first, directory)));
    allowCores(second);
    restoreFilter(second);
    const leaks = await leaksOfCore(second, directory, plain);
    for (const name of ['plain', 'master key'])
      t.ok(
        leaks.some((leak) => leak.includes(`: ${name}, `)),
        name,
      );
    upload.end();
    allowCores(keyveil.pid);
    parts.push(...(await coreWithoutMemory(t, keyveil.pid, directory)));
    await keyveil.start();
    allowCores(keyveil.pid);
    restoreFilter(keyveil.pid);
    const ofDaemon = await leaksOfCore(keyveil.pid, directory, plain);
    t.ok(ofDaemon.some((leak) => leak.includes(': master key, ')));
    await keyveil.start();
    for (const pid of processesOf(keyveil.pid).reverse()) {
      t.equal(await abortForCore(pid, directory), null, 'left alone, none of them leaves a core');
    }
  });

  await keyveil.kill();
  await keyveil.start();
  const upload = await beginUpload(scene, session, planted[1]?.placeholder ?? '');
  const pids = processesOf(keyveil.pid);
  for (const pid of pids.reverse()) process.kill(pid, 'SIGABRT');
  while (pids.some((pid) => existsSync(`/proc/${String(pid)}/exe`))) await pause();
  upload.end();
  const left = scene.collect().filter(({ place }) => place !== 'one-time answers');
  t.ok(left.some(({ place }) => place === 'working directory'));
  t.strictSame(findLeaks([...parts, ...left], needles), []);
});

test('a file that an abort leaves behind is found', { skip: !isLinux }, async (t) => {
  const hook = new URL('../support/leaky-hook.mjs', import.meta.url);
  const scene = await openCanaryScene({ NODE_OPTIONS: `--import=${hook.href}`, KEYVEIL_WORKERS: '1' });
  t.teardown(() => scene.close());
  const { admin, keyveil } = scene;
  const secret = createCanarySecrets()['plain'] as string;
  const vaultId = (await admin('POST', '/v1/vaults', { body: { display_name: 'canary' } })).body.id as string;
  await plantCredentials(scene, vaultId, { plain: secret });
  const leaks = (): string[] =>
    findLeaks(scene.collect(), textNeedles('plain', secret)).filter((leak) => leak.startsWith('working directory ('));
  t.strictSame(leaks(), [], 'nothing is there before');
  process.kill(keyveil.pid, 'SIGABRT');
  while (existsSync(`/proc/${String(keyveil.pid)}/exe`)) await pause();
  t.ok(leaks().some((leak) => leak.includes('(left-behind)')));
});

test('no signal opens the inspector', { skip: !isLinux }, async (t) => {
  const scene = await openCanaryScene();
  t.teardown(() => scene.close());
  for (const pid of processesOf(scene.keyveil.pid)) process.kill(pid, 'SIGUSR1');
  // A process that does not mind the signal, for what it does to others; by then it has been with the daemon for long.
  const script = 'setInterval(() => undefined, 1000); console.log("on")';
  const other = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => other.kill('SIGKILL'));
  const said = /Debugger listening|Starting inspector/;
  await new Promise<void>((resolve) => {
    other.stdout.once('data', () => other.kill('SIGUSR1'));
    other.stderr.on('data', (chunk: Buffer) => said.test(chunk.toString()) && resolve());
  });
  t.equal((await scene.admin('GET', '/healthz')).status, 200);
  await workersOf(scene);
  t.notMatch(scene.keyveil.log.join('\n'), said);
});
