// Binds the admin API to its port and to the Unix socket, with errors that say what to change.
import { once } from 'node:events';
import { chmodSync, existsSync, lstatSync, unlinkSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { StartError } from '../model/errors.ts';
import { acquireDataLock, dataPathsOf } from '../store/data-directory.ts';
import type { ListenAddress } from './config-parse.ts';

// sockaddr_un on Linux; macOS has 104.
const SOCKET_PATH_BYTES_MAX = 103;

/** Path of the admin socket in a data directory. */
export function adminSocketPathOf(dataDir: string): string {
  return join(dataDir, 'admin.sock');
}

/** A StartError for a port that can't be bound; `variable` is what to change. */
export function explainListenError(
  error: unknown,
  address: { host: string; port: number },
  variable: string,
): StartError {
  const { code } = error as NodeJS.ErrnoException;
  const where = `${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`;
  const reasons: Record<string, string> = {
    EADDRINUSE: 'another program has it. Stop that program, or choose another port',
    EACCES:
      'this user may not bind it (ports below 1024 are for root, or for CAP_NET_BIND_SERVICE). Take a higher port',
    EADDRNOTAVAIL: 'this machine has no such address. Take one that it has',
  };
  const reason = reasons[code ?? ''] ?? `${code ?? 'unknown error'}`;
  return new StartError(`${where} can't be listened on: ${reason}: set ${variable}.`, {
    cause: error,
  });
}

/** Whether the socket can be made, as far as its path goes. Throws a StartError. */
function requireSocketPath(path: string): void {
  if (Buffer.byteLength(path) > SOCKET_PATH_BYTES_MAX) {
    throw new StartError(
      `The path of the admin socket, ${path}, is longer than ${SOCKET_PATH_BYTES_MAX} bytes. Give a shorter KEYVEIL_DATA_DIR.`,
    );
  }
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat !== undefined && !stat.isSocket())
    throw new StartError(`${path} is in the way: it is not a socket. Move it elsewhere.`);
}

/**
 * Makes way for the socket: a socket that an earlier daemon left is removed, since the directory's lock is held; any
 * other file is left alone. Throws a StartError.
 */
export function prepareSocketPath(path: string): void {
  requireSocketPath(path);
  if (existsSync(path)) unlinkSync(path);
}

async function bind(address: ListenAddress, variable: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen({ host: address.host, port: address.port });
  try {
    await once(server, 'listening');
  } catch (error) {
    throw explainListenError(error, address, variable);
  }
  return server;
}

async function unbind(server: Server): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  await closed;
}

/**
 * Binds both addresses and frees them again, before anything is made: a start that finds one taken changes nothing.
 * Rejects with a StartError; a daemon that serves the same directory is named as such.
 */
export async function requireFreeAddresses(config: {
  readonly dataDir: string;
  readonly adminListen: ListenAddress;
  readonly proxyListen: ListenAddress;
}): Promise<void> {
  requireSocketPath(adminSocketPathOf(config.dataDir));
  const bound: Server[] = [];
  try {
    bound.push(await bind(config.adminListen, 'KEYVEIL_ADMIN_LISTEN'));
    bound.push(await bind(config.proxyListen, 'KEYVEIL_PROXY_LISTEN'));
  } catch (error) {
    if (existsSync(dataPathsOf(config.dataDir).controlDatabase)) acquireDataLock(config.dataDir).release();
    throw error;
  } finally {
    await Promise.all(bound.map(unbind));
  }
}

/** Runs `listen` while new files get mode 0600 at most, then makes sure of it. */
export async function listenPrivately(path: string, listen: () => Promise<unknown>): Promise<void> {
  const before = process.umask(0o177);
  try {
    await listen();
  } finally {
    process.umask(before);
  }
  chmodSync(path, 0o600);
}
