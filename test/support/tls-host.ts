// A server that speaks TLS with a given context, and a client that says what it made of it.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { checkServerIdentity, connect, TLSSocket, type ConnectionOptions, type SecureContext } from 'node:tls';

export interface TlsHost {
  readonly port: number;
  /** What the last handshake that failed said on the server's side. */
  lastError(): string | undefined;
  close(): Promise<void>;
}

/** Each connection is one handshake; the context is asked for at each, as the proxy does. */
export async function openTlsHost(contextFor: () => SecureContext | Promise<SecureContext>): Promise<TlsHost> {
  const sockets = new Set<Socket>();
  let lastError: string | undefined;
  const serve = async (socket: Socket): Promise<void> => {
    const secure = new TLSSocket(socket, { isServer: true, secureContext: await contextFor() });
    secure.on('error', (error: Error) => {
      lastError = error.message;
    });
    secure.end('served');
  };
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    serve(socket).catch((error: unknown) => socket.destroy(error as Error));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    lastError: () => lastError,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

export interface Handshake {
  readonly isSessionReused: boolean;
  readonly protocol: string | null;
  /** Name of the cipher suite by IANA. */
  readonly cipher: string;
  readonly session: Buffer | undefined;
  /** Certificates that came with the leaf. */
  readonly chainLength: number;
  readonly text: string;
}

/** One verified handshake with `host`, whose server is at the port; rejects as a client would. */
export async function handshake(
  host: string,
  options: ConnectionOptions & { readonly port: number },
): Promise<Handshake> {
  const bare = host.replaceAll(/[[\]]/g, '');
  const isAddress = /^[0-9.]+$|:/.test(bare);
  const socket = connect({
    host: '127.0.0.1',
    ...(isAddress ? {} : { servername: bare }),
    checkServerIdentity: (_, certificate) => checkServerIdentity(bare, certificate),
    ...options,
  });
  let session: Buffer | undefined;
  let text = '';
  socket.on('session', (bytes) => {
    session = bytes;
  });
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  try {
    await once(socket, 'secureConnect');
    const isSessionReused = socket.isSessionReused();
    const protocol = socket.getProtocol();
    const cipher = socket.getCipher().standardName;
    const chainLength = countIssuers(socket);
    await once(socket, 'end');
    return { isSessionReused, protocol, cipher, session, chainLength, text };
  } finally {
    socket.destroy();
  }
}

function countIssuers(socket: TLSSocket): number {
  let count = 0;
  let certificate = socket.getPeerX509Certificate()?.issuerCertificate;
  for (; certificate !== undefined; certificate = certificate.issuerCertificate) count += 1;
  return count;
}
