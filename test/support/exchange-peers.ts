// Clients and servers of HTTP/1.1 and HTTP/2 that send exactly what a plan says, and tell exactly what came.
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as http2 from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { headerValue, type RawHeaders } from '../../proxy/exchange.ts';
import { ResponseParser } from '../../proxy/upstream/http1-codec.ts';
import type { TestLeaf } from './test-authority.ts';

export type Framing = 'none' | 'length' | 'stream';

/** A message's content: its pieces, how its end is told, and what follows it. */
export interface Content {
  readonly framing: Framing;
  readonly pieces: readonly Buffer[];
  readonly trailers: RawHeaders;
}

export interface PlannedRequest {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  /** Without `Host` and without what frames the content. */
  readonly fields: RawHeaders;
  readonly content: Content;
}

export interface Interim {
  readonly status: number;
  readonly fields: RawHeaders;
}

export interface PlannedResponse {
  readonly interim: readonly Interim[];
  readonly status: number;
  readonly reason: string;
  /** Without what frames the content. */
  readonly fields: RawHeaders;
  readonly content: Content;
  /** `Content-Length` of a response that has no content (HEAD, 304); null for none. */
  readonly statedLength: number | null;
}

/** What a server received. */
export interface SeenRequest {
  readonly method: string;
  readonly target: string;
  readonly fields: RawHeaders;
  readonly body: Buffer;
  readonly trailers: RawHeaders;
}

/** What a client received. */
export interface SeenResponse {
  readonly interim: readonly Interim[];
  readonly status: number;
  readonly reason: string;
  readonly fields: RawHeaders;
  readonly body: Buffer;
  readonly trailers: RawHeaders;
}

export interface Client {
  exchange(request: PlannedRequest): Promise<SeenResponse>;
  close(): void;
}

/** Looks up what to answer; is told of each request when it is whole. */
export interface Plans {
  responseFor(fields: RawHeaders): PlannedResponse;
  seen(request: SeenRequest): void;
}

export interface PlanServer {
  readonly port: number;
  close(): Promise<void>;
}

function formatFields(fields: RawHeaders): string {
  let text = '';
  for (let index = 0; index < fields.length; index += 2) text += `${fields[index]}: ${fields[index + 1]}\r\n`;
  return text;
}

function lengthOf({ pieces }: Content): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

function framingFields(content: Content): string[] {
  if (content.framing === 'length') return ['Content-Length', String(lengthOf(content))];
  return content.framing === 'stream' ? ['Transfer-Encoding', 'chunked'] : [];
}

/** Fields for node:http2, which takes duplicates as lists. */
function http2Fields(fields: RawHeaders): http2.OutgoingHttpHeaders {
  const result = Object.create(null) as Record<string, string | string[]>;
  for (let index = 0; index < fields.length; index += 2) {
    const name = (fields[index] as string).toLowerCase();
    const value = fields[index + 1] as string;
    const earlier = result[name];
    result[name] = earlier === undefined ? value : [...(Array.isArray(earlier) ? earlier : [earlier]), value];
  }
  return result;
}

function withoutPseudo(raw: RawHeaders): string[] {
  return raw.flatMap((name, index) =>
    index % 2 === 0 && !name.startsWith(':') ? [name, raw[index + 1] as string] : [],
  );
}

function toError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value));
}

const expectsContinue = (fields: RawHeaders): boolean => headerValue(fields, 'expect') === '100-continue';

/** HTTP/1.1 over one connection after another: a new one whenever the last can't be used again. */
export function createHttp1Client(open: () => Promise<TLSSocket>): Client {
  let socket: TLSSocket | null = null;
  const exchangeOn = (tls: TLSSocket, request: PlannedRequest): Promise<SeenResponse> =>
    new Promise((resolve, reject) => {
      const interim: Interim[] = [];
      const chunks: Buffer[] = [];
      let head = { status: 0, reason: '', headers: [] as RawHeaders };
      const { content } = request;
      const sendContent = (): void => {
        for (const piece of content.pieces) {
          const size = content.framing === 'stream' ? [`${piece.length.toString(16)}\r\n`, '\r\n'] : ['', ''];
          if (piece.length > 0)
            tls.write(Buffer.concat([Buffer.from(size[0] ?? ''), piece, Buffer.from(size[1] ?? '')]));
        }
        if (content.framing === 'stream') tls.write(`0\r\n${formatFields(content.trailers)}\r\n`, 'latin1');
      };
      const settle = (trailers: RawHeaders): void => {
        tls.off('data', onData);
        tls.off('close', onClose);
        if (!parser.isReusable) {
          socket = null;
          tls.destroy();
        }
        const { status, reason, headers } = head;
        resolve({ interim, status, reason, fields: headers, body: Buffer.concat(chunks), trailers });
      };
      const parser = new ResponseParser({
        information(status, _reason, fields) {
          interim.push({ status, fields });
          if (status === 100 && expectsContinue(request.fields)) sendContent();
        },
        head: (value) => (head = value),
        data: (chunk) => chunks.push(Buffer.from(chunk)),
        end: settle,
        upgrade: () => reject(new Error('The connection was switched to another protocol.')),
      });
      const onData = (chunk: Buffer): void => {
        try {
          parser.execute(chunk);
        } catch (error) {
          reject(toError(error));
        }
      };
      const onClose = (): void => {
        try {
          parser.finish();
        } catch (error) {
          reject(toError(error));
        }
      };
      parser.begin(request);
      tls.on('data', onData);
      tls.on('close', onClose);
      const fields = [...request.fields, ...framingFields(content)];
      const line = `${request.method} ${request.target} HTTP/1.1\r\nHost: ${request.host}\r\n`;
      tls.write(`${line}${formatFields(fields)}\r\n`, 'latin1');
      if (!expectsContinue(request.fields)) sendContent();
    });
  return {
    async exchange(request) {
      if (socket === null || socket.destroyed) socket = await open();
      return exchangeOn(socket, request);
    },
    close: () => socket?.destroy(),
  };
}

/** HTTP/2 over one connection. */
export async function createHttp2Client(open: () => Promise<TLSSocket>): Promise<Client> {
  const socket = await open();
  const session = http2.connect('https://any.test', { createConnection: () => socket });
  session.on('error', () => undefined);
  const exchange = (request: PlannedRequest): Promise<SeenResponse> =>
    new Promise((resolve, reject) => {
      const { content, method, target, host } = request;
      const length = content.framing === 'length' ? ['content-length', String(lengthOf(content))] : [];
      const stream = session.request(
        {
          ':method': method,
          ':path': target,
          ':scheme': 'https',
          ':authority': host,
          ...http2Fields([...request.fields, ...length]),
        },
        { endStream: content.framing === 'none', waitForTrailers: true },
      );
      const interim: Interim[] = [];
      const chunks: Buffer[] = [];
      let head: { status: number; fields: RawHeaders } | null = null;
      let trailers: RawHeaders = [];
      const statusOf = (raw: RawHeaders): number => Number(headerValue(raw, ':status'));
      const sendContent = (): void => {
        for (const piece of content.pieces) stream.write(piece);
        if (content.framing !== 'none') stream.end();
      };
      stream.on('wantTrailers', () => stream.sendTrailers(http2Fields(content.trailers)));
      stream.on('headers', (_headers: unknown, _flags: unknown, raw: RawHeaders) => {
        interim.push({ status: statusOf(raw), fields: withoutPseudo(raw) });
        if (statusOf(raw) === 100 && expectsContinue(request.fields)) sendContent();
      });
      stream.on('response', (_headers: unknown, _flags: unknown, raw: RawHeaders) => {
        head = { status: statusOf(raw), fields: withoutPseudo(raw) };
      });
      stream.on('trailers', (_headers: unknown, _flags: unknown, raw: RawHeaders) => (trailers = raw));
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('error', reject);
      stream.on('close', () => {
        if (head === null || stream.rstCode !== 0) reject(new Error(`The stream was reset (${stream.rstCode}).`));
        else resolve({ ...head, interim, reason: '', body: Buffer.concat(chunks), trailers });
      });
      if (!expectsContinue(request.fields)) sendContent();
    });
  return { exchange, close: () => session.destroy() };
}

function track(server: { on(event: string, listener: (socket: Socket) => void): unknown }): Set<Socket> {
  const sockets = new Set<Socket>();
  server.on('secureConnection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => sockets.delete(socket));
  });
  return sockets;
}

async function listen(
  server: ReturnType<typeof createHttpsServer> | http2.Http2SecureServer,
  sockets: Set<Socket>,
): Promise<PlanServer> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

async function bodyOf(source: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of source) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** HTTP/1.1 over TLS. */
export function startHttp1PlanServer(leaf: TestLeaf, plans: Plans): Promise<PlanServer> {
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { rawHeaders, method = '', url = '' } = request;
    const plan = plans.responseFor(rawHeaders);
    for (const { status, fields } of plan.interim) {
      if (status === 100 && !expectsContinue(rawHeaders)) continue;
      response.socket?.write(`HTTP/1.1 ${status} Interim\r\n${formatFields(fields)}\r\n`, 'latin1');
    }
    const body = await bodyOf(request);
    plans.seen({ method, target: url, fields: rawHeaders, body, trailers: request.rawTrailers });
    const { content, statedLength } = plan;
    response.sendDate = false;
    const stated = statedLength === null ? [] : ['Content-Length', String(statedLength)];
    response.writeHead(plan.status, plan.reason, [...plan.fields, ...framingFields(content), ...stated] as never);
    for (const piece of content.pieces) response.write(piece);
    const trailers: [string, string][] = [];
    for (let index = 0; index < content.trailers.length; index += 2) {
      trailers.push([content.trailers[index] as string, content.trailers[index + 1] as string]);
    }
    if (trailers.length > 0) response.addTrailers(trailers);
    response.end();
  };
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    serve(request, response).catch(() => response.destroy());
  };
  const server = createHttpsServer({ ...leaf, ALPNProtocols: ['http/1.1'], maxHeaderSize: 65536 }, listener);
  server.on('checkContinue', listener);
  server.keepAliveTimeout = 0;
  return listen(server, track(server));
}

/** HTTP/2 and nothing else. */
export function startHttp2PlanServer(leaf: TestLeaf, plans: Plans): Promise<PlanServer> {
  const server = http2.createSecureServer({ ...leaf });
  const serve = async (stream: http2.ServerHttp2Stream, raw: RawHeaders): Promise<void> => {
    const plan = plans.responseFor(raw);
    for (const { status, fields } of plan.interim) {
      if (status === 100 && !expectsContinue(raw)) continue;
      stream.additionalHeaders({ ':status': status, ...http2Fields(fields) });
    }
    let trailers: RawHeaders = [];
    stream.on('trailers', (_fields: unknown, _flags: unknown, list: RawHeaders) => (trailers = list));
    const body = await bodyOf(stream);
    const target = headerValue(raw, ':path') ?? '';
    const fields = ['host', headerValue(raw, ':authority') ?? '', ...withoutPseudo(raw)];
    plans.seen({ method: headerValue(raw, ':method') ?? '', target, fields, body, trailers });
    const { content } = plan;
    const stated = content.framing === 'length' ? lengthOf(content) : plan.statedLength;
    const length = stated === null ? [] : ['content-length', String(stated)];
    stream.on('wantTrailers', () => stream.sendTrailers(http2Fields(content.trailers)));
    stream.respond({ ':status': plan.status, ...http2Fields([...plan.fields, ...length]) }, {
      endStream: content.framing === 'none',
      waitForTrailers: content.framing !== 'none',
      sendDate: false,
    } as object);
    for (const piece of content.pieces) stream.write(piece);
    if (content.framing !== 'none') stream.end();
  };
  server.on('stream', ((stream: http2.ServerHttp2Stream, ...[, , raw]: [unknown, unknown, RawHeaders]) => {
    stream.on('error', () => undefined);
    serve(stream, raw).catch(() => stream.destroy());
  }) as never);
  server.on('sessionError', () => undefined);
  return listen(server, track(server));
}
