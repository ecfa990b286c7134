// What every client of the matrix meets: a daemon, one upstream for all hosts, and a sandbox's variables and CA files.
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { startTestDaemon, type TestDaemon } from '../support/daemon.ts';
import {
  startFullUpstream,
  type EventGate,
  type FullReceived,
  type FullResponse,
  type FullUpstream,
} from '../support/full-upstream.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const RUN_TIMEOUT_MS = 90_000;
const UPLOAD_BYTES = 3 * 1024 * 1024 + 17;
const HOSTS = ['api.test', 'git.test', 'registry.test'];

/** Each has what JSON, a form and percent-encoding would have to escape. */
const SECRETS = {
  API_KEY: 'sk-real"&%7+value-0001',
  ANTHROPIC_API_KEY: 'sk-ant-real-value-0002',
  OPENAI_API_KEY: 'sk-openai-real-value-0003',
} as const;

export type SecretName = keyof typeof SECRETS;

/** What a route of the upstream may use. */
export interface Site {
  readonly directory: string;
  readonly gate: EventGate;
  secret(name: SecretName): string;
}

/** Answers a request and gives true, or leaves it. */
export type SiteRoute = (request: FullReceived, response: FullResponse, site: Site) => Promise<boolean>;

/** A program to run; `env` is what it needs beyond the session's variables. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Scene {
  readonly keyveil: TestDaemon;
  readonly upstream: FullUpstream;
  readonly variables: Readonly<Record<string, string>>;
  readonly directory: string;
  /** A file of random bytes, and its SHA-256 in hex. */
  readonly upload: { readonly path: string; readonly sha256: string; readonly bytes: number };
  placeholder(name: SecretName): string;
  secret(name: SecretName): string;
  /** Where the proxy listens. */
  readonly proxy: URL;
  /** The environment of each program, exactly. */
  environment(extra?: Readonly<Record<string, string>>): Record<string, string>;
  /**
   * Runs a program to its end; rejects unless it ends with 0 in time, and if a secret is in what it printed. Each line
   * `… event N …` that it prints lets event N + 1 go.
   */
  run(command: Command): Promise<Outcome>;
  close(): Promise<void>;
}

async function runProgram(command: Command, env: Record<string, string>, onLine: (line: string) => void) {
  const child = spawn(command.file, command.args, {
    env,
    ...(command.cwd === undefined ? {} : { cwd: command.cwd }),
    stdio: ['ignore', 'pipe', 'pipe'],
    // A group of its own: what a program has started holds its output open, and ends with it.
    detached: true,
  });
  const timer = setTimeout(() => {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  }, RUN_TIMEOUT_MS);
  const lines: string[] = [];
  const errors: Buffer[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines.push(line);
    onLine(line);
  });
  child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
  return new Promise<Outcome>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) =>
      resolve({ code, stdout: lines.join('\n'), stderr: Buffer.concat(errors).toString() }),
    );
  }).finally(() => clearTimeout(timer));
}

/** Starts everything; `route` serves what is not the upstream's own. */
export async function openScene(options: { readonly route?: SiteRoute } = {}): Promise<Scene> {
  const directory = mkdtempSync(join(tmpdir(), 'kv-clients-'));
  const home = join(directory, 'home');
  mkdirSync(home);
  const authority = createTestAuthority();
  const secret = (name: SecretName): string => SECRETS[name];
  const { route } = options;
  const upstream: FullUpstream = await startFullUpstream({
    leaf: authority.leafFor(HOSTS),
    route: (request, response) => route?.(request, response, { directory, gate: upstream.gate, secret }) ?? false,
  });
  const overrides = Object.fromEntries(HOSTS.map((host) => [host, upstream.port]));
  const keyveil = await startTestDaemon({ authority, overrides });
  const vaultId = await keyveil.createVault();
  for (const [secret_name, secret_value] of Object.entries(SECRETS)) {
    await keyveil.createCredential(vaultId, {
      secret_name,
      secret_value,
      injection_location: { header: true, body: true },
      networking: { type: 'limited', allowed_hosts: HOSTS },
    });
  }
  const { variables } = await keyveil.createSession({ vault_ids: [vaultId], ca_directory: directory });
  writeFileSync(join(directory, 'ca.pem'), await keyveil.caPem());
  const bundle = await keyveil.admin('GET', '/v1/ca-bundle.pem');
  writeFileSync(join(directory, 'ca-bundle.pem'), bundle.body['text'] as string);
  const content = randomBytes(UPLOAD_BYTES);
  const path = join(directory, 'upload.bin');
  writeFileSync(path, content);
  const environment: Scene['environment'] = (extra = {}) => ({
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: home,
    LANG: 'C.UTF-8',
    ...variables,
    ...extra,
  });
  return {
    keyveil,
    upstream,
    variables,
    directory,
    upload: { path, sha256: createHash('sha256').update(content).digest('hex'), bytes: UPLOAD_BYTES },
    placeholder: (name) => variables[name] as string,
    secret,
    proxy: new URL(variables['HTTPS_PROXY'] as string),
    environment,
    async run(command) {
      const outcome = await runProgram(command, environment(command.env), (line) => {
        const number = /\bevent (\d+)/.exec(line)?.[1];
        if (number !== undefined) upstream.gate.seen(Number(number));
      });
      const said = `${outcome.stdout}\n${outcome.stderr}`;
      for (const value of Object.values(SECRETS)) {
        if (said.includes(value)) throw new Error(`The program printed a secret:\n${said}`);
      }
      if (outcome.code !== 0) {
        const ended = outcome.code === null ? `did not end within ${RUN_TIMEOUT_MS} ms` : `ended with ${outcome.code}`;
        throw new Error(`${command.file} ${ended}:\n${said.slice(-2000)}`);
      }
      return outcome;
    },
    async close() {
      await keyveil.close();
      await upstream.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
