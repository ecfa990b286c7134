// A proxy as companies run them: CONNECT alone, with a Basic login, to hosts that only it can resolve.
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';

export interface CorporateProxy {
  readonly port: number;
  /** `host:port` and login of each CONNECT. */
  readonly asked: readonly { readonly target: string; readonly login: string | undefined }[];
  close(): Promise<void>;
}

/** `hosts` leads from `host:port` to a port of 127.0.0.1; the login is `user:password`. */
export async function startCorporateProxy(
  hosts: Readonly<Record<string, number>>,
  login: string,
): Promise<CorporateProxy> {
  const asked: { target: string; login: string | undefined }[] = [];
  const sockets = new Set<Socket>();
  const track = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => sockets.delete(socket));
  };
  const server = createServer((_request, response) => response.writeHead(501).end());
  server.on('connection', track);
  server.on('connect', (request: IncomingMessage, client: Socket, head: Buffer) => {
    const target = request.url ?? '';
    asked.push({ target, login: request.headers['proxy-authorization'] });
    const isAdmitted = request.headers['proxy-authorization'] === `Basic ${Buffer.from(login).toString('base64')}`;
    const port = hosts[target];
    if (!isAdmitted || port === undefined) {
      const [status, field] = isAdmitted
        ? ['403 Forbidden', '']
        : ['407 Proxy Authentication Required', 'Proxy-Authenticate: Basic realm="company"\r\n'];
      client.end(`HTTP/1.1 ${status}\r\n${field}Content-Length: 0\r\n\r\n`);
      return;
    }
    const onward = connect(port, '127.0.0.1', () => {
      client.write('HTTP/1.1 200 Connection established\r\nVia: 1.1 company\r\n\r\n');
      onward.write(head);
      client.pipe(onward).pipe(client);
    });
    track(onward);
    client.once('close', () => onward.destroy());
    onward.once('close', () => client.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    asked,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
