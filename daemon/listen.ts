// Binds the admin API to its port and to the Unix socket, with errors that say what to change.
import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from '../model/errors.ts';

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
    EADDRINUSE: 'another program has it',
    EACCES: 'this user may not bind it',
    EADDRNOTAVAIL: 'this machine has no such address',
  };
  const reason = reasons[code ?? ''] ?? `${code ?? 'unknown error'}`;
  return new StartError(`${where} can't be listened on: ${reason}. Stop that program, or set ${variable}.`, {
    cause: error,
  });
}

/**
 * Makes way for the socket: a socket that an earlier daemon left is removed, since the directory's lock is held; any
 * other file is left alone. Throws a StartError.
 */
export function prepareSocketPath(path: string): void {
  if (Buffer.byteLength(path) > SOCKET_PATH_BYTES_MAX) {
    throw new StartError(
      `The path of the admin socket, ${path}, is longer than ${SOCKET_PATH_BYTES_MAX} bytes. Give a shorter KEYVEIL_DATA_DIR.`,
    );
  }
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket()) throw new StartError(`${path} is in the way: it is not a socket. Move it elsewhere.`);
  unlinkSync(path);
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
