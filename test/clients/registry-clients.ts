// git, npm and pip against a repository and two package registries that want a login.
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { answerJson, type FullReceived, type FullResponse } from '../support/full-upstream.ts';
import { expect, probeProgram, type Client } from './client.ts';
import { PYTHON } from './script-clients.ts';
import type { Scene, Site, SiteRoute } from './scene.ts';

const REGISTRY = 'https://registry.test';
const TARBALL = 'npm-sample.tgz';
const WHEEL = 'keyveil_sample-1.0.0-py3-none-any.whl';

const MAKE_TIMEOUT_MS = 60_000;

/** Tools run outside the sandbox, to make what is served. */
function make(file: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(file, args, { cwd, encoding: 'utf8', timeout: MAKE_TIMEOUT_MS });
  expect(status === 0, `${[file, ...args].join(' ')} failed:\n${stdout}${stderr}`);
  return stdout.trim();
}

function end(response: FullResponse, body: Buffer | string): true {
  (response as NodeJS.WritableStream).end(body);
  return true;
}

/** The login of a request must be the real secret: as a password, or as a bearer token. */
function isLoggedIn(request: FullReceived, site: Site): boolean {
  const [scheme, value = ''] = String(request.headers['authorization']).split(/ (.*)/);
  const secret = site.secret('API_KEY');
  if (scheme === 'Bearer') return value === secret;
  return Buffer.from(value, 'base64').toString() === `user:${secret}`;
}

function askForLogin(response: FullResponse): true {
  response.writeHead(401, { 'www-authenticate': 'Basic realm="registry"', 'content-length': 0 });
  return end(response, '');
}

// ---- git

/** Runs git's own CGI program (RFC 3875) and passes its answer on. */
async function runGitBackend(request: FullReceived, response: FullResponse, site: Site): Promise<true> {
  const url = new URL(request.url, 'https://git.test');
  const header = (name: string): string => String(request.headers[name] ?? '');
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: join(site.directory, 'git'),
      GIT_HTTP_EXPORT_ALL: '1',
      REMOTE_USER: 'user',
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: header('content-type'),
      CONTENT_LENGTH: String(request.body.length),
      HTTP_CONTENT_ENCODING: header('content-encoding'),
      GIT_PROTOCOL: header('git-protocol'),
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(request.body);
  const chunks: Buffer[] = [];
  for await (const chunk of child.stdout) chunks.push(chunk as Buffer);
  const answer = Buffer.concat(chunks);
  const split = answer.indexOf('\r\n\r\n');
  const fields = answer.toString('latin1', 0, split).split('\r\n');
  const headers = Object.fromEntries(fields.map((field) => field.split(/: (.*)/).slice(0, 2) as [string, string]));
  response.writeHead(Number.parseInt(headers['Status'] ?? '200', 10), headers);
  return end(response, answer.subarray(split + 4));
}

function prepareGit({ directory, upload }: Scene): void {
  const bare = join(directory, 'git/repo.git');
  make('git', ['init', '-q', '--bare', '-b', 'main', bare], directory);
  make('git', ['-C', bare, 'config', 'http.receivepack', 'true'], directory);
  const seed = join(directory, 'seed');
  make('git', ['clone', '-q', bare, seed], directory);
  writeFileSync(join(seed, 'file.bin'), readFileSync(upload.path));
  const who = ['-c', 'user.name=t', '-c', 'user.email=t@example.test'];
  make('git', ['-C', seed, 'checkout', '-q', '-B', 'main'], directory);
  make('git', ['-C', seed, 'add', '.'], directory);
  make('git', ['-C', seed, ...who, 'commit', '-q', '-m', 'Seed'], directory);
  make('git', ['-C', seed, 'push', '-q', bare, 'main'], directory);
}

const gitUrl = (scene: Scene): string => `https://user:${scene.placeholder('API_KEY')}@git.test/repo.git`;

async function cloneTo(scene: Scene, folder: string): Promise<string> {
  const clone = join(scene.directory, folder);
  await scene.run({ file: 'git', args: ['clone', '-q', gitUrl(scene), clone] });
  return clone;
}

/**
 * A push of more than a few KiB with libcurl 7.88, Debian 12's, stalls now and then over HTTP/2 before the first byte of
 * its body, at a server without any proxy too.
 */
const PUSH_BY_HTTP1 = {
  GIT_CONFIG_COUNT: '1',
  GIT_CONFIG_KEY_0: 'http.version',
  GIT_CONFIG_VALUE_0: 'HTTP/1.1',
} as const;

export const git: Client = {
  name: 'git',
  needs: 'Debian 12: a push wants `http.version=HTTP/1.1`',
  probe: () => probeProgram('git', ['--version'], /version (\S+)/),
  prepare: async (scene) => prepareGit(scene),
  checks: {
    async header(scene) {
      const clone = await cloneTo(scene, 'clone');
      const hash = createHash('sha256')
        .update(readFileSync(join(clone, 'file.bin')))
        .digest('hex');
      expect(hash === scene.upload.sha256, 'The clone has another file.');
    },
    async upload(scene) {
      const clone = await cloneTo(scene, 'work');
      writeFileSync(join(clone, 'more.bin'), randomBytes(scene.upload.bytes));
      make('git', ['-C', clone, 'add', '.'], clone);
      make(
        'git',
        ['-C', clone, '-c', 'user.name=t', '-c', 'user.email=t@example.test', 'commit', '-qm', 'More'],
        clone,
      );
      const push = ['-C', clone, 'push', '-q', gitUrl(scene), 'HEAD:main'];
      await scene.run({ file: 'git', args: push, env: PUSH_BY_HTTP1 });
      const pushed = make('git', ['-C', join(scene.directory, 'git/repo.git'), 'rev-parse', 'main'], clone);
      expect(pushed === make('git', ['-C', clone, 'rev-parse', 'HEAD'], clone), 'The push did not arrive.');
      make('git', ['-C', join(scene.directory, 'git/repo.git'), 'fsck', '--full'], clone);
    },
  },
};

// ---- npm

function integrityOf(bytes: Buffer): string {
  return `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
}

function describePackage(site: Site): unknown {
  const name = 'keyveil-sample';
  const tarball = `${REGISTRY}/npm/${name}/-/${name}-1.0.0.tgz`;
  const integrity = integrityOf(readFileSync(join(site.directory, TARBALL)));
  const versions = { '1.0.0': { name, version: '1.0.0', dist: { tarball, integrity } } };
  return { name, 'dist-tags': { latest: '1.0.0' }, versions };
}

interface Publication {
  readonly versions: Readonly<Record<string, { readonly dist: { readonly integrity: string } }>>;
  readonly _attachments: Readonly<Record<string, { readonly data: string }>>;
}

/** A published package must have the hash that its own description states. */
function takePublication(request: FullReceived, response: FullResponse): true {
  const publication = JSON.parse(request.body.toString()) as Publication;
  const [version] = Object.values(publication.versions);
  const [attachment] = Object.values(publication._attachments);
  const bytes = Buffer.from(attachment?.data ?? '', 'base64');
  const isWhole = integrityOf(bytes) === version?.dist.integrity;
  answerJson(response, isWhole ? { success: true } : { error: 'The hash is another.' }, isWhole ? 200 : 400);
  return true;
}

function prepareNpm({ directory, upload }: Scene): void {
  const manifest = (name: string): string => JSON.stringify({ name, version: '1.0.0', main: 'index.js' });
  const folder = join(directory, 'package');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), manifest('keyveil-sample'));
  writeFileSync(join(folder, 'index.js'), 'module.exports = "sample";\n');
  make('tar', ['czf', join(directory, TARBALL), 'package'], directory);
  const published = join(directory, 'published');
  mkdirSync(published, { recursive: true });
  writeFileSync(join(published, 'package.json'), manifest('keyveil-published'));
  writeFileSync(join(published, 'large.bin'), readFileSync(upload.path));
  writeFileSync(
    join(directory, 'npmrc'),
    `registry=${REGISTRY}/npm/\n//registry.test/npm/:_authToken=\${API_KEY}\nupdate-notifier=false\naudit=false\nfund=false\n`,
  );
}

export const npm: Client = {
  name: 'npm',
  needs: '',
  probe: () => probeProgram('npm', ['--version'], /^(\S+)/),
  prepare: async (scene) => prepareNpm(scene),
  checks: {
    async header(scene) {
      const prefix = join(scene.directory, 'npm-install');
      mkdirSync(prefix, { recursive: true });
      const env = { NPM_CONFIG_USERCONFIG: join(scene.directory, 'npmrc') };
      await scene.run({ file: 'npm', args: ['install', '--prefix', prefix, 'keyveil-sample'], env, cwd: prefix });
      expect(existsSync(join(prefix, 'node_modules/keyveil-sample/index.js')), 'The package is not installed.');
    },
    async upload(scene) {
      const env = { NPM_CONFIG_USERCONFIG: join(scene.directory, 'npmrc') };
      scene.upstream.received.length = 0;
      await scene.run({ file: 'npm', args: ['publish'], env, cwd: join(scene.directory, 'published') });
      const puts = scene.upstream.received.filter(({ method }) => method === 'PUT');
      expect(puts.length === 1 && (puts[0]?.body.length ?? 0) > scene.upload.bytes, 'The publication did not arrive.');
    },
  },
};

// ---- pip

const WHEEL_MAKER = `
import sys, zipfile
info = "keyveil_sample-1.0.0.dist-info/"
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("keyveil_sample.py", "VALUE = 1\\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: keyveil-sample\\nVersion: 1.0.0\\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "RECORD", "")
`;

export const pip: Client = {
  name: 'pip',
  needs: '',
  probe: () => probeProgram(PYTHON, ['-m', 'pip', '--version'], /^pip (\S+)/),
  prepare: async ({ directory }) => {
    make(PYTHON, ['-c', WHEEL_MAKER, join(directory, WHEEL)], directory);
  },
  checks: {
    async header(scene) {
      const target = join(scene.directory, 'pip-target');
      rmSync(target, { recursive: true, force: true });
      const index = `https://user:${scene.placeholder('API_KEY')}@registry.test/pypi/simple/`;
      const args = ['-m', 'pip', 'install', '--quiet', '--no-cache-dir', '--disable-pip-version-check'];
      await scene.run({ file: PYTHON, args: [...args, '--index-url', index, '--target', target, 'keyveil-sample'] });
      expect(existsSync(join(target, 'keyveil_sample.py')), 'The package is not installed.');
    },
  },
};

/** Serves the three; without the real secret there is a 401. */
export const registryRoute: SiteRoute = async (request, response, site) => {
  const path = request.url.replace(/\?.*/, '');
  if (!/^\/(?:repo\.git|npm|pypi)\//.test(path)) return false;
  if (!isLoggedIn(request, site)) return askForLogin(response);
  if (path.startsWith('/repo.git/')) return runGitBackend(request, response, site);
  const file = (name: string): true => end(response, readFileSync(join(site.directory, name)));
  if (request.method === 'PUT') return takePublication(request, response);
  switch (path) {
    case '/npm/keyveil-sample':
      answerJson(response, describePackage(site));
      return true;
    case '/npm/keyveil-sample/-/keyveil-sample-1.0.0.tgz':
      return file(TARBALL);
    case '/pypi/simple/keyveil-sample/':
      response.writeHead(200, { 'content-type': 'text/html' });
      return end(response, `<!DOCTYPE html><a href="/pypi/files/${WHEEL}">${WHEEL}</a>`);
    case `/pypi/files/${WHEEL}`:
      return file(WHEEL);
    default:
      answerJson(response, { error: 'There is nothing here.' }, 404);
      return true;
  }
};
