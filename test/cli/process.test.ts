// The program as a process: signals, exit codes, and what a terminal's user sees of a start that fails.
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test, type Test } from 'tap';
import { createClient } from '../../cli/client.ts';
import { startCommand as start } from '../support/command-process.ts';

function shortFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'kv-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const ANY_PORTS = ['--proxy-listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'];

void test('serve logs where it listens, run passes a signal on and cleans up, and SIGTERM stops the daemon with 0', async (t) => {
  const dataDir = join(shortFolder(t), 'data');
  const serve = start(['serve', '--data-dir', dataDir, ...ANY_PORTS]);
  t.teardown(() => serve.child.kill('SIGKILL'));
  await serve.until('"msg":"Ready"');
  t.match(serve.output(), /"address":"127\.0\.0\.1","port":\d+,"msg":"The proxy listens"/);
  t.equal(statSync(dataDir).mode & 0o777, 0o700);
  for (const name of readdirSync(dataDir)) t.equal(statSync(join(dataDir, name)).mode & 0o077, 0, `${name} is private`);

  const script = 'trap "echo got TERM; exit 5" TERM; echo "in $SSL_CERT_FILE"; while :; do sleep 0.05; done';
  const run = start(['run', '--data-dir', dataDir, '--', 'sh', '-c', script]);
  await run.until('in /');
  const bundle = /in (\S+)/.exec(run.output())?.[1] ?? '';
  t.ok(statSync(bundle).size > 0);
  run.child.kill('SIGTERM');
  t.same(await run.exit, { code: 5, signal: null }, 'the code of the command, not of the signal');
  t.match(run.output(), 'got TERM');
  t.throws(() => statSync(bundle), { code: 'ENOENT' });
  const client = createClient({ dataDir, url: null, adminToken: null });
  t.same((await client.call('GET', '/v1/sessions'))['data'], [], 'its session is archived');

  const second = start(['serve', '--data-dir', dataDir, ...ANY_PORTS]);
  t.same((await second.exit).code, 1);
  t.match(second.output(), /^keyveil: Another Keyveil process uses the data directory/m);

  serve.child.kill('SIGTERM');
  t.same(await serve.exit, { code: 0, signal: null });
  t.match(serve.output(), /"name":"SIGTERM".*Draining[^]*"msg":"Stopped"/);
  t.throws(() => statSync(join(dataDir, 'admin.sock')), { code: 'ENOENT' });
});

void test('a start that can not succeed is one line and exit code 1', async (t) => {
  const folder = shortFolder(t);
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const cases = [
    [
      ['--proxy-listen', `127.0.0.1:${port}`, '--admin-listen', '127.0.0.1:0'],
      {},
      /^keyveil: 127\.0\.0\.1:\d+ can't be listened on: another program has it/m,
    ],
    [
      ['--admin-listen', `127.0.0.1:${port}`, '--proxy-listen', '127.0.0.1:0'],
      {},
      /^keyveil: 127\.0\.0\.1:\d+ can't be listened on: another program has it.*KEYVEIL_ADMIN_LISTEN/m,
    ],
    [
      ANY_PORTS,
      { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
      /^keyveil: NODE_TLS_REJECT_UNAUTHORIZED=0 turns the verification/m,
    ],
    [[...ANY_PORTS, '--data-dir', '/proc/nowhere'], {}, /^keyveil: The data directory \/proc\/nowhere can't be used/m],
  ] as const;
  const outcomes = cases.map(async ([words, env, expected], index) => {
    const dataDir = ['--data-dir', join(folder, String(index))];
    const program = start(
      ['serve', ...((words as readonly string[]).includes('--data-dir') ? [] : dataDir), ...words],
      env,
    );
    t.equal((await program.exit).code, 1, words.join(' '));
    t.match(program.output(), expected);
    t.notMatch(program.output(), / {4}at /, 'without a stack');
    t.notOk(existsSync(join(folder, String(index))), 'and nothing was made');
  });
  await Promise.all(outcomes);
});

void test('where no temporary folder can be made, run, doctor and the demo say what to do', async (t) => {
  const dataDir = join(shortFolder(t), 'data');
  const serve = start(['serve', '--data-dir', dataDir, ...ANY_PORTS]);
  t.teardown(() => serve.child.kill('SIGKILL'));
  await serve.until('"msg":"Ready"');
  const env = { TMPDIR: '/proc/nowhere' };
  for (const words of [
    ['run', '--data-dir', dataDir, '--', 'true'],
    ['doctor', '--data-dir', dataDir],
  ]) {
    const program = start(words, env);
    t.equal((await program.exit).code, 1, words.join(' '));
    t.match(
      program.output(),
      /^keyveil: No temporary folder can be made in \/proc\/nowhere \(ENOENT\): .*TMPDIR.*--tmpfs \/tmp$/m,
    );
  }
  serve.child.kill('SIGTERM');
  await serve.exit;
});

void test('no part of the product makes a temporary folder of its own accord', async (t) => {
  const folders = ['model', 'proxy', 'ca', 'store', 'admin-api', 'daemon', 'cli'];
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const users = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && /tmpdir\(|mkdtemp/.test(readFileSync(join(root, folder, name), 'utf8')))
      .map((name) => `${folder}/${name}`),
  );
  t.same(users, ['cli/temporary-folder.ts']);
});
