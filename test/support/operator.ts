// What a test does as operator and as sandbox of a daemon, wherever that runs.
import { writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { TestAuthority } from './test-authority.ts';

type Json = Record<string, unknown>;

interface AdminAnswer {
  readonly status: number;
  readonly body: Json;
}

/** What a sandbox is given. */
export interface TestSession {
  readonly id: string;
  readonly variables: Readonly<Record<string, string>>;
  /** Value of `Proxy-Authorization`. */
  readonly authorization: string;
}

export interface Operator {
  /** Calls the admin API over the Unix socket. */
  admin(method: string, path: string, body?: Json): Promise<AdminAnswer>;
  createVault(name?: string): Promise<string>;
  /** Answers `{id, placeholder}`. */
  createCredential(vaultId: string, auth: Json): Promise<{ id: string; placeholder: string }>;
  createSession(fields: Json): Promise<TestSession>;
  /** Sends CONNECT; resolves with the socket and the head of the answer. */
  connect(
    session: Pick<TestSession, 'authorization'> | null,
    authority: string,
  ): Promise<{ socket: Socket; head: string }>;
  /** Opens a tunnel and a TLS session in it that trusts Keyveil's CA. */
  tunnel(session: TestSession, authority: string, options?: ConnectionOptions): Promise<TLSSocket>;
  caPem(): Promise<string>;
}

/** Where the daemon is now. */
export interface OperatedDaemon {
  readonly socketPath: string;
  readonly proxyAddress: { readonly port: number };
}

export interface EnvironmentOptions {
  /** Host to port of a server on 127.0.0.1: `{"api.test": 40123}` or `{"api.test:8443": 40123}`. */
  readonly overrides?: Readonly<Record<string, number>>;
  readonly environment?: Readonly<Record<string, string>>;
  readonly authority?: TestAuthority;
}

/** The variables of a daemon with its data in `directory`, whose hosts are servers on this machine. */
export function prepareEnvironment(
  directory: string,
  authority: TestAuthority,
  options: EnvironmentOptions,
): Record<string, string> {
  writeFileSync(join(directory, 'upstream-ca.pem'), authority.caPem);
  const overrides = Object.entries(options.overrides ?? {}).map(([host, port]) => {
    return `${host.includes(':') ? host : `${host}:443`}=127.0.0.1:${port}`;
  });
  return {
    KEYVEIL_DATA_DIR: join(directory, 'data'),
    KEYVEIL_PROXY_LISTEN: '127.0.0.1:0',
    KEYVEIL_ADMIN_LISTEN: '127.0.0.1:0',
    KEYVEIL_UPSTREAM_CA_FILE: join(directory, 'upstream-ca.pem'),
    KEYVEIL_UPSTREAM_OVERRIDES: overrides.join(','),
    KEYVEIL_ALLOWED_PORTS: '*',
    ...options.environment,
  };
}

/** Reads up to the end of a head; what follows stays in the socket. */
export function readHead(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0) as Buffer;
    const onData = (chunk: Buffer): void => {
      seen = Buffer.concat([seen, chunk]);
      const end = seen.indexOf('\r\n\r\n');
      if (end < 0) return;
      cleanUp();
      socket.pause();
      if (seen.length > end + 4) socket.unshift(seen.subarray(end + 4));
      resolve(seen.toString('latin1', 0, end + 4));
    };
    const onClose = (): void => {
      cleanUp();
      reject(new Error(`closed after ${JSON.stringify(seen.toString('latin1'))}`));
    };
    const cleanUp = (): void => {
      socket.off('data', onData);
      socket.off('close', onClose);
      socket.off('error', onClose);
    };
    socket.on('data', onData);
    socket.on('close', onClose);
    socket.on('error', onClose);
    socket.resume();
  });
}

/** Everything until the connection closes, as Latin-1 text. */
export function readAll(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(Buffer.concat(chunks).toString('latin1')));
    socket.resume();
  });
}

function callAdmin(
  socketPath: string,
  call: { method: string; path: string; body: Json | undefined },
): Promise<AdminAnswer> {
  const { method, path, body } = call;
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const headers =
      payload === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) };
    const request = httpRequest({ socketPath, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const isJson = (response.headers['content-type'] ?? '').includes('json');
        resolve({ status: response.statusCode ?? 0, body: isJson ? (JSON.parse(text) as Json) : { text } });
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(payload);
  });
}

/** A login for the proxy. */
export function basicLogin(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}

/** The calls, each to the daemon where it is at that time. */
export function createOperator(daemon: () => OperatedDaemon): Operator {
  const admin: Operator['admin'] = (method, path, body) => callAdmin(daemon().socketPath, { method, path, body });
  const must = async (method: string, path: string, body?: Json): Promise<Json> => {
    const answer = await admin(method, path, body);
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const connect: Operator['connect'] = async (session, target) => {
    const socket = connectTcp(daemon().proxyAddress.port, '127.0.0.1');
    socket.on('error', () => undefined);
    const login = session === null ? '' : `Proxy-Authorization: ${session.authorization}\r\n`;
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${login}\r\n`, 'latin1');
    return { socket, head: await readHead(socket) };
  };
  const caPem = async (): Promise<string> => (await admin('GET', '/v1/ca.pem')).body['text'] as string;
  return {
    admin,
    connect,
    caPem,
    async createVault(name = 'test') {
      return (await must('POST', '/v1/vaults', { display_name: name }))['id'] as string;
    },
    async createCredential(vaultId, auth) {
      const body = { auth: { type: 'environment_variable', ...auth } };
      const answer = await must('POST', `/v1/vaults/${vaultId}/credentials`, body);
      return { id: answer['id'] as string, placeholder: (answer['auth'] as Json)['placeholder'] as string };
    },
    async createSession(fields) {
      const answer = await must('POST', '/v1/sessions', fields);
      const context = answer['startup_context'] as { environment_variables: Record<string, string> };
      const variables = context.environment_variables;
      const url = new URL(variables['HTTPS_PROXY'] as string);
      return { id: answer['id'] as string, variables, authorization: basicLogin(url.username, url.password) };
    },
    async tunnel(session, target, tlsOptions = {}) {
      const { socket, head } = await connect(session, target);
      if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
      const host = target.replace(/:\d+$/, '');
      const tls = connectTls({
        socket,
        servername: host,
        ca: await caPem(),
        ALPNProtocols: ['http/1.1'],
        ...tlsOptions,
      });
      tls.on('error', () => undefined);
      await new Promise<void>((resolve, reject) => {
        tls.once('secureConnect', resolve);
        tls.once('close', () => reject(new Error('The TLS handshake failed.')));
      });
      return tls;
    },
  };
}
