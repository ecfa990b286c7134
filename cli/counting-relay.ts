// A relay in front of the proxy for doctor: whether a client came at all shows in no log when it hung up on the certificate.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface CountingRelay {
  readonly port: number;
  connections(): number;
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 5000;

const PROBLEMS: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the name does not resolve',
  EAI_AGAIN: 'the name does not resolve, since no name server answers',
  ECONNREFUSED: 'nothing listens there',
  ETIMEDOUT: 'no answer',
  EHOSTUNREACH: 'there is no way to that host',
  ENETUNREACH: 'there is no way to that network',
};

/** Null when a connection can be opened; else why not, for people. */
export async function whyUnreachable(target: { readonly host: string; readonly port: number }): Promise<string | null> {
  const signal = AbortSignal.timeout(CONNECT_TIMEOUT_MS);
  const socket = connect({ ...target, signal });
  try {
    await once(socket, 'connect');
    return null;
  } catch (error) {
    const code = signal.aborted ? 'ETIMEDOUT' : ((error as NodeJS.ErrnoException).code ?? 'unknown');
    return `${PROBLEMS[code] ?? 'it failed'} (${code})`;
  } finally {
    socket.on('error', () => undefined);
    socket.destroy();
  }
}

/** Listens on a port of 127.0.0.1 and passes every byte on, both ways. */
export async function openCountingRelay(target: {
  readonly host: string;
  readonly port: number;
}): Promise<CountingRelay> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((client) => {
    connections += 1;
    const proxy = connect(target);
    for (const socket of [client, proxy]) {
      sockets.add(socket);
      // A broken end breaks the other one too; the client reports it in its own words.
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        client.destroy();
        proxy.destroy();
        sockets.delete(socket);
      });
    }
    client.pipe(proxy).pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}
