// Whether the system lets this process open as many files as its limits of connections may ask for.
import { existsSync, readFileSync } from 'node:fs';
import * as limits from '../model/limits.ts';

/**
 * Descriptors that one process may need at its limits: two for each proxied connection, one for each that has shown no
 * session yet, those of the admin port and its streams, and the daemon's own files.
 */
export const DESCRIPTORS_NEEDED =
  2 * limits.TUNNELS_MAX +
  limits.UNAUTHENTICATED_SOCKETS_MAX +
  limits.ADMIN_CONNECTIONS_MAX +
  limits.AUDIT_STREAMS_MAX +
  limits.DESCRIPTORS_BESIDE_CONNECTIONS;

/**
 * Says, in a sentence, what to set where the limit of open files (RLIMIT_NOFILE, getrlimit(2)) is lower than that: beyond
 * it, connections are closed without an answer. Null where it is high enough or can't be told: systems without /proc.
 * Node.js raises its soft limit to the hard one by itself. `directory` is the process's directory in /proc.
 */
export function warnOfFewDescriptors(directory = '/proc/self'): string | null {
  const path = `${directory}/limits`;
  if (!existsSync(path)) return null;
  const soft = /^Max open files +(\d+) /m.exec(readFileSync(path, 'latin1'))?.[1];
  if (soft === undefined || Number(soft) >= DESCRIPTORS_NEEDED) return null;
  return (
    `This process may open ${soft} files, and needs up to ${DESCRIPTORS_NEEDED} at its limits of connections: beyond, ` +
    'connections are closed without an answer. Raise the hard limit ' +
    `(ulimit -Hn ${DESCRIPTORS_NEEDED}, LimitNOFILE=${DESCRIPTORS_NEEDED}, or ulimits: {nofile: ${DESCRIPTORS_NEEDED}} for a container).`
  );
}
