// A TCP or TLS server that says exactly the bytes that a test wants, and keeps what it was sent.
import { once } from 'node:events';
import { createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';

export interface RawServer {
  readonly port: number;
  /** Number of connections that were made so far. */
  readonly connectionCount: number;
  /** What each connection has sent, Latin-1. */
  readonly received: string[];
  /** Resolves when none of its connections is open. */
  drained(): Promise<void>;
  close(): Promise<void>;
}

/** Is called for every chunk that comes, with all that the connection has sent so far. */
export type Script = (socket: Socket, received: string, connectionIndex: number) => void;

export interface RawServerOptions {
  readonly tls?: TlsOptions;
  readonly host?: string;
  readonly onConnection?: (socket: Socket, connectionIndex: number) => void;
  /** Sockets stay open when the other side has ended. */
  readonly allowHalfOpen?: boolean;
}

export async function openRawServer(script: Script, options: RawServerOptions = {}): Promise<RawServer> {
  const open = new Set<Socket>();
  const received: string[] = [];
  let onDrained: (() => void) | null = null;
  const serve = (socket: Socket): void => {
    const index = received.push('') - 1;
    open.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      open.delete(socket);
      if (open.size === 0) onDrained?.();
    });
    options.onConnection?.(socket, index);
    socket.on('data', (chunk) => {
      received[index] += chunk.toString('latin1');
      script(socket, received[index] as string, index);
    });
  };
  const allowHalfOpen = options.allowHalfOpen ?? false;
  const server: Server =
    options.tls === undefined
      ? createTcpServer({ allowHalfOpen }, serve)
      : createTlsServer({ ...options.tls, allowHalfOpen }, serve);
  server.on('tlsClientError', () => undefined);
  server.listen(0, options.host ?? '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    received,
    get connectionCount() {
      return received.length;
    },
    async drained() {
      if (open.size === 0) return;
      await new Promise<void>((resolve) => (onDrained = resolve));
    },
    async close() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A complete answer with a stated length. */
export function answer(body: string, fields = ''): string {
  return `HTTP/1.1 200 OK\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
}
