// git over HTTPS through the proxy: its Basic login with a placeholder, compressed requests, and a large push.
import { execFile, execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { test, type Test } from 'tap';
import { startTestDaemon, type TestDaemon } from '../support/daemon.ts';
import { startGitServer, type GitServer } from '../support/git-server.ts';
import { skipWithout } from '../support/programs.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const run = promisify(execFile);
const VALUE = 'ghp_real/secret+value-0001';
const PUSH_BYTES = 50 * 1024 * 1024;
const RUN_TIMEOUT_MS = 120_000;

function whyNot(): false | string {
  const missing = skipWithout('git');
  if (missing !== false) return missing;
  const path = join(execFileSync('git', ['--exec-path']).toString().trim(), 'git-http-backend');
  return existsSync(path) ? false : 'git http-backend is not installed';
}

interface GitOptions {
  readonly cwd?: string;
  /** For its standard input. */
  readonly input?: string;
}

interface Scene {
  readonly keyveil: TestDaemon;
  readonly server: GitServer;
  readonly placeholder: string;
  readonly directory: string;
  /** Runs git as in the sandbox; gives what it printed. */
  readonly git: (args: readonly string[], options?: GitOptions) => Promise<string>;
}

async function openScene(t: Test, injection = { header: true, body: false }): Promise<Scene> {
  const directory = mkdtempSync(join(tmpdir(), 'kv-git-'));
  const root = join(directory, 'server');
  const home = join(directory, 'home');
  mkdirSync(root);
  mkdirSync(home);
  // Random bytes don't get smaller.
  writeFileSync(join(home, '.gitconfig'), '[core]\n\tcompression = 0\n');
  const authority = createTestAuthority();
  const server = await startGitServer({ leaf: authority.leafFor(['git.test']), root, login: `user:${VALUE}` });
  const keyveil = await startTestDaemon({ authority, overrides: { 'git.test': server.port } });
  const vaultId = await keyveil.createVault();
  const { placeholder } = await keyveil.createCredential(vaultId, {
    secret_name: 'GIT_TOKEN',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['git.test'] },
    injection_location: injection,
  });
  const { variables } = await keyveil.createSession({ vault_ids: [vaultId], ca_directory: directory });
  const bundle = await keyveil.admin('GET', '/v1/ca-bundle.pem');
  writeFileSync(join(directory, 'ca-bundle.pem'), bundle.body['text'] as string);
  t.teardown(async () => {
    await keyveil.close();
    await server.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const env = {
    PATH: process.env['PATH'],
    HOME: home,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_TERMINAL_PROMPT: '0',
    // Over HTTP/2 a push of libcurl 7.88 stalls now and then, at any server.
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'http.version',
    GIT_CONFIG_VALUE_0: 'HTTP/1.1',
    GIT_AUTHOR_NAME: 'A',
    GIT_AUTHOR_EMAIL: 'a@git.test',
    GIT_COMMITTER_NAME: 'A',
    GIT_COMMITTER_EMAIL: 'a@git.test',
    ...variables,
  };
  const git: Scene['git'] = async (args, { cwd = directory, input = '' } = {}) => {
    const running = run('git', [...args], { cwd, env, timeout: RUN_TIMEOUT_MS });
    // A git that reads nothing is gone before this is written.
    running.child.stdin?.on('error', () => undefined).end(input);
    const { stdout, stderr } = await running;
    const said = stdout + stderr;
    if (said.includes(VALUE)) throw new Error('git printed the value');
    return said;
  };
  await git(['init', '-q', '--bare', '-b', 'main', join(root, 'repo.git')]);
  await git(['-C', join(root, 'repo.git'), 'config', 'http.receivepack', 'true']);
  await git(['-C', join(root, 'repo.git'), 'config', 'core.compression', '0']);
  return { keyveil, server, placeholder, directory, git };
}

/** Commits a file of random bytes; gives its hash. */
async function commitFile(
  scene: Scene,
  clone: string,
  { name, bytes }: { name: string; bytes: number },
): Promise<string> {
  const content = randomBytes(bytes);
  writeFileSync(join(clone, name), content);
  await scene.git(['add', name], { cwd: clone });
  await scene.git(['commit', '-q', '-m', `Add ${name}`], { cwd: clone });
  return createHash('sha256').update(content).digest('hex');
}

const hashOf = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

/** The ways in which a sandbox gives git its password, as options and as the remote's URL. */
function loginsOf({ placeholder, directory }: Scene): { name: string; options: string[]; url: string }[] {
  const plain = 'https://git.test/repo.git';
  const store = join(directory, 'credentials');
  writeFileSync(store, `https://user:${placeholder}@git.test\n`);
  const basic = Buffer.from(`user:${placeholder}`).toString('base64');
  return [
    { name: 'in the URL', options: [], url: `https://user:${placeholder}@git.test/repo.git` },
    { name: 'from the credential helper', options: ['-c', `credential.helper=store --file=${store}`], url: plain },
    { name: 'in http.extraHeader', options: ['-c', `http.extraHeader=Authorization: Basic ${basic}`], url: plain },
  ];
}

test('clone and push log in with the placeholder', { skip: whyNot() }, async (t) => {
  const scene = await openScene(t);
  const { git, server, directory, keyveil } = scene;
  for (const [index, { name, options, url }] of loginsOf(scene).entries()) {
    server.requests.length = 0;
    const clone = join(directory, `clone-${index}`);
    await git([...options, 'clone', '-q', url, clone]);
    const hash = await commitFile(scene, clone, { name: `file-${index}`, bytes: 3000 });
    await git([...options, 'push', '-q', 'origin', 'HEAD:main'], { cwd: clone });
    const again = join(directory, `again-${index}`);
    await git([...options, 'clone', '-q', url, again]);
    t.equal(hashOf(join(again, `file-${index}`)), hash, `${name}: what was pushed comes back`);
    t.ok(
      server.requests.some(({ authorization }) => authorization?.startsWith('Basic ')),
      name,
    );
    t.notMatch(readFileSync(join(clone, '.git', 'config'), 'utf8'), VALUE);
  }
  const { body } = await keyveil.admin('GET', '/v1/audit_events?limit=100');
  const swaps = (body['data'] as { swaps?: { location: string }[] }[]).flatMap((event) => event.swaps ?? []);
  t.ok(swaps.length > 0 && swaps.every(({ location }) => location === 'basic'), 'each swap was in a Basic login');
});

test('a wrong placeholder gives no access', { skip: whyNot() }, async (t) => {
  const { git, directory } = await openScene(t);
  const url = `https://user:kvph_${'0'.repeat(32)}@git.test/repo.git`;
  await t.rejects(git(['clone', '-q', url, join(directory, 'clone')]), /Authentication failed|could not read/);
});

/** Commits on as many branches, in the language of `git fast-import`. */
function manyBranches(count: number): string {
  const commits = Array.from({ length: count }, (_, number) => {
    const message = `commit ${number}`;
    const from = number === 0 ? 'from refs/heads/main^0\n' : `from refs/heads/branch-${number - 1}\n`;
    const author = 'committer A <a@git.test> 1700000000 +0000';
    return `commit refs/heads/branch-${number}\n${author}\ndata ${message.length}\n${message}\n${from}\n`;
  });
  return commits.join('');
}

test('compressed requests and a push of 50 MiB, with body on', { skip: whyNot() }, async (t) => {
  const scene = await openScene(t, { header: true, body: true });
  const { git, server, placeholder, directory } = scene;
  const url = `https://user:${placeholder}@git.test/repo.git`;
  const clone = join(directory, 'clone');
  await git(['clone', '-q', url, clone]);
  const hash = await commitFile(scene, clone, { name: 'large', bytes: PUSH_BYTES });
  await git(['push', '-q', 'origin', 'HEAD:main'], { cwd: clone });
  const push = server.requests.find(({ bytes }) => bytes > PUSH_BYTES);
  t.ok(push, `${push?.bytes} bytes were pushed in one request`);

  // Many refs to talk about make a fetch's request long enough for git to compress it.
  await git(['fast-import', '--quiet'], { cwd: clone, input: manyBranches(60) });
  await git(['push', '-q', 'origin', '--all'], { cwd: clone });
  server.requests.length = 0;
  const again = join(directory, 'again');
  await git(['-c', 'protocol.version=0', 'clone', '-q', url, again]);
  t.ok(
    server.requests.some(({ contentEncoding }) => contentEncoding === 'gzip'),
    'a request came in gzip',
  );
  t.equal(hashOf(join(again, 'large')), hash);
  t.equal((await git(['rev-parse', 'origin/branch-59'], { cwd: again })).length, 41);
});
