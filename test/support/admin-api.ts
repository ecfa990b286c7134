// The admin API over a real socket with the real store in a directory of its own, and what tests look at besides.
import { openRoot } from '../../ca/root.ts';
import { createMemorySealedItems } from './memory-sealed-items.ts';
import Anthropic from '@anthropic-ai/sdk';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { createAdminServer, type AdminServerOptions } from '../../admin-api/server.ts';
import { createHostSet } from '../../model/host-pattern.ts';
import type { LogFields, Logger } from '../../model/ports.ts';
import { createReservedNameCheck } from '../../model/reserved-names.ts';
import { Secret } from '../../model/secret.ts';
import { prepareDataDirectory } from '../../store/data-directory.ts';
import { createKeyRing } from '../../store/key-ring.ts';
import { openStore, type Store } from '../../store/open-store.ts';
import { createManualClock, type ManualClock } from './manual-clock.ts';

/** One answer, its body parsed where it is JSON. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed body; `any`, since tests look into it freely. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as said above
  readonly body: any;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Null sends none. */
  readonly token?: string | null;
}

export interface AdminApi {
  readonly baseUrl: string;
  readonly token: string;
  readonly options: AdminServerOptions;
  readonly store: Store;
  readonly directory: string;
  readonly clock: ManualClock;
  /** Every log line as text. */
  readonly logLines: readonly string[];
  readonly sdk: Anthropic;
  /** Digests of the configured tokens; a test may change the list. */
  readonly digests: Buffer[];
  readonly call: (method: string, path: string, options?: CallOptions) => Promise<Answer>;
  /** Starts another server on the same store, with other options. */
  readonly another: (options: Partial<AdminServerOptions>) => Promise<StartedServer>;
  readonly close: () => Promise<void>;
}

interface StartedServer {
  readonly baseUrl: string;
  /** Connections that are open at the server's side. */
  readonly connectionCount: () => Promise<number>;
  readonly close: () => Promise<void>;
}

/** SHA-256 of a token. */
export function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

function createTestLogger(lines: string[]): Logger {
  const log = (level: string) => (fields: LogFields, message: string) => {
    const { error, ...rest } = fields;
    // An error is logged by its name and stack alone, as the daemon's logger does.
    const stack = error instanceof Error ? (error.stack ?? error.name) : undefined;
    lines.push(JSON.stringify({ level, message, ...rest, stack }));
  };
  return { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') };
}

function parse(text: string, headers: Headers): unknown {
  return headers.get('content-type')?.startsWith('application/json') === true ? JSON.parse(text) : undefined;
}

/** One request and its whole answer. */
export async function send(url: string, method: string, options: CallOptions): Promise<Answer> {
  const { body, token } = options;
  const headers = {
    ...(token === null || token === undefined ? {} : { 'x-api-key': token }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...options.headers,
  };
  const text = body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(url, { method, headers, body: text });
  const answer = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text: answer,
    body: parse(answer, response.headers),
  };
}

/** Starts everything; `t` takes it down. */
export async function startAdminApi(
  t: Pick<Test, 'teardown'>,
  overrides: Partial<AdminServerOptions> = {},
): Promise<AdminApi> {
  const directory = mkdtempSync(join(tmpdir(), 'keyveil-admin-'));
  const logLines: string[] = [];
  const logger = createTestLogger(logLines);
  const clock = createManualClock(Date.parse('2026-03-01T10:00:00Z'));
  prepareDataDirectory(directory);
  const store = await openStore({
    directory,
    keys: createKeyRing(Secret.fromBytes(randomBytes(32))),
    keySource: 'the test',
    clock,
    logger,
    defaultNetworking: { type: 'unrestricted' },
    auditRetention: { days: 30, bytesMax: 2 ** 30 },
  });
  const token = `admin-${randomBytes(24).toString('base64url')}`;
  const digests = [digestOf(token)];
  const options: AdminServerOptions = {
    store: store.control,
    audit: store.audit,
    ca: { caPem: () => 'CA PEM\n', bundlePem: () => 'BUNDLE PEM\n' },
    caControl: await openRoot(createMemorySealedItems(), { clock, hostName: 'test' }),
    clock,
    logger,
    trust: 'tcp',
    adminTokenDigests: () => digests,
    adminHosts: ['admin.keyveil.example'],
    sessionSettings: {
      interceptionOn: true,
      isReserved: createReservedNameCheck(['OPERATOR_RESERVED']),
      passthroughHosts: createHostSet(['pinned.example.com']),
      defaultNetworking: { type: 'unrestricted' },
    },
    sessionTtlSeconds: 7 * 24 * 3600,
    advertisedProxyUrl: () => 'http://127.0.0.1:7080',
    isProxyListening: () => true,
    metricsText: async () => 'keyveil_requests_total 1\n',
    metricsContentType: 'text/plain; version=0.0.4; charset=utf-8',
    metricsPublic: false,
    version: '0.0.0-test',
    auditPollMs: 10,
    auditHeartbeatMs: 50,
    ...overrides,
  };
  const started: StartedServer[] = [];
  const another = async (more: Partial<AdminServerOptions>) => {
    const server = createAdminServer({ ...options, ...more });
    const baseUrl = await server.listen({ host: '127.0.0.1', port: 0 });
    const entry: StartedServer = {
      baseUrl,
      connectionCount: () =>
        new Promise((resolve, reject) => {
          server.server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
        }),
      close: () => server.close().then(() => undefined),
    };
    started.push(entry);
    return entry;
  };
  const { baseUrl } = await another({});
  let closed: Promise<void> | undefined;
  const close = () =>
    (closed ??= (async () => {
      await Promise.all(started.map((entry) => entry.close()));
      await store.close();
      rmSync(directory, { recursive: true });
    })());
  t.teardown(close);
  return {
    baseUrl,
    token,
    options,
    store,
    directory,
    clock,
    logLines,
    digests,
    sdk: new Anthropic({ baseURL: baseUrl, apiKey: token }),
    call: (method, path, call = {}) => send(baseUrl + path, method, { token, ...call }),
    another,
    close,
  };
}

/** The bytes of every file in the data directory, as Latin-1 text. */
export function readDataDirectory(directory: string): string {
  return readdirSync(directory)
    .map((name) => readFileSync(join(directory, name), 'latin1'))
    .join('\n');
}

/** A good `auth` of a new credential, with changes; undefined removes a field. */
export function authWith(changes: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return {
    type: 'environment_variable',
    secret_name: 'NOTION_API_KEY',
    secret_value: 'ntn_real_value_0123456789',
    networking: { type: 'limited', allowed_hosts: ['api.notion.com'] },
    ...changes,
  };
}
