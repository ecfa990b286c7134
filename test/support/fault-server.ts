// An upstream at one address that changes what it does from connection to connection: it fails, and it recovers.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { answer } from './raw-server.ts';
import type { TestLeaf } from './test-authority.ts';

/** What is done with a new connection. */
export type Behaviour = (socket: Socket, connectionIndex: number) => void;

/** Is called for every chunk that comes, with all that the connection has sent so far; `raw` lies under the TLS session. */
export type Talk = (socket: TLSSocket, received: string, raw: Socket) => void;

export interface FaultServer {
  readonly port: number;
  /** Number of connections that were made so far. */
  readonly connectionCount: number;
  /** New connections get this from now on. */
  become(behaviour: Behaviour): void;
  /** Stops listening and cuts what is open: connections are refused until `listen`. */
  refuse(): Promise<void>;
  listen(): Promise<void>;
  close(): Promise<void>;
}

/** Shakes hands with a leaf, and lets `serve` do the rest; `raw` lies under the TLS session. */
export function overTls(
  leaf: TestLeaf,
  serve: (socket: TLSSocket, raw: Socket) => void,
  protocol: 'http/1.1' | 'h2' = 'http/1.1',
): Behaviour {
  const secureContext = createSecureContext(leaf);
  return (raw) => {
    const socket = new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols: [protocol] });
    socket.on('error', () => raw.destroy());
    raw.once('close', () => socket.destroy());
    serve(socket, raw);
  };
}

/** Talks HTTP/1.1, or what it takes for it. */
export function talking(leaf: TestLeaf, talk: Talk): Behaviour {
  return overTls(leaf, (socket, raw) => {
    let received = '';
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
      talk(socket, received, raw);
    });
  });
}

/** Answers `ok` to every request without a body. */
export const answerOk: Talk = (socket, received) => {
  if (received.endsWith('\r\n\r\n')) socket.write(answer('ok'));
};

/** Starts it; until told otherwise it closes every connection at once. */
export async function startFaultServer(): Promise<FaultServer> {
  const open = new Set<Socket>();
  let count = 0;
  let behave: Behaviour = (socket) => socket.destroy();
  let server: Server;
  let port = 0;
  const listen = async (): Promise<void> => {
    server = createServer((socket) => {
      open.add(socket);
      socket.on('error', () => socket.destroy());
      socket.once('close', () => open.delete(socket));
      count += 1;
      behave(socket, count - 1);
    });
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    ({ port } = server.address() as AddressInfo);
  };
  const refuse = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of open) socket.destroy();
    await closed;
  };
  await listen();
  return {
    get port() {
      return port;
    },
    get connectionCount() {
      return count;
    },
    become(behaviour) {
      behave = behaviour;
    },
    refuse,
    listen,
    async close() {
      if (server.listening) await refuse();
    },
  };
}
