// A daemon process and its upstreams for the canary run, with every answer kept.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request as httpRequest, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { collectFiles, collectProcess, processesOf, type Evidence } from './canary.ts';
import { startDaemonProcess, type DaemonProcess } from './daemon-process.ts';
import { startFullUpstream, type FullReceived, type FullResponse, type FullUpstream } from './full-upstream.ts';
import { answer, openRawServer, type RawServer } from './raw-server.ts';
import { createTestAuthority } from './test-authority.ts';
import { startUpstream, type TestUpstream } from './upstream.ts';

interface AdminCall {
  readonly token?: string | null;
  /** Text is sent as it is. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** The answer may hold a token, this once. */
  readonly isOneTime?: boolean;
}

interface AdminResult {
  readonly status: number;
  readonly text: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- tests look into it freely
  readonly body: any;
}

export interface CanaryScene {
  readonly keyveil: DaemonProcess;
  readonly full: FullUpstream;
  readonly faulty: RawServer;
  readonly plain: TestUpstream;
  readonly answers: Evidence[];
  readonly adminToken: string;
  /** What the daemon and its children have as TMPDIR. */
  readonly temporaryDirectory: string;
  /** Where backups go. */
  readonly backupDirectory: string;
  keep(place: string, label: string, bytes: Buffer | string): void;
  /** Calls the admin API over TCP, and keeps the whole answer. */
  readonly admin: (method: string, path: string, call?: AdminCall) => Promise<AdminResult>;
  /** All that lies in files and processes now, and the log. */
  collect(): Evidence[];
  collectProcesses(): Evidence[];
  close(): Promise<void>;
}

const KIB = 1024;

/** A value in every form that the veil knows for its length, one after the other. */
function echoOf(value: string): string {
  const bytes = Buffer.from(value);
  const forms = [value, bytes.toString('base64'), bytes.toString('base64url')];
  for (const before of ['-', '--']) forms.push(Buffer.from(`${before}${value}--`).toString('base64'));
  if (bytes.length <= KIB) {
    forms.push(bytes.toString('hex'), encodeURIComponent(value), JSON.stringify(value));
    forms.push(
      new URLSearchParams({ value }).toString(),
      [...value].map((c) => `&#${String(c.codePointAt(0))};`).join(''),
    );
  }
  return `${forms.join('\n')}\n`;
}

/** What the request holds: its key field, or its body. */
function valueOf(request: FullReceived): string {
  const field = request.headers['x-key'];
  if (typeof field === 'string') return Buffer.from(field, 'latin1').toString();
  const text = request.body.toString();
  return request.headers['content-type'] === 'application/json' ? (JSON.parse(text) as { key: string }).key : text;
}

function serveEcho(request: FullReceived, response: FullResponse): boolean {
  const { pathname, searchParams } = new URL(request.url, 'https://any.test');
  if (!pathname.startsWith('/say/')) return false;
  const value = valueOf(request);
  const reply = response as ServerResponse;
  const body = echoOf(value);
  const isField = Buffer.byteLength(value) < KIB;
  const field = isField ? Buffer.from(value).toString('latin1') : 'none';
  const status = Number(searchParams.get('status') ?? 200);
  reply.setHeader('content-type', 'text/plain');
  switch (pathname) {
    case '/say/fields':
      reply.setHeader('x-echo', field);
      reply.setHeader('set-cookie', [`a=${field}`, 'b=2']);
      reply.setHeader('authorization-seen', String(request.headers['authorization'] ?? ''));
      if (request.httpVersion === '1.1') reply.writeHead(status, `Because of ${field}`);
      else reply.writeHead(status);
      reply.end('done');
      return true;
    case '/say/gzip':
      reply.setHeader('content-encoding', 'gzip');
      reply.end(gzipSync(body));
      return true;
    case '/say/length':
      reply.setHeader('content-length', Buffer.byteLength(body));
      reply.end(body);
      return true;
    case '/say/trailers':
      reply.setHeader('trailer', 'x-echo');
      reply.write(body);
      reply.addTrailers({ 'x-echo': field });
      reply.end();
      return true;
    case '/say/events':
      reply.setHeader('content-type', 'text/event-stream');
      for (const line of body.split('\n')) reply.write(`data: ${line}\n\n`);
      reply.end();
      return true;
    default:
      reply.writeHead(status);
      reply.end('nothing of it');
      return true;
  }
}

/** Answers by what the request asks for, in ways that no server should. */
function serveFaults(leafOf: { key: string; cert: string }): Promise<RawServer> {
  return openRawServer(
    (socket, received) => {
      if (!received.includes('\r\n\r\n')) return;
      const key = /^x-key: (.*)$/im.exec(received)?.[1] ?? '';
      if (received.includes('/cut')) {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n${key}`);
        setTimeout(() => socket.destroy(), 50).unref();
      } else if (received.includes('/reset')) socket.destroy();
      else if (received.includes('/syntax')) socket.end(`HTTP/1.1 200 OK\r\nBad field ${key}\r\n\r\n`);
      else if (received.includes('/noise')) socket.end(`${key}\r\n${key}\r\n\r\n`);
      else if (received.includes('/chunk')) {
        socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=${key}\r\nok\r\n${key}\r\n`);
      } else if (received.includes('/coding')) socket.end(answer(`not gzip ${key}`, 'Content-Encoding: gzip\r\n'));
      else socket.end(answer('ok', `X-Echo: ${key}\r\n`));
    },
    { tls: leafOf },
  );
}

function callAdmin(
  port: number,
  path: string,
  { method, token, call }: { method: string; token: string; call: AdminCall },
) {
  const given = call.token === undefined ? token : call.token;
  const payload =
    call.body === undefined ? undefined : typeof call.body === 'string' ? call.body : JSON.stringify(call.body);
  const headers: Record<string, string | number> = {
    ...(given === null ? {} : { 'x-api-key': given }),
    ...(payload === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
    ...call.headers,
  };
  return new Promise<{ status: number; head: string; text: string }>((resolve, reject) => {
    const options = { port, host: '127.0.0.1', method, path, headers, agent: false };
    const request = httpRequest(options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const head = `${String(response.statusCode)} ${response.rawHeaders.join('\n')}`;
        resolve({ status: response.statusCode ?? 0, head, text: Buffer.concat(chunks).toString() });
      });
    });
    request.on('error', reject);
    request.end(payload);
  });
}

/** Files of the data directory that hold a key by design. */
const KEY_FILES: ReadonlySet<string> = new Set(['master.key', 'admin-token']);

/** Starts the daemon with one worker process more than it is itself. */
export async function openCanaryScene(environment: Readonly<Record<string, string>> = {}): Promise<CanaryScene> {
  const authority = createTestAuthority();
  const hosts = ['api.test', 'echo.test', 'other.test'];
  const full = await startFullUpstream({ leaf: authority.leafFor(hosts), route: serveEcho });
  const faulty = await serveFaults(authority.leafFor(['faulty.test']));
  const plain = await startUpstream({ leaf: null });
  const wrong = await startUpstream({ leaf: createTestAuthority().leafFor(['wrong.test']) });
  const directory = mkdtempSync(join(tmpdir(), 'kvc-'));
  const temporaryDirectory = join(directory, 'tmp');
  const backupDirectory = join(directory, 'backups');
  mkdirSync(temporaryDirectory);
  mkdirSync(backupDirectory);
  const keyveil = await startDaemonProcess({
    authority,
    overrides: {
      ...Object.fromEntries(hosts.map((host) => [host, full.port])),
      'faulty.test': faulty.port,
      'plain.test:80': plain.port,
      'wrong.test': wrong.port,
      'gone.test': 1,
    },
    environment: {
      TMPDIR: temporaryDirectory,
      KEYVEIL_WORKERS: '2',
      KEYVEIL_BODY_BUFFER_BYTES: String(64 * KIB),
      // A value that is cut by a pause longer than this one passes, and on a busy machine pauses are long.
      KEYVEIL_VEIL_IDLE_MS: '10000',
      ...environment,
    },
  });
  const adminToken = readFileSync(join(keyveil.dataDirectory, 'admin-token'), 'latin1').trim();
  const answers: Evidence[] = [];
  const keep: CanaryScene['keep'] = (place, label, bytes) => {
    answers.push({ place, label: label.slice(0, 100), bytes: Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes) });
  };
  const collectProcesses = (): Evidence[] =>
    processesOf(keyveil.pid).flatMap((pid) => collectProcess(pid, [keyveil.dataDirectory, temporaryDirectory]));
  return {
    collectProcesses,
    keyveil,
    full,
    faulty,
    plain,
    answers,
    adminToken,
    temporaryDirectory,
    backupDirectory,
    keep,
    async admin(method, path, call = {}) {
      const { status, head, text } = await callAdmin(keyveil.adminPort, path, { method, token: adminToken, call });
      keep(call.isOneTime === true ? 'one-time answers' : 'admin answers', `${method} ${path}`, `${head}\n\n${text}`);
      const isJson = head.includes('application/json');
      return { status, text, body: isJson ? (JSON.parse(text) as unknown) : undefined };
    },
    collect() {
      const { dataDirectory } = keyveil;
      const dataName = basename(dataDirectory);
      const ofData = (path: string): string | null => (KEY_FILES.has(path) ? null : path);
      return [
        ...answers,
        { place: 'log', label: 'standard output and error', bytes: Buffer.from(keyveil.log.join('\n')) },
        ...collectFiles(dataDirectory, ofData),
        ...collectFiles(temporaryDirectory, () => 'temporary files'),
        ...collectFiles(backupDirectory, () => 'backup'),
        ...collectFiles(keyveil.directory, (path) => (path.startsWith(`${dataName}/`) ? null : 'working directory')),
        ...collectProcesses(),
      ];
    },
    async close() {
      await keyveil.close();
      await Promise.all([full.close(), faulty.close(), plain.close(), wrong.close()]);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
