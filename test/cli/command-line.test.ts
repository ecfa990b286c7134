// Commands against a real daemon: what they print, what they end with, and that no secret is among it.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test, type Test } from 'tap';
import { runCommandLine } from '../../cli/command-line.ts';
import { startTestDaemon, type TestDaemon } from '../support/daemon.ts';
import { startUpstream } from '../support/upstream.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const VALUE = 'the-real-secret-value-1';

interface Outcome {
  readonly exitCode: number;
  readonly out: string;
  readonly err: string;
  /** Standard output as JSON. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- tests look into it freely
  readonly json: any;
}

interface RunOptions {
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

async function run(words: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  let out = '';
  let err = '';
  const terminal = {
    stdin: Readable.from([Buffer.from(options.input ?? '')]),
    out: async (text: string) => void (out += text),
    err: (text: string) => void (err += text),
    columns: null,
  };
  const env = { PATH: process.env['PATH'], ...options.env };
  const exitCode = await runCommandLine(words, { terminal, env, cwd: options.cwd ?? tmpdir(), version: '9.9.9' });
  return {
    exitCode,
    out,
    err,
    get json() {
      return JSON.parse(out);
    },
  };
}

interface Scene {
  readonly keyveil: TestDaemon;
  /** Runs a command on the daemon's data directory. */
  readonly keyveilRun: (words: readonly string[], options?: RunOptions) => Promise<Outcome>;
}

async function openScene(
  t: Test,
  overrides: Record<string, number> = {},
  authority = createTestAuthority(),
): Promise<Scene> {
  const keyveil = await startTestDaemon({ overrides, authority });
  t.teardown(() => keyveil.close());
  const dataDir = join(keyveil.directory, 'data');
  return {
    keyveil,
    keyveilRun: (words, options = {}) => run(words, { ...options, env: { KEYVEIL_DATA_DIR: dataDir, ...options.env } }),
  };
}

void test('vaults, credentials, environments and sessions from the command line', async (t) => {
  const { keyveil, keyveilRun } = await openScene(t);
  const shown: string[] = [];
  const must = async (words: string[], input?: string) => {
    const outcome = await keyveilRun(words, input === undefined ? {} : { input });
    t.equal(outcome.exitCode, 0, `${words.join(' ')} ${outcome.err}`);
    shown.push(outcome.out, outcome.err);
    return outcome;
  };
  const vault = (await must(['vault', 'create', 'work', '--metadata', 'team=a', '--json'])).json;
  t.match(vault, { type: 'vault', display_name: 'work', metadata: { team: 'a' } });
  t.match((await must(['vault', 'list'])).out, /^ID +NAME +CREATED +ARCHIVED\nvlt_\w+ +work /);
  t.equal((await must(['vault', 'show', 'work', '--json'])).json.id, vault.id);

  const create = [
    'credential',
    'create',
    'API_KEY',
    '--vault',
    'work',
    '--host',
    'api.test',
    '--host',
    '*.b.test',
    '--json',
  ];
  const credential = (await must(create, `${VALUE}\n`)).json;
  t.match(credential.auth, {
    networking: { allowed_hosts: ['api.test', '*.b.test'] },
    injection_location: { header: true, body: false },
  });
  const updated = (await must(['credential', 'update', 'API_KEY', '--vault', 'work', '--body', 'on', '--json'])).json;
  t.same(updated.auth.injection_location, { header: true, body: true });
  const rotated = (await must(['credential', 'rotate', credential.id, '--vault', vault.id, '--json'], `${VALUE}-2`))
    .json;
  t.match(rotated.auth, { secret_version: 2, placeholder: credential.auth.placeholder });
  const only = (
    await must(
      [
        'credential',
        'create',
        'BODY',
        '--vault',
        'work',
        '--unrestricted',
        '--header',
        'off',
        '--body',
        'on',
        '--json',
      ],
      VALUE,
    )
  ).json;
  t.same(only.auth.injection_location, { header: false, body: true });

  const dotenv = join(keyveil.directory, '.env');
  writeFileSync(dotenv, `ONE=${VALUE}-one\nTWO="${VALUE}-two"\n`);
  t.equal(
    (await must(['credential', 'import', '--dotenv', dotenv, '--vault', 'work', '--host', 'api.test', '--json'])).json
      .length,
    2,
  );
  t.match((await must(['credential', 'list', '--vault', 'work'])).out, /TWO +kvph_\w{32} +api\.test +1/);

  await must([
    'environment',
    'create',
    'ci',
    '--host',
    'api.test',
    '--package-managers',
    'on',
    '--private-cidr',
    '10.0.0.0/8',
  ]);
  const environment = (await must(['environment', 'update', 'ci', '--host', 'c.test', '--json'])).json;
  t.match(environment.config, {
    networking: { allowed_hosts: ['c.test'], allow_package_managers: true },
    allowed_private_cidrs: ['10.0.0.0/8'],
  });

  const session = await must([
    'session',
    'create',
    '--vault',
    'work',
    '--environment',
    'ci',
    '--expires-in',
    '1h',
    '--json',
  ]);
  t.equal(session.json.environment_id, environment.id);
  t.match(session.err, /warning: credential_host_unreachable/, 'warnings go to standard error');
  const { id } = session.json;
  const env = await must(['session', 'env', id, '--format', 'dotenv']);
  t.match(env.out, new RegExp(`^API_KEY=${credential.auth.placeholder}$`, 'm'));
  t.notMatch(env.out, /HTTPS_PROXY/, 'the token is not shown again');
  t.match((await must(['session', 'rotate-token', id, '--format', 'sh'])).out, /^export HTTPS_PROXY=http:\/\/sesn_/m);
  t.equal((await must(['session', 'archive', id, '--json'])).json.status, 'archived');
  t.notMatch((await must(['session', 'list'])).out, id);
  t.match((await must(['session', 'list', '--all'])).out, id);

  t.match((await must(['ca', 'export'])).out, /^-----BEGIN CERTIFICATE-----/);
  t.ok((await must(['ca', 'export', '--bundle'])).out.length > 50_000);
  t.match((await must(['ca', 'show', '--json'])).json, [{ subject: /Keyveil CA/ }]);
  const token = (await must(['token', 'create', 'bot', '--scope', 'broker', '--json'])).json;
  t.match((await must(['token', 'list'])).out, `${token.id}  bot`);
  await must(['token', 'delete', token.id]);
  t.equal((await must(['emergency-stop', 'on', '--reason', 'drill', '--json'])).json.active, true);
  t.equal((await must(['emergency-stop', '--json'])).json.reason, 'drill');
  t.equal((await must(['emergency-stop', 'off', '--json'])).json.active, false);
  t.match((await must(['audit'])).out, /admin .* credential\.rotate vcrd_/);

  await must(['credential', 'archive', 'ONE', '--vault', 'work']);
  await must(['credential', 'delete', 'TWO', '--vault', 'work']);
  await must(['environment', 'archive', 'ci']);
  await must(['environment', 'delete', environment.id]);
  await must(['vault', 'archive', 'work']);
  await must(['vault', 'delete', vault.id]);
  t.notMatch(shown.join(''), VALUE, 'no output holds a value');
});

void test('what is wrong is said in one line, with the exit code of its kind', async (t) => {
  const { keyveilRun } = await openScene(t);
  await keyveilRun(['vault', 'create', 'twin']);
  await keyveilRun(['vault', 'create', 'twin']);
  for (const [words, exitCode, expected] of [
    [['vault', 'create'], 2, /^keyveil: vault create needs more arguments/],
    [['vault', 'show', 'none'], 2, /^keyveil: there is no active vault "none": keyveil vault list/],
    [['vault', 'show', 'twin'], 2, /^keyveil: there are 2 of vault "twin": give the id of one \(vlt_/],
    [['vault', 'show', 'vlt_00000000000000000000000000'], 1, /^keyveil: .*\(not_found\)\n$/],
    [['credential', 'create', 'PATH', '--vault', 'twin'], 2, /--host HOST/],
    [['credential', 'list'], 2, /--vault is needed/],
    [['session', 'create', '--format', 'fish'], 2, /--format must be one of/],
    [['emergency-stop', 'maybe'], 2, /takes on or off, not "maybe"/],
    [['run', '--vault', 'x'], 2, /needs a command behind --/],
    [['doctor', '--target', 'http://x'], 2, /--target must be an https/],
    [['serve', '--proxy-lissten', 'x'], 2, /unknown flag --proxy-lissten of serve: did you mean --proxy-listen\?/],
    [['serve', '--proxy-listen', 'x'], 1, /^keyveil: --proxy-listen must be host:port/],
    [['nonsense'], 2, /unknown command "nonsense"/],
  ] as const) {
    const { exitCode: got, out, err } = await keyveilRun(words, { input: 'x'.repeat(20) });
    t.equal(got, exitCode, words.join(' '));
    t.match(err, expected);
    t.equal(err.trimEnd().split('\n').length, 1, 'one line');
    t.equal(out, '');
  }
  const reserved = await keyveilRun(['vault', 'create', 'v', '--json']);
  const refused = await keyveilRun(['credential', 'create', 'PATH', '--vault', reserved.json.id, '--host', 'a.test'], {
    input: VALUE,
  });
  t.match(refused.err, /\(secret_name_reserved\)/);
  t.notMatch(refused.err, VALUE);
});

void test('a refusal of the API names the flag that was typed', async (t) => {
  const { keyveilRun } = await openScene(t);
  await keyveilRun(['vault', 'create', 'work']);
  const create = ['credential', 'create', 'A', '--vault', 'work'];
  for (const [words, expected] of [
    [[...create, '--host', 'a.test', '--host', 'b..test'], /^keyveil: --host "b\.\.test" must /],
    [[...create, '--host', 'a.test', '--placeholder-prefix', 'no/slash'], /^keyveil: --placeholder-prefix must /],
    [['credential', 'create', '1A', '--vault', 'work', '--host', 'a.test'], /^keyveil: NAME must /],
    [['environment', 'create', 'e', '--host', 'x y'], /^keyveil: --host "x y" must /],
    [['environment', 'create', 'e', '--unrestricted', '--private-cidr', '10.0.0.0'], /^keyveil: --private-cidr "10/],
    [['session', 'create', '--ca-directory', 'relative'], /^keyveil: --ca-directory must /],
    [['token', 'create', 't', '--scope', 'all'], /^keyveil: --scope must /],
    [['vault', 'create', ''], /^keyveil: NAME must /],
  ] as const) {
    const { exitCode, err } = await keyveilRun(words, { input: VALUE });
    t.equal(exitCode, 1, words.join(' '));
    t.match(err, expected);
    t.notMatch(err, /auth\.|config\.|ca_dir/, 'no path of the API');
  }
});

void test('an import is checked as a whole before anything is created, and can be run again', async (t) => {
  const { keyveilRun } = await openScene(t);
  await keyveilRun(['vault', 'create', 'work']);
  const folder = t.testdir({
    bad: `GOOD=${VALUE}\n# comment\nPATH=${VALUE}\nMULTI="${VALUE}\nline"\nLD_X=${VALUE}\n`,
    first: `ONE=${VALUE}\n`,
    second: `ONE=${VALUE}\n\nTWO=${VALUE}\n`,
    refused: `THREE=${VALUE}\nCUSTOM_RESERVED=${VALUE}\n`,
  });
  const load = (name: string, ...more: string[]) =>
    keyveilRun([
      'credential',
      'import',
      '--vault',
      'work',
      '--host',
      'a.test',
      '--dotenv',
      join(folder, name),
      ...more,
    ]);
  const names = async (): Promise<string[]> => {
    const { json } = await keyveilRun(['credential', 'list', '--vault', 'work', '--json']);
    return (json as { auth: { secret_name: string } }[]).map(({ auth }) => auth.secret_name).sort();
  };
  const bad = await load('bad');
  t.match(bad, {
    exitCode: 2,
    err: /line 3: PATH is a reserved name.*\n.*line 4: MULTI has a value.*\n.*line 6: LD_X .*\n.*nothing was created/,
  });
  t.same(await names(), []);
  t.match(await load('first'), { exitCode: 0, out: / ONE / });
  t.match(await load('second'), {
    exitCode: 1,
    err: /second, line 1: ONE is in the vault already\nnothing.*--skip-existing/,
  });
  t.same(await names(), ['ONE']);
  t.match(await load('second', '--skip-existing'), { exitCode: 0, out: / TWO /, err: /left as they are: ONE\n/ });
  t.same(await names(), ['ONE', 'TWO']);
  for (const outcome of [bad, await load('second')]) t.notMatch(outcome.out + outcome.err, VALUE);
});

void test('a refusal in the middle of an import names its line, and what was made is listed', async (t) => {
  const keyveil = await startTestDaemon({ environment: { KEYVEIL_RESERVED_NAMES: 'CUSTOM_RESERVED' } });
  t.teardown(() => keyveil.close());
  const dataDir = join(keyveil.directory, 'data');
  const env = { KEYVEIL_DATA_DIR: dataDir };
  await keyveil.createVault('work');
  const file = join(t.testdir({ env: `THREE=${VALUE}\n\nCUSTOM_RESERVED=${VALUE}\nFOUR=${VALUE}\n` }), 'env');
  const outcome = await run(['credential', 'import', '--vault', 'work', '--host', 'a.test', '--dotenv', file], { env });
  t.match(outcome, {
    exitCode: 1,
    out: / THREE /,
    err: /line 3: CUSTOM_RESERVED: .*--skip-existing \(secret_name_reserved\)/,
  });
  t.notMatch(outcome.out, 'FOUR');
});

void test('help on every level, and the version', async (t) => {
  t.match(await run(['--help']), { exitCode: 0, out: /Usage: keyveil COMMAND/ });
  t.match(await run([]), { exitCode: 2, out: /Usage: keyveil COMMAND/ });
  t.match(await run(['vault', '--help']), { exitCode: 0, out: /Usage: keyveil vault COMMAND/ });
  t.match(await run(['vault']), { exitCode: 0, out: /Usage: keyveil vault COMMAND/ });
  t.match(await run(['vault', 'create', '--help']), { exitCode: 0, out: /Usage: keyveil vault create NAME/ });
  t.match(await run(['help', 'vault', 'create']), { exitCode: 0, out: /Usage: keyveil vault create NAME/ });
  for (const words of [
    ['vault', 'nosuch', '--help'],
    ['help', 'vault', 'nosuch'],
    ['--help', 'vault', 'nosuch'],
  ])
    t.match(await run(words), { exitCode: 2, out: '', err: /unknown command "vault nosuch"/ });
  t.match(await run(['nosuch', '--help']), { exitCode: 2, err: /unknown command "nosuch"/ });
  t.match(await run(['--version']), { exitCode: 0, out: '9.9.9\n' });
});

void test('a daemon that is not there ends with 69, the address and the likely reason', async (t) => {
  const folder = t.testdir({ data: {}, token: 'k'.repeat(40) });
  const byDirectory = await run(['vault', 'list', '--data-dir', join(folder, 'data')]);
  t.match(byDirectory, { exitCode: 69, err: /^keyveil: No daemon at .*data\/admin\.sock \(ENOENT\): .*keyveil serve/ });
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  const url = `http://127.0.0.1:${port}`;
  const flags = ['--url', url, '--admin-token-file', join(folder, 'token')];
  t.match(await run(['vault', 'list', ...flags]), {
    exitCode: 69,
    err: `${url} (ECONNREFUSED): nothing listens there`,
  });
  t.match(await run(['vault', 'list', '--url', url, '--data-dir', folder]), {
    exitCode: 2,
    err: /No admin token: .*admin-token can't be read \(ENOENT\)/,
  });
});

void test('over TCP the token of the file is used; a wrong one is told as such', async (t) => {
  const { keyveil } = await openScene(t);
  const url = `http://127.0.0.1:${keyveil.daemon.adminAddress.port}`;
  const dataDir = join(keyveil.directory, 'data');
  t.equal(
    (await run(['vault', 'list', '--json'], { env: { KEYVEIL_URL: url, KEYVEIL_DATA_DIR: dataDir } })).out,
    '[]\n',
  );
  const wrong = await run(['vault', 'list'], { env: { KEYVEIL_URL: url, KEYVEIL_ADMIN_TOKEN: 'hunter2'.repeat(6) } });
  t.match(wrong, { exitCode: 1, err: /\(unauthenticated\)/ });
  t.notMatch(wrong.err, 'hunter2');
  const before = readFileSync(join(dataDir, 'admin-token'), 'utf8');
  t.equal((await run(['admin-token', 'rotate', '--data-dir', dataDir])).exitCode, 0);
  const after = readFileSync(join(dataDir, 'admin-token'), 'utf8');
  t.not(after, before);
  t.equal(statSync(join(dataDir, 'admin-token')).mode & 0o777, 0o600);
  const env = { KEYVEIL_URL: url };
  t.equal((await run(['vault', 'list'], { env: { ...env, KEYVEIL_ADMIN_TOKEN: after.trim() } })).exitCode, 0);
  t.equal(
    (await run(['vault', 'list'], { env: { ...env, KEYVEIL_ADMIN_TOKEN: before.trim() } })).exitCode,
    1,
    'the old token is refused at once',
  );
});

void test('run gives a command its placeholders, its exit code comes back, and nothing is left behind', async (t) => {
  const { keyveil, keyveilRun } = await openScene(t);
  const vaultId = await keyveil.createVault('work');
  for (const name of ['ONE', 'TWO']) {
    await keyveil.createCredential(vaultId, {
      secret_name: name,
      secret_value: VALUE,
      networking: { type: 'unrestricted' },
    });
  }
  const folder = t.testdir({ tmp: {} });
  const script =
    'env > out.env; cp "$NODE_EXTRA_CA_CERTS" ca.pem; stat -c "%a %n" "$(dirname "$SSL_CERT_FILE")" "$SSL_CERT_FILE" > modes; exit 7';
  const caller = {
    KEPT: 'kept',
    KEYVEIL_ADMIN_TOKEN: 'k'.repeat(40),
    https_proxy: 'http://old:1',
    NO_PROXY: 'api.test',
  };
  const outcome = await keyveilRun(['run', '--vault', 'work', '--var', 'ONE', '--', 'sh', '-c', script], {
    cwd: folder,
    env: caller,
  });
  t.equal(outcome.exitCode, 7, outcome.err);
  const variables = Object.fromEntries(
    readFileSync(join(folder, 'out.env'), 'utf8')
      .split('\n')
      .map((line) => line.split(/=(.*)/s)),
  );
  t.match(variables, {
    KEPT: 'kept',
    ONE: /^kvph_/,
    HTTPS_PROXY: /^http:\/\/sesn_/,
    https_proxy: /^http:\/\/sesn_/,
    NO_PROXY: 'localhost,127.0.0.1,::1',
  });
  t.notOk('TWO' in variables, 'only what --var names');
  t.same(
    Object.keys(variables).filter((name) => name.startsWith('KEYVEIL_')),
    [],
    'the command inherits none of our variables',
  );
  t.match(readFileSync(join(folder, 'ca.pem'), 'utf8'), 'BEGIN CERTIFICATE');
  t.match(readFileSync(join(folder, 'modes'), 'utf8'), /^700 .*\n600 /);
  t.throws(() => statSync(variables['SSL_CERT_FILE']), { code: 'ENOENT' }, 'the folder is gone');
  const sessions = (await keyveil.admin('GET', '/v1/sessions?include_archived=true')).body['data'] as {
    status: string;
  }[];
  t.same(
    sessions.map(({ status }) => status),
    ['archived'],
  );

  t.equal((await keyveilRun(['run', '--', 'sh', '-c', 'kill -TERM $$'])).exitCode, 143, '128 + n for a signal');
  t.match(await keyveilRun(['run', '--', '/nowhere/command']), { exitCode: 127, err: /can't be run \(ENOENT\)/ });
  t.match(await keyveilRun(['run', '--', folder]), { exitCode: 126 });
  t.match(await keyveilRun(['run', '--vault', 'work', '--var', 'NONE', '--', 'true']), {
    exitCode: 2,
    err: /--var NONE: no vault .*ONE, TWO/,
  });
  const still = (await keyveil.admin('GET', '/v1/sessions')).body['data'] as unknown[];
  t.same(still, [], 'no session stays open, whatever went wrong');
  t.same(
    readdirSync(tmpdir()).filter((name) => name.startsWith('keyveil-run-')),
    [],
    'and no folder',
  );
});

void test('run --standalone starts a daemon for the command when none is running', async (t) => {
  // Not under the project: the path of a Unix socket has at most 107 bytes.
  const folder = mkdtempSync(join(tmpdir(), 'kv-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const dataDir = join(folder, 'data');
  const words = ['run', '--data-dir', dataDir, '--', 'sh', '-c', 'echo "$HTTPS_PROXY" > out'];
  t.equal((await run(words, { cwd: folder })).exitCode, 69);
  const outcome = await run([...words.slice(0, 3), '--standalone', ...words.slice(3)], { cwd: folder });
  t.equal(outcome.exitCode, 0, outcome.err);
  t.match(readFileSync(join(folder, 'out'), 'utf8'), /^http:\/\/sesn_/);
  t.throws(() => statSync(join(dataDir, 'admin.sock')), { code: 'ENOENT' }, 'it has stopped again');
});

void test('backup while serving, restore into a stopped directory, and a new master key', async (t) => {
  const { keyveil, keyveilRun } = await openScene(t);
  const vaultId = await keyveil.createVault('kept');
  await keyveil.createCredential(vaultId, {
    secret_name: 'ONE',
    secret_value: VALUE,
    networking: { type: 'unrestricted' },
  });
  const file = join(keyveil.directory, 'backup.db');
  t.match(await keyveilRun(['backup', file]), { exitCode: 0, out: `${file}\n`, err: /master key is not in it/ });
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.match(await keyveilRun(['backup', file]), { exitCode: 1, err: /exists already/ });
  t.match(await keyveilRun(['restore', file, '--replace']), { exitCode: 1, err: /Another Keyveil process uses/ });
  t.match(await keyveilRun(['master-key', 'rotate']), { exitCode: 1, err: /Another Keyveil process uses/ });
  await keyveil.createVault('later');
  await keyveil.daemon.close();

  const dataDir = join(keyveil.directory, 'data');
  const keyBefore = readFileSync(join(dataDir, 'master.key'), 'utf8');
  t.match(await keyveilRun(['restore', file]), { exitCode: 1, err: /exists already.*--replace/ });
  t.match(await keyveilRun(['restore', file, '--replace']), {
    exitCode: 0,
    out: /The database before is .*before-restore/,
  });
  const elsewhere = join(keyveil.directory, 'elsewhere');
  mkdirSync(elsewhere, { mode: 0o700 });
  t.match(await run(['restore', file, '--data-dir', elsewhere]), { exitCode: 1, err: /holds no master key/ });
  t.same(readdirSync(elsewhere), [], 'and nothing was made there');
  t.match(await keyveilRun(['master-key', 'rotate']), {
    exitCode: 0,
    out: /^[1-9]\d* values are under the new key\n$/,
  });
  const keyAfter = readFileSync(join(dataDir, 'master.key'), 'utf8');
  t.not(keyAfter, keyBefore);
  t.equal(statSync(join(dataDir, 'master.key')).mode & 0o777, 0o600);
  await keyveil.restart();
  t.match(
    (await keyveilRun(['vault', 'list', '--json'])).json,
    [{ display_name: 'kept' }],
    'the database of the backup serves under the new key',
  );
});

void test('doctor tells for each client whether it goes through the proxy and trusts the CA', async (t) => {
  const authority = createTestAuthority();
  const upstream = await startUpstream({ leaf: authority.leafFor(['doctor.test']) });
  t.teardown(() => upstream.close());
  const { keyveilRun } = await openScene(t, { 'doctor.test': upstream.port }, authority);
  const temporary = mkdtempSync(join(tmpdir(), 'kvt-'));
  t.teardown(() => rmSync(temporary, { recursive: true, force: true }));
  const { TMPDIR: before = tmpdir() } = process.env;
  process.env['TMPDIR'] = temporary;
  t.teardown(() => (process.env['TMPDIR'] = before));
  const outcome = await keyveilRun(['doctor', '--target', 'https://doctor.test/']);
  t.equal(outcome.exitCode, 0, outcome.out + outcome.err);
  t.match(outcome.out, /✓ daemon .*ready\n✓ CA .*Keyveil CA .*\n✓ clock /);
  t.match(outcome.out, /^✓ curl +(?:goes through the proxy and trusts the CA|is not installed here)$/m);
  t.match(outcome.out, /^. node +/m);
  t.match(
    outcome.out,
    /^. wget +(?:goes through the proxy(?:, but does not trust| and trusts) the CA|is not installed here)/m,
  );
  t.same(readdirSync(temporary), []);
});

void test('doctor fails where the proxy is not where sandboxes are told, and blames no client', async (t) => {
  const gone = createServer().listen(0, '127.0.0.1');
  await once(gone, 'listening');
  const { port } = gone.address() as AddressInfo;
  gone.close();
  for (const [url, expected] of [
    [
      'http://keyveil.invalid:7080',
      /✗ proxy +http:\/\/keyveil\.invalid:7080, .* the name does not resolve.*\((?:ENOTFOUND|EAI_AGAIN)\)/,
    ],
    [
      `http://127.0.0.1:${port}`,
      /✗ proxy .* nothing listens there \(ECONNREFUSED\)\. Check KEYVEIL_ADVERTISED_PROXY_URL/,
    ],
  ] as const) {
    const keyveil = await startTestDaemon({ environment: { KEYVEIL_ADVERTISED_PROXY_URL: url } });
    t.teardown(() => keyveil.close());
    const outcome = await run(['doctor', '--data-dir', join(keyveil.directory, 'data')]);
    t.equal(outcome.exitCode, 1);
    t.match(outcome.out, expected);
    t.notMatch(outcome.out, /CURL_CA_BUNDLE|trust/);
    const sessions = (await keyveil.admin('GET', '/v1/sessions')).body['data'];
    t.same(sessions, [], 'its session is archived');
  }
});

void test('what a newcomer mistypes is answered with what helps', async (t) => {
  const { keyveil, keyveilRun } = await openScene(t);
  await keyveilRun(['vault', 'create', 'work']);
  const [first] = (await keyveilRun(['vault', 'list', '--json'])).json;
  const again = await keyveilRun(['vault', 'create', 'work']);
  t.equal(again.exitCode, 0);
  t.match(again.err, /^keyveil: warning: 2 vaults are named "work" now \(vlt_\w+, vlt_\w+\): commands take the id/);
  t.equal((await keyveilRun(['vault', 'create', 'other'])).err, '');

  const low = await keyveilRun(['credential', 'create', 'PIN', '--vault', first.id, '--host', 'a.test'], {
    input: '1234',
  });
  t.match(low.err, /^keyveil: warning: low_entropy_value: the value is shorter than 16 bytes or all digits/m);
  t.match(low.err, /^keyveil: warning: value_not_veiled: the value is shorter than 8 bytes/m);

  const url = `http://127.0.0.1:${keyveil.daemon.adminAddress.port}`;
  const broker = (await keyveilRun(['token', 'create', 'ci', '--scope', 'broker', '--json'])).json.token as string;
  const file = join(keyveil.directory, 'token');
  writeFileSync(file, broker);
  const byUrl = (words: readonly string[]) => run([...words, '--url', url, '--admin-token-file', file]);
  const named = await byUrl(['session', 'create', '--vault', 'other']);
  t.equal(named.exitCode, 1);
  t.match(named.err, /"other" is a name, and this token may not look names up: give the id of the vault \(vlt_…\)/);
  t.match(
    (await byUrl(['session', 'create', '--environment', 'x'])).err,
    /"x" is a name.*id of the environment \(env_…\)/,
  );
  t.equal((await byUrl(['session', 'create', '--vault', first.id])).exitCode, 0, 'an id works');
  writeFileSync(file, 'kvad_0123456789012345678901234567890123456789');
  const wrong = await byUrl(['vault', 'list']);
  t.equal(wrong.exitCode, 1);
  t.ok(wrong.err.includes(`The token is from ${file} (--admin-token-file), and was sent to ${url}`), wrong.err);

  for (const [words, expected] of [
    [['vault', 'list', '--url', 'nonsense'], /--url/],
    [['vault', 'list', '--url', url, '--admin-token-file', '/none'], /--admin-token-file names the file \/none/],
    [['vault', 'list', '--url', url, '--data-dir', '/none'], /No admin token: .*--admin-token-file/],
  ] as const) {
    const outcome = await run(words);
    t.equal(outcome.exitCode, 2, outcome.err);
    t.match(outcome.err, expected);
  }
  for (const flag of ['since', 'until']) {
    const { err, exitCode } = await keyveilRun(['audit', `--${flag}`, 'yesterday']);
    t.equal(exitCode, 1);
    t.match(err, new RegExp(`--${flag}`));
    t.notMatch(err, /created_at/);
  }
});
