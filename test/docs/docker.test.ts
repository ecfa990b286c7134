// The Docker build: what it needs reaches it, what holds secrets does not, and signals reach the daemon.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'tap';
import { createDockerIgnore } from '../support/docker-ignore.ts';

const root = join(import.meta.dirname, '../..');
const read = (name: string): string => readFileSync(join(root, name), 'utf8');
const isIgnored = createDockerIgnore(read('.dockerignore'));
const dockerfile = read('Dockerfile');

function filesBelow(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
}

/** What stages copy from the build's folder, but for the whole of it. */
function copiedFiles(): string[] {
  const lines = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].map((match) => match[1] as string);
  return lines.flatMap((line) => line.split(' ')).filter((name) => name !== '.');
}

void test('patterns are read as Docker reads them', (t) => {
  const cases: [string, string, boolean][] = [
    ['dist', 'dist/cli/main.js', true],
    ['dist', 'cli/dist', false],
    ['/dist/', 'dist', true],
    ['*.log', 'a.log', true],
    ['*.log', 'b/a.log', false],
    ['**/*.log', 'a.log', true],
    ['**/*.log', 'b/c/a.log', true],
    ['**/*.log', 'a.logs', false],
    ['a/**', 'a/b/c', true],
    ['a/**', 'ab', false],
    ['a/**/c', 'a/c', true],
    ['a/**/c', 'a/b/b/c', true],
    ['?.txt', 'a.txt', true],
    ['?.txt', 'ab.txt', false],
    ['[ab].txt', 'b.txt', true],
    ['[ab].txt', 'c.txt', false],
    ['*.md\n!README.md', 'README.md', false],
    ['!README.md\n*.md', 'README.md', true],
    ['a\n!a/b', 'a/b/c', false],
    ['# a\n\n', 'a', false],
    ['a.b', 'a+b', false],
  ];
  for (const [patterns, path, expected] of cases) {
    t.equal(createDockerIgnore(patterns)(path), expected, `${JSON.stringify(patterns)} ${path}`);
  }
  t.end();
});

void test('no file that the build needs is kept away from it', (t) => {
  const { include } = JSON.parse(read('tsconfig.build.json')) as { include: string[] };
  const configurations = readdirSync(root).filter((name) => /^tsconfig.*\.json$/.test(name));
  const named = [...copiedFiles(), 'package.json', 'package-lock.json', '.npmrc', 'scripts/build.mjs'];
  const sources = [...include, 'migrations'].flatMap(filesBelow);
  t.ok(sources.includes('daemon/admin-token.ts') && sources.length > 150, 'the sources were found');
  t.same(
    [...named, ...configurations, ...sources].filter((path) => !existsSync(join(root, path)) || isIgnored(path)),
    [],
  );
  t.end();
});

void test('what may hold a secret never reaches the build', (t) => {
  const names = ['master.key', 'master.key.next', 'admin-token', 'admin-token.txt', 'keyveil.db', 'audit.db-wal'];
  const others = ['.env', '.env.local', 'prod.dotenv', 'server.pem', 'server.key', 'daemon.log', 'keyveil.tgz'];
  const folders = ['', 'data/', 'daemon/', 'copy/of/data/'];
  const paths = folders.flatMap((folder) => [...names, ...others].map((name) => folder + name));
  const generated = [
    'node_modules/zod/package.json',
    'dist/cli/main.js',
    '.git/config',
    'data/spool/x',
    'data/admin-token.ts',
  ];
  t.same(
    [...paths, ...generated].filter((path) => !isIgnored(path)),
    [],
  );
  t.end();
});

void test('the container runs the daemon itself, not a shell that would keep its signals', (t) => {
  const entry = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(dockerfile)?.[1] ?? '') as string[];
  t.equal(entry[0], 'node');
  t.same(JSON.parse(/^CMD (.*)$/m.exec(dockerfile)?.[1] ?? ''), ['serve']);
  t.match(dockerfile, /^STOPSIGNAL SIGTERM$/m);
  t.end();
});
