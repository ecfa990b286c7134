#!/usr/bin/env node
// npm run demo: the main job from end to end, in a temporary folder, with every claim verified.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { processEnvironment } from '../daemon/config.ts';
import { StartError } from '../model/errors.ts';
import { startDemoHost, type DemoHost } from './demo-host.ts';
import { DemoFailure, findFreePort, Stage } from './demo-stage.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

const COVERED = 'api.demo.test';
const UNCOVERED = 'other.demo.test';
const FIRST_VALUE = 'real-value-one-9f8e7d6c5b4a3210';
const SECOND_VALUE = 'real-value-two-0123456789abcdef';

const print = (text: string): void => void process.stdout.write(text);

function readPlaceholder(folder: string): string {
  const line = /^export DEMO_API_KEY=(\S+)$/m.exec(readFileSync(join(folder, 'sandbox.env'), 'utf8'));
  if (line?.[1] === undefined) throw new DemoFailure('the session has no variable DEMO_API_KEY');
  return line[1];
}

async function prepare(stage: Stage, scene: { folder: string; host: DemoHost }): Promise<string> {
  const { folder, host } = scene;
  stage.say('The operator starts the daemon. (The two hosts of this demo are a server on this machine.)');
  const [proxyPort, adminPort] = [await findFreePort(), await findFreePort()];
  const overrides = [COVERED, UNCOVERED].map((name) => `${name}:443=127.0.0.1:${host.port}`).join(',');
  const flags = [
    '--data-dir',
    'data',
    '--proxy-listen',
    `127.0.0.1:${proxyPort}`,
    '--admin-listen',
    `127.0.0.1:${adminPort}`,
  ];
  const upstream = ['--upstream-ca-file', 'upstream-ca.pem', '--upstream-overrides', overrides];
  await stage.startDaemon(`keyveil serve ${[...flags, ...upstream].join(' ')}`, ['serve', ...flags, ...upstream]);

  stage.say('A vault, and a credential for one host; its value comes from standard input.');
  await stage.keyveil('keyveil vault create demo', ['vault', 'create', 'demo']);
  const create = ['credential', 'create', 'DEMO_API_KEY', '--vault', 'demo', '--host', COVERED];
  await stage.keyveil(`printf %s "$REAL_KEY" | keyveil ${create.join(' ')}`, create, { input: FIRST_VALUE });

  stage.say('A session for the sandbox: its variables, and the CA that it must trust.');
  const session = ['session', 'create', '--vault', 'demo', '--ca-directory', join(folder, 'ca'), '--format', 'sh'];
  const variables = await stage.keyveil(`keyveil ${session.join(' ')} > sandbox.env`, session, { isQuiet: true });
  writeFileSync(join(folder, 'sandbox.env'), variables, { mode: 0o600 });
  mkdirSync(join(folder, 'ca'));
  writeFileSync(
    join(folder, 'ca/ca.pem'),
    await stage.keyveil('keyveil ca export > ca/ca.pem', ['ca', 'export'], { isQuiet: true }),
  );
  const bundle = await stage.keyveil('keyveil ca export --bundle > ca/ca-bundle.pem', ['ca', 'export', '--bundle'], {
    isQuiet: true,
  });
  writeFileSync(join(folder, 'ca/ca-bundle.pem'), bundle);
  return readPlaceholder(folder);
}

const CURL = `curl -sS -H "Authorization: Bearer $DEMO_API_KEY"`;

async function playSandbox(stage: Stage, host: DemoHost, placeholder: string): Promise<void> {
  stage.say('Inside the sandbox: the variable is a placeholder, and real curl authenticates with it.');
  const echoed = await stage.sandbox('echo "$DEMO_API_KEY"');
  stage.verify(
    'the sandbox has a placeholder in place of the value',
    echoed.stdout.trim() === placeholder && placeholder !== FIRST_VALUE,
  );
  const first = await stage.sandbox(`${CURL} https://${COVERED}/whoami`);
  stage.verify('curl succeeded', first.exitCode === 0);
  stage.verify('the server received the real value', host.received.at(-1)?.authorization === `Bearer ${FIRST_VALUE}`);
  stage.verify(
    'its answer, which repeats the value, came back veiled',
    first.stdout.includes(placeholder) && !first.stdout.includes(FIRST_VALUE),
  );

  stage.say('Rotation: no restart, no new session; the placeholder stays.');
  const rotate = ['credential', 'rotate', 'DEMO_API_KEY', '--vault', 'demo'];
  await stage.keyveil(`printf %s "$NEW_KEY" | keyveil ${rotate.join(' ')}`, rotate, { input: SECOND_VALUE });
  const second = await stage.sandbox(`${CURL} https://${COVERED}/whoami`);
  stage.verify(
    'the next request carried the new value',
    host.received.at(-1)?.authorization === `Bearer ${SECOND_VALUE}`,
  );
  stage.verify(
    'the sandbox saw the same placeholder',
    second.stdout.includes(placeholder) && !second.stdout.includes(SECOND_VALUE),
  );

  stage.say('A host that the credential does not cover gets the placeholder as it stands, and the client is told why.');
  const third = await stage.sandbox(`${CURL} -i https://${UNCOVERED}/collect`);
  stage.verify(
    'the other server received the placeholder',
    host.received.at(-1)?.authorization === `Bearer ${placeholder}`,
  );
  stage.verify(
    'Proxy-Status says why',
    /^proxy-status: .*DEMO_API_KEY not swapped: host_not_covered/im.test(third.stdout),
  );

  stage.say('The same in one line.');
  const script = `${CURL} https://${COVERED}/whoami`;
  const out = await stage.keyveil(`keyveil run --vault demo -- sh -c '${script}'`, [
    'run',
    '--vault',
    'demo',
    '--',
    'sh',
    '-c',
    script,
  ]);
  stage.verify('it went through a session of its own', out.includes(placeholder) && host.received.length === 4);
}

/** Every file of the data directory and the log, searched as bytes. */
function findLeaks(folder: string, log: string): string[] {
  const files = readdirSync(join(folder, 'data'), { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const texts = files.map((entry) => [entry.name, readFileSync(join(entry.parentPath, entry.name))] as const);
  return [...texts, ['the log', Buffer.from(log)] as const]
    .filter(([, bytes]) => bytes.includes(FIRST_VALUE) || bytes.includes(SECOND_VALUE))
    .map(([name]) => name);
}

async function play(stage: Stage, scene: { folder: string; host: DemoHost }): Promise<void> {
  const placeholder = await prepare(stage, scene);
  await playSandbox(stage, scene.host, placeholder);
  stage.say('What happened is in the audit log; no value is.');
  const audit = await stage.keyveil('keyveil audit', ['audit']);
  stage.verify(
    'the swap and the miss were recorded',
    audit.includes('swapped in header') && audit.includes('host_not_covered'),
  );
  stage.say('The daemon stops on SIGTERM.');
  stage.verify('it stopped cleanly', (await stage.stopDaemon()) === 0);
  const leaks = findLeaks(scene.folder, stage.daemonLog);
  stage.verify(
    `neither value is in a file of the data directory or in the log${leaks.length > 0 ? ` (${leaks.join(', ')})` : ''}`,
    leaks.length === 0,
  );
}

/** Ctrl-C, or a supervisor's signal: what the demo has started must not outlive it. */
class DemoInterruption extends Error {
  override readonly name = 'DemoInterruption';
  readonly exitCode: number;

  constructor(signal: 'SIGTERM' | 'SIGINT' | 'SIGHUP') {
    super(signal);
    this.exitCode = 128 + constants.signals[signal];
  }
}

/** Rejects at the first signal. */
function untilInterrupted(): Promise<never> {
  return new Promise((_resolve, reject) => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
      process.on(signal, () => reject(new DemoInterruption(signal)));
  });
}

async function main(): Promise<number> {
  const interrupted = untilInterrupted();
  const path = processEnvironment()['PATH'] ?? '/usr/bin:/bin';
  if (spawnSync('curl', ['--version'], { stdio: 'ignore' }).status !== 0) {
    process.stderr.write('The demo needs curl, which is not installed here (Debian: apt-get install curl).\n');
    return 1;
  }
  let folder: string;
  try {
    folder = makeTemporaryFolder('keyveil-demo-');
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
  const stage = new Stage({ folder, print, path });
  const host = await startDemoHost([COVERED, UNCOVERED], (line) => stage.show(`[server] ${line}\n`));
  try {
    writeFileSync(join(folder, 'upstream-ca.pem'), host.caPem);
    await Promise.race([play(stage, { folder, host }), interrupted]);
    print('\nAll of it was verified.\n');
    return 0;
  } catch (error) {
    if (error instanceof DemoInterruption) return error.exitCode;
    if (!(error instanceof DemoFailure)) throw error;
    process.stderr.write(`\nThe demo failed: ${error.message}\n`);
    return 1;
  } finally {
    await stage.close();
    await host.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

// Not left to an empty event loop: an interrupted play may still wait for something.
process.exit(await main());
