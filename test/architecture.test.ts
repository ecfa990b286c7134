// Checks the rules of the source's structure: which folder may import which, who alone may touch what, and the file style.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, posix } from 'node:path';
import { test } from 'tap';

const root = join(import.meta.dirname, '..');
const folders = ['model', 'proxy', 'ca', 'store', 'admin-api', 'daemon', 'cli'];

/** Folder → the folders that it may import besides itself. */
const arrows: Record<string, readonly string[]> = {
  cli: ['daemon', 'model'],
  daemon: ['proxy', 'ca', 'store', 'admin-api', 'model'],
  proxy: ['model'],
  ca: ['model'],
  store: ['model'],
  'admin-api': ['model'],
  model: [],
};
/** Inside proxy/, the two pure halves: folder → the path prefixes that it may import. */
const pureHalves: Record<string, readonly string[]> = {
  'proxy/swap/': ['model/', 'proxy/swap/', 'proxy/exchange.ts'],
  'proxy/veil/': ['model/', 'proxy/veil/', 'proxy/swap/', 'proxy/exchange.ts'],
};
const modelBuiltins = new Set(['node:crypto', 'node:util', 'node:url', 'node:buffer']);
const soleImporters: Record<string, string> = {
  'better-sqlite3': 'store/database.ts',
  'node-forge': 'ca/x509.ts',
  fastify: 'admin-api/server.ts',
};

interface Import {
  readonly specifier: string;
  readonly typeOnly: boolean;
  /** The text between `import` and `from`. */
  readonly clause: string;
}
interface Source {
  readonly path: string;
  readonly text: string;
  /** The text without comments and string contents, for looking at code alone. */
  readonly code: string;
  readonly imports: readonly Import[];
}

const sources = folders.filter((folder) => existsSync(join(root, folder))).flatMap(readFolder);

function readFolder(folder: string): Source[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readSource(posix.join(folder, name)))
    .sort((a, b) => a.path.localeCompare(b.path));
}

function readSource(path: string): Source {
  const text = readFileSync(join(root, path), 'utf8');
  return { path, text, code: codeOf(text), imports: importsOf(text) };
}

function codeOf(text: string): string {
  return text.replaceAll(/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|\/\*[\s\S]*?\*\/|\/\/.*/g, (match) =>
    match.startsWith('/') ? '' : "''",
  );
}

function importsOf(text: string): Import[] {
  const statements = text.matchAll(/^(?:import|export)\s+(?:([^'";]*?)\s*from\s*)?'([^']+)'/gm);
  const calls = text.matchAll(/\bimport\(\s*'([^']+)'/g);
  return [
    ...[...statements].map(([, clause = '', specifier = '']) => ({ specifier, clause, typeOnly: isTypeOnly(clause) })),
    ...[...calls].map(([, specifier = '']) => ({ specifier, clause: '', typeOnly: false })),
  ];
}

function isTypeOnly(clause: string): boolean {
  if (clause.startsWith('type ')) return true;
  const named = /^\{([\s\S]*)\}$/.exec(clause)?.[1]?.split(',') ?? [];
  const names = named.map((name) => name.trim()).filter((name) => name !== '');
  return names.length > 0 && names.every((name) => name.startsWith('type '));
}

/** The product files that a file imports, as paths from the root. */
function targetsOf(source: Source): string[] {
  return source.imports
    .filter(({ specifier }) => specifier.startsWith('.'))
    .map(({ specifier }) => posix.join(dirname(source.path), specifier));
}

function packageOf(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

function topFolder(path: string): string {
  return path.split('/', 1)[0] ?? '';
}

/** Paths whose code holds the pattern although they are not its home. */
function strayUses(pattern: RegExp, isHome: (path: string) => boolean): string[] {
  return sources.filter(({ path, code }) => pattern.test(code) && !isHome(path)).map(({ path }) => path);
}

test('the import lines that this test reads are understood', (t) => {
  t.equal(isTypeOnly('type { A }'), true);
  t.equal(isTypeOnly('{ type A, type B }'), true);
  t.equal(isTypeOnly('{ type A, b }'), false);
  t.equal(isTypeOnly(''), false);
  const text =
    "import a, {\n  b,\n} from './a.ts';\nimport './c.ts';\nexport type { D } from './d.ts';\nimport('./e.ts');";
  t.strictSame(
    importsOf(text).map(({ specifier, typeOnly }) => [specifier, typeOnly]),
    [
      ['./a.ts', false],
      ['./c.ts', false],
      ['./d.ts', true],
      ['./e.ts', false],
    ],
  );
  t.equal(packageOf('@fastify/swagger/lib'), '@fastify/swagger');
  t.equal(codeOf("a('process.exit'); // console.log\n/* process.env */b"), "a(''); \nb");
  t.end();
});

test('folders import along the arrows cli → daemon → {proxy, ca, store, admin-api} → model only', (t) => {
  const strays = sources.flatMap((source) => {
    const allowed = [topFolder(source.path), ...(arrows[topFolder(source.path)] ?? [])];
    return targetsOf(source)
      .filter((target) => !allowed.includes(topFolder(target)))
      .map((target) => `${source.path} → ${target}`);
  });
  t.strictSame(strays, []);
  t.end();
});

test('proxy/swap and proxy/veil do not import the rest of the proxy', (t) => {
  const strays = Object.entries(pureHalves).flatMap(([half, allowed]) =>
    sources
      .filter(({ path }) => path.startsWith(half))
      .flatMap((source) => targetsOf(source).map((target) => ({ path: source.path, target })))
      .filter(({ target }) => !allowed.some((prefix) => target.startsWith(prefix)))
      .map(({ path, target }) => `${path} → ${target}`),
  );
  t.strictSame(strays, []);
  t.end();
});

test('relative imports name a .ts file that exists', (t) => {
  const strays = sources.flatMap((source) =>
    targetsOf(source)
      .filter((target) => !target.endsWith('.ts') || !existsSync(join(root, target)))
      .map((target) => `${source.path} → ${target}`),
  );
  t.strictSame(strays, []);
  t.end();
});

test('the model imports no package and does no IO', (t) => {
  const isPure = ({ specifier, clause, typeOnly }: Import): boolean => {
    if (specifier.startsWith('.') || (typeOnly && specifier.startsWith('node:'))) return true;
    if (specifier === 'node:net') return /^\{\s*(isIP|BlockList)\w*(,\s*(isIP|BlockList)\w*)*,?\s*\}$/.test(clause);
    return modelBuiltins.has(specifier);
  };
  const strays = sources
    .filter(({ path }) => path.startsWith('model/'))
    .flatMap(({ path, imports }) =>
      imports.filter((line) => !isPure(line)).map(({ specifier }) => `${path} → ${specifier}`),
    );
  t.strictSame(strays, []);
  t.end();
});

test('better-sqlite3, node-forge and fastify have one importer each', (t) => {
  const strays = sources.flatMap(({ path, imports }) =>
    imports
      .filter(({ specifier, typeOnly }) => {
        const home = soleImporters[packageOf(specifier)];
        return home !== undefined && path !== home && !(typeOnly && topFolder(path) === topFolder(home));
      })
      .map(({ specifier }) => `${path} → ${specifier}`),
  );
  t.strictSame(strays, []);
  t.end();
});

test('there is no import cycle', (t) => {
  const graph = new Map(sources.map((source) => [source.path, targetsOf(source)]));
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) cycles.push([...trail.slice(trail.indexOf(path)), path].join(' → '));
    else if (!done.has(path)) for (const target of graph.get(path) ?? []) visit(target, [...trail, path]);
    done.add(path);
  };
  for (const path of graph.keys()) visit(path, []);
  t.strictSame(cycles, []);
  t.end();
});

test('console, process.env and process.exit stay in their homes', (t) => {
  const isCli = (path: string): boolean => path.startsWith('cli/');
  t.strictSame(strayUses(/\bconsole\s*\./, isCli), [], 'console: only cli/');
  t.strictSame(strayUses(/\bprocess\s*\.\s*exit\b(?!Code)/, isCli), [], 'process.exit: only cli/');
  t.strictSame(
    strayUses(/\bprocess\s*\.\s*env\b/, (path) => path === 'daemon/config.ts'),
    [],
    'process.env: only daemon/config.ts',
  );
  t.end();
});

test('files are named in kebab case, none is an index, and none exports a default', (t) => {
  const names = sources.map(({ path }) => path);
  t.strictSame(
    names.filter((path) => !path.split('/').every((part) => /^[a-z0-9]+(-[a-z0-9]+)*(\.ts)?$/.test(part))),
    [],
    'kebab case',
  );
  t.strictSame(
    names.filter((path) => basename(path) === 'index.ts'),
    [],
    'no index.ts',
  );
  t.strictSame(
    strayUses(/\bexport\s+default\b|\bas\s+default\b/, () => false),
    [],
    'no default export',
  );
  t.end();
});

test('each file opens with a sentence of purpose and has at most 300 lines', (t) => {
  const opening = /^(?:#!.*\n)?(?:\/\/ \S.*|\/\*\*?\s+(?:\* )?\S)/;
  t.strictSame(
    sources.filter(({ text }) => !opening.test(text)).map(({ path }) => path),
    [],
    'purpose',
  );
  t.strictSame(
    sources.filter(({ text }) => text.split('\n').length > 301).map(({ path }) => path),
    [],
    'length',
  );
  t.end();
});
