// Keyveil as it is run: the built program in a process of its own, with a session of ten credentials, everything on.
import { mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { cpuSecondsOf, startProgram } from './processes.ts';
import { proxyOf, type Login, type ProxyUnderTest } from './proxy.ts';
import { freePort, SECRET_VALUE, type Scene } from './scene.ts';

const ROOT = join(import.meta.dirname, '../..');
const HOSTS = join(ROOT, 'bench/peers/hosts.mjs');
const ADMIN_TOKEN = 'bench-admin-token-0123456789abcdef0123456789';
const CREDENTIALS = 10;
/** As `cli/keyveil.sh` starts the runtime. */
const RUNTIME_OPTIONS = ['--max-semi-space-size=32'];

export interface KeyveilOptions {
  readonly name?: string;
  readonly workers?: number;
  /** Data that is there already; else a new folder is used. */
  readonly dataDir?: string;
  /** More modules to load before the program. */
  readonly imports?: readonly string[];
  readonly nodeOptions?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Whether a session is made at once; its credentials are swapped in headers, and in bodies if asked. */
  readonly swapsBodies?: boolean;
}

export interface Keyveil extends ProxyUnderTest {
  readonly dataDir: string;
  readonly startedInMs: number;
  /** CPU time of all threads until then. */
  readonly startedWithCpuMs: number;
  readonly login: Login;
  /** Calls the admin API; rejects unless it answers with a 2xx. */
  call<T>(path: string, body?: unknown): Promise<T>;
  /** Makes another session; of the same vault unless others are named. */
  openSession(vaultIds?: readonly string[]): Promise<Login>;
}

type Call = Keyveil['call'];

interface Session {
  readonly startup_context: { readonly environment_variables: Readonly<Record<string, string>> };
}

function adminCall(port: number): Call {
  return async <T>(path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'x-api-key': ADMIN_TOKEN, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as T;
  };
}

async function createVault(call: Call, swapsBodies: boolean): Promise<string> {
  const { id } = await call<{ id: string }>('/v1/vaults', { display_name: 'bench' });
  for (let index = 0; index < CREDENTIALS; index += 1) {
    await call(`/v1/vaults/${id}/credentials`, {
      auth: {
        type: 'environment_variable',
        secret_name: `BENCH_KEY_${index}`,
        secret_value: index === 0 ? SECRET_VALUE : `${SECRET_VALUE}-${index}`,
        networking: { type: 'limited', allowed_hosts: ['*.bench.test'] },
        injection_location: { header: true, body: swapsBodies },
      },
    });
  }
  return id;
}

async function createSession(call: Call, vaultIds: readonly string[]): Promise<{ login: Login; placeholder: string }> {
  const { startup_context: context } = await call<Session>('/v1/sessions', { vault_ids: vaultIds });
  const { HTTPS_PROXY: url, BENCH_KEY_0: placeholder = '' } = context.environment_variables;
  const { username, password } = new URL(url as string);
  return { login: { user: username, password }, placeholder };
}

/** Starts `dist/cli/main.js serve` (or the build that BENCH_KEYVEIL names) and resolves when it is ready. */
export async function startKeyveil(scene: Scene, options: KeyveilOptions = {}): Promise<Keyveil> {
  const [port, adminPort] = [await freePort(), await freePort()];
  const dataDir = options.dataDir ?? join(mkdtempSync(join(scene.folder, 'keyveil-')), 'data');
  const main = process.env['BENCH_KEYVEIL'] ?? join(ROOT, 'dist/cli/main.js');
  const imports = [HOSTS, ...(options.imports ?? [])].map((path) => `--import=${path}`);
  const startedAt = performance.now();
  const program = await startProgram(
    [process.execPath, ...RUNTIME_OPTIONS, ...imports, ...(options.nodeOptions ?? []), main, 'serve'],
    {
      env: {
        KEYVEIL_DATA_DIR: dataDir,
        KEYVEIL_PROXY_LISTEN: `127.0.0.1:${port}`,
        KEYVEIL_ADMIN_LISTEN: `127.0.0.1:${adminPort}`,
        KEYVEIL_ADMIN_TOKEN: ADMIN_TOKEN,
        KEYVEIL_UPSTREAM_CA_FILE: scene.caPath,
        KEYVEIL_ALLOWED_PRIVATE_CIDRS: '127.0.0.0/8',
        KEYVEIL_ALLOWED_PORTS: '*',
        KEYVEIL_WORKERS: String(options.workers ?? 1),
        ...options.env,
      },
      readyLine: /"msg":"Ready"/,
    },
  );
  const startedInMs = performance.now() - startedAt;
  const startedWithCpuMs = cpuSecondsOf([program.child.pid as number]) * 1000;
  const call = adminCall(adminPort);
  const vaultId = await createVault(call, options.swapsBodies === true);
  const { login, placeholder } = await createSession(call, [vaultId]);
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const authorization = `Bearer ${placeholder}`;
  return {
    ...proxyOf(program, { name: options.name ?? 'keyveil', version, port, login, authorization }),
    login,
    dataDir,
    startedInMs,
    startedWithCpuMs,
    call,
    openSession: async (vaultIds = [vaultId]) => (await createSession(call, vaultIds)).login,
  };
}
