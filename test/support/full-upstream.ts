// A TLS server that speaks HTTP/1.1, HTTP/2, WebSocket, event streams and gRPC, and keeps what it received.
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type RawData, type WebSocket } from 'ws';
import { serveGrpc, type GrpcRecord } from './grpc-service.ts';
import type { TestLeaf } from './test-authority.ts';

type FullRequest = IncomingMessage | Http2ServerRequest;
export type FullResponse = ServerResponse | Http2ServerResponse;

/** One request as it arrived, whole. */
export interface FullReceived {
  /** `1.1` or `2.0`. */
  readonly httpVersion: string;
  readonly method: string;
  readonly host: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/** Answers a request; false leaves it to the server's own routes. */
export type FullRoute = (request: FullReceived, response: FullResponse) => boolean | Promise<boolean>;

export interface FullUpstream {
  readonly port: number;
  readonly received: FullReceived[];
  /** WebSocket messages, as text. */
  readonly messages: string[];
  readonly grpc: GrpcRecord;
  /** Lets the next event of the open event streams go. */
  readonly gate: EventGate;
  close(): Promise<void>;
}

/** Holds each event back until the one before it has been seen, so that a client that collects them never gets on. */
export class EventGate {
  #open = 1;
  readonly #waiting = new Set<() => void>();

  /** The first event is free again. */
  reset(): void {
    this.#open = 1;
  }

  /** Event `number` was seen: the one after it may go. */
  seen(number: number): void {
    if (number < this.#open) return;
    this.#open = number + 1;
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  async pass(number: number): Promise<void> {
    while (number > this.#open) await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }
}

/** Events in each event stream. */
export const EVENT_COUNT = 3;

/** Ends a response with JSON. */
export function answerJson(response: FullResponse, value: unknown, status = 200): void {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length });
  (response as ServerResponse).end(body);
}

async function readWhole(request: FullRequest): Promise<FullReceived> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const { httpVersion, headers, url = '', method = '' } = request;
  const host = headers[':authority'] ?? headers.host ?? '';
  return { httpVersion, method, host: String(host), url, headers, body: Buffer.concat(chunks) };
}

async function sendEvents(response: FullResponse, gate: EventGate): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  for (let number = 1; number <= EVENT_COUNT; number += 1) {
    await gate.pass(number);
    (response as ServerResponse).write(`data: event ${number}\n\n`);
  }
  (response as ServerResponse).end();
}

async function serveOwnRoutes(request: FullReceived, response: FullResponse, gate: EventGate): Promise<void> {
  const { pathname, searchParams } = new URL(request.url, 'https://any.test');
  switch (pathname) {
    case '/events':
      return sendEvents(response, gate);
    case '/seen':
      gate.seen(Number(searchParams.get('event')));
      return answerJson(response, {});
    case '/upload':
      return answerJson(response, {
        bytes: request.body.length,
        sha256: createHash('sha256').update(request.body).digest('hex'),
      });
    case '/echo':
      return answerJson(response, {
        authorization: request.headers['authorization'] ?? null,
        body: request.body.length === 0 ? null : (JSON.parse(request.body.toString()) as unknown),
      });
    default:
      return answerJson(response, { error: 'There is nothing here.' }, 404);
  }
}

/** Starts the server on a free port of 127.0.0.1. */
export async function startFullUpstream(options: {
  readonly leaf: TestLeaf;
  readonly route?: FullRoute;
}): Promise<FullUpstream> {
  const received: FullReceived[] = [];
  const messages: string[] = [];
  const grpc: GrpcRecord = { calls: [], cancelled: 0, events: new EventEmitter() };
  const gate = new EventGate();
  const sockets = new Set<Duplex>();
  const server = createSecureServer({ key: options.leaf.key, cert: options.leaf.cert, allowHTTP1: true });
  const serve = async (request: FullRequest, response: FullResponse): Promise<void> => {
    const whole = await readWhole(request);
    received.push(whole);
    if ((await options.route?.(whole, response)) !== true) await serveOwnRoutes(whole, response, gate);
  };
  server.on('request', (request: FullRequest, response: FullResponse) => {
    if (String(request.headers['content-type']).startsWith('application/grpc')) {
      serveGrpc(request as Http2ServerRequest, response as Http2ServerResponse, grpc);
      return;
    }
    // A request that was cut off is none: tests look at `received`.
    serve(request, response).catch(() => response.destroy());
  });
  const webSockets = new WebSocketServer({ noServer: true });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    webSockets.handleUpgrade(request, socket, head, (webSocket: WebSocket) => {
      webSocket.on('message', (data: RawData) => {
        const text = (data as Buffer).toString();
        messages.push(text);
        webSocket.send(`echo ${text}`);
      });
    });
  });
  server.on('sessionError', () => undefined);
  for (const event of ['connection', 'secureConnection'] as const) {
    server.on(event, (socket: Socket) => {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.once('close', () => sockets.delete(socket));
    });
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    received,
    messages,
    grpc,
    gate,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
