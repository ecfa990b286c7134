// An in-process TLS (or plain) HTTP/1.1 server that keeps what it received, byte for byte.
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TestLeaf } from './test-authority.ts';

/** One request as the server saw it. */
export interface ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly rawTrailers: readonly string[];
  header(name: string): string | undefined;
}

export interface TestUpstream {
  readonly port: number;
  readonly received: ReceivedRequest[];
  readonly sockets: ReadonlySet<Socket>;
  readonly server: Server;
  /** Resolves with the next request that arrives whole. */
  next(): Promise<ReceivedRequest>;
  close(): Promise<void>;
}

export type Responder = (request: ReceivedRequest, response: ServerResponse) => void;

export interface TestUpstreamOptions {
  /** Null serves plain HTTP. */
  readonly leaf: TestLeaf | null;
  readonly respond?: Responder;
  /** Takes over before the body is read. */
  readonly listener?: RequestListener;
}

function answerOk(_request: ReceivedRequest, response: ServerResponse): void {
  response.end('ok');
}

async function readRequest(message: IncomingMessage): Promise<ReceivedRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  const { rawHeaders } = message;
  return {
    method: message.method ?? '',
    url: message.url ?? '',
    rawHeaders,
    body: Buffer.concat(chunks),
    rawTrailers: message.rawTrailers,
    header(name) {
      const index = rawHeaders.findIndex((field, at) => at % 2 === 0 && field.toLowerCase() === name.toLowerCase());
      return index < 0 ? undefined : rawHeaders[index + 1];
    },
  };
}

/** Starts a server on a free port of 127.0.0.1. */
export async function startUpstream(options: TestUpstreamOptions): Promise<TestUpstream> {
  const received: ReceivedRequest[] = [];
  const waiting: ((request: ReceivedRequest) => void)[] = [];
  const sockets = new Set<Socket>();
  const respond = options.respond ?? answerOk;
  const listener: RequestListener =
    options.listener ??
    ((message, response) => {
      readRequest(message).then(
        (request) => {
          received.push(request);
          waiting.shift()?.(request);
          respond(request, response);
        },
        // A request that was cut off is none: tests look at `received`.
        () => response.destroy(),
      );
    });
  const server =
    options.leaf === null
      ? createHttpServer(listener)
      : createHttpsServer({ key: options.leaf.key, cert: options.leaf.cert }, listener);
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    received,
    sockets,
    server,
    next: () => new Promise((resolve) => waiting.push(resolve)),
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
