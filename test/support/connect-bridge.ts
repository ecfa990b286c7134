// A TCP port of which each connection is a tunnel through the proxy: for programs that know no CONNECT.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';

interface ConnectBridge {
  readonly port: number;
  close(): Promise<void>;
}

/** `connect` sends the CONNECT, with the login of a session, and gives the socket after the 200. */
export async function openConnectBridge(connect: () => Promise<Socket>): Promise<ConnectBridge> {
  const open = new Set<Socket>();
  const server = createServer({ pauseOnConnect: true }, (client) => {
    open.add(client);
    client.on('error', () => client.destroy());
    connect().then(
      (tunnel) => {
        open.add(tunnel);
        tunnel.on('error', () => client.destroy());
        tunnel.once('close', () => client.destroy());
        client.once('close', () => tunnel.destroy());
        client.pipe(tunnel);
        tunnel.pipe(client);
      },
      () => client.destroy(),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
