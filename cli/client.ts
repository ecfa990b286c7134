// The admin API from the outside: over the Unix socket of the data directory, or over HTTP(S) with a token.
import { readFileSync } from 'node:fs';
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { join } from 'node:path';
import type { ClientConfig } from '../daemon/config.ts';
import { UsageError } from './usage-error.ts';

/** A JSON object of the admin API. */
export type Json = Readonly<Record<string, unknown>>;

/** The daemon answered with an error; the message is the daemon's. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  readonly code: string | null;
  /** Path of the field that it is about, such as `auth.networking`. */
  readonly param: string | null;

  constructor(status: number, code: string | null, what: { readonly message: string; readonly param?: string | null }) {
    super(what.message);
    this.status = status;
    this.code = code;
    this.param = what.param ?? null;
  }
}

/** No daemon answered; the message has the address and the likely reason. Exit code 69 (EX_UNAVAILABLE of sysexits.h). */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
}

interface RequestOptions {
  readonly body?: Json;
  readonly signal?: AbortSignal;
  /** Sent as `Last-Event-ID`. */
  readonly lastEventId?: string;
}

interface ListOptions {
  readonly includeArchived?: boolean;
  readonly query?: Readonly<Record<string, string>>;
}

export interface AdminClient {
  /** Socket path or URL, for people. */
  readonly address: string;
  /** JSON of a 2xx answer; throws an ApiError or an UnreachableError. */
  call(method: string, path: string, options?: RequestOptions): Promise<Json>;
  /** Text of a 2xx answer. */
  text(path: string): Promise<string>;
  /** Every item of a list, page by page. */
  list(path: string, options?: ListOptions): AsyncGenerator<Json>;
  /** Body of a 2xx answer as it comes. */
  stream(path: string, options: RequestOptions): Promise<IncomingMessage>;
}

interface Target {
  readonly address: string;
  readonly socketPath: string | null;
  readonly url: URL;
  token(): string | null;
  /** Where the token is from, for people; null on the socket, which needs none. */
  readonly tokenOrigin: string | null;
}

const ANSWER_BYTES_MAX = 64 * 1024 * 1024;

const REASONS: Readonly<Record<string, string>> = {
  ENOENT:
    'there is no socket, so no daemon runs on this data directory: start one with keyveil serve, or name another by --data-dir or --url',
  ECONNREFUSED: 'nothing listens there: start the daemon with keyveil serve',
  EACCES: 'this user may not open it: run the command as the user of the daemon, or use --url with an admin token',
  ENOTDIR: 'the data directory is a file: name another by --data-dir or --url',
  ENOTFOUND: 'the name does not resolve: check --url or KEYVEIL_URL',
  ETIMEDOUT: 'no answer: check the address and the firewall',
  ECONNRESET: 'the connection was closed: a daemon that serves TLS needs an https:// URL',
  EPROTO: 'no TLS there: a daemon without TLS files needs an http:// URL',
};

function targetOf(config: ClientConfig): Target {
  if (config.url === null) {
    const socketPath = join(config.dataDir, 'admin.sock');
    return { address: socketPath, socketPath, url: new URL('http://localhost'), token: () => null, tokenOrigin: null };
  }
  const tokenPath = join(config.dataDir, 'admin-token');
  const token = (): string => {
    if (config.adminToken !== null) return config.adminToken.reveal().toString('utf8');
    try {
      return readFileSync(tokenPath, 'utf8').trim();
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? 'unreadable';
      throw new UsageError(
        `No admin token: KEYVEIL_ADMIN_TOKEN_FILE and KEYVEIL_ADMIN_TOKEN are not set (--admin-token-file neither), and ${tokenPath} can't be read (${code})`,
      );
    }
  };
  const tokenOrigin = config.adminToken === null ? tokenPath : (config.adminTokenOrigin ?? 'the configuration');
  return { address: config.url, socketPath: null, url: new URL(config.url), token, tokenOrigin };
}

function unreachable(target: Target, error: unknown): UnreachableError {
  const code = (error as NodeJS.ErrnoException).code ?? 'no answer';
  const reason =
    REASONS[code] ??
    (/CERT|SELF_SIGNED|ALTNAME/.test(code)
      ? 'its certificate is not trusted: name its CA by NODE_EXTRA_CA_CERTS'
      : 'check the address');
  return new UnreachableError(`No daemon at ${target.address} (${code}): ${reason}`);
}

function openRequest(
  target: Target,
  line: { method: string; path: string },
  options: RequestOptions,
): Promise<IncomingMessage> {
  const body = options.body === undefined ? null : Buffer.from(JSON.stringify(options.body), 'utf8');
  const token = target.token();
  const headers: Record<string, string> = { accept: 'application/json, text/event-stream, */*' };
  if (token !== null) headers['x-api-key'] = token;
  if (options.lastEventId !== undefined) headers['last-event-id'] = options.lastEventId;
  if (body !== null)
    Object.assign(headers, { 'content-type': 'application/json', 'content-length': String(body.length) });
  const requestBy = target.url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const request = requestBy(new URL(line.path, target.url), {
      method: line.method,
      headers,
      agent: false,
      ...(target.socketPath === null ? {} : { socketPath: target.socketPath }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    request.on('response', resolve);
    request.on('error', (error) => reject(options.signal?.aborted === true ? error : unreachable(target, error)));
    request.end(body ?? undefined);
  });
}

async function readText(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > ANSWER_BYTES_MAX)
      throw new ApiError(message.statusCode ?? 0, null, { message: 'The answer is too long to be read' });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The object, when a value is one. */
export function asObject(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function parseObject(text: string): Json {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return {};
  }
}

async function toApiError(message: IncomingMessage, target: Target): Promise<ApiError> {
  const error = asObject(parseObject(await readText(message))['error']);
  const status = message.statusCode ?? 0;
  const text = typeof error['message'] === 'string' ? error['message'] : `The daemon answered with status ${status}`;
  const textIn = (name: string): string | null => (typeof error[name] === 'string' ? error[name] : null);
  const isLogin = status === 401 && target.tokenOrigin !== null;
  const from = isLogin ? ` The token is from ${String(target.tokenOrigin)}, and was sent to ${target.address}.` : '';
  return new ApiError(status, textIn('code'), { message: `${text}${from}`, param: textIn('param') });
}

/** Creates a client; nothing is opened before the first call. */
export function createClient(config: ClientConfig): AdminClient {
  const target = targetOf(config);
  const open = async (line: { method: string; path: string }, options: RequestOptions): Promise<IncomingMessage> => {
    const message = await openRequest(target, line, options);
    const status = message.statusCode ?? 0;
    if (status < 200 || status > 299) throw await toApiError(message, target);
    return message;
  };
  const client: AdminClient = {
    address: target.address,
    async call(method, path, options = {}) {
      const text = await readText(await open({ method, path }, options));
      return parseObject(text);
    },
    async text(path) {
      return readText(await open({ method: 'GET', path }, {}));
    },
    async *list(path, options = {}) {
      let page: unknown = null;
      do {
        const query = new URLSearchParams({ limit: '100', ...options.query });
        if (options.includeArchived === true) query.set('include_archived', 'true');
        if (typeof page === 'string') query.set('page', page);
        const answer = await client.call('GET', `${path}?${query.toString()}`);
        for (const item of Array.isArray(answer['data']) ? answer['data'] : []) yield asObject(item);
        page = answer['next_page'];
      } while (typeof page === 'string');
    },
    stream: (path, options) => open({ method: 'GET', path }, options),
  };
  return client;
}
