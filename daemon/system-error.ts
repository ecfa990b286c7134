// An error of the file system in one line: which file, why, and what to do.
import { lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'it is not there',
  EEXIST: 'it is there already',
  EISDIR: 'it is a directory, and a file is needed',
  ELOOP: 'it is a symbolic link, or a loop of them',
  ENAMETOOLONG: 'the name is too long',
  EROFS: 'its file system is read-only',
  ENOSPC: 'its file system is full',
  EDQUOT: "this user's share of the disk is used up",
  EMFILE: 'this process has too many files open: raise the limit (ulimit -n)',
  ENFILE: 'this machine has too many files open',
  EBUSY: 'something else holds it',
  EIO: 'the disk fails',
};

/** The path and the folders above it, the outermost first. */
function pathAndAbove(path: string): string[] {
  const above = dirname(path);
  return above === path ? [path] : [...pathAndAbove(above), path];
}

function firstFile(path: string): string {
  const found = pathAndAbove(path).find((each) => {
    try {
      return !statSync(each).isDirectory();
    } catch {
      return false;
    }
  });
  return found ?? path;
}

/** The innermost of the path and its folders that can be looked at, which is the one that lets nobody further. */
function innermostSeen(path: string): { path: string; uid: number } | null {
  for (const each of pathAndAbove(path).reverse()) {
    try {
      return { path: each, uid: lstatSync(each).uid };
    } catch {
      // It is out of sight as well: its folder says more.
    }
  }
  return null;
}

function explainDenial(path: string): string {
  const seen = innermostSeen(path);
  const userId = process.geteuid?.();
  if (seen === null || userId === undefined) return 'this user has no right to: check owner and mode';
  const whose = seen.uid === userId ? 'its mode forbids it' : `it belongs to user ${seen.uid}`;
  const what = seen.path === path ? whose : `${seen.path} is in the way, and ${whose}`;
  return seen.uid === userId
    ? `${what}: change the mode, or name another`
    : `${what}, and this is user ${userId}: run the command as that user, or change the owner by chown`;
}

/**
 * What an error of the file system says to a person, such as `/data/keyveil.db can't be used (EACCES, open): …`; null
 * for errors of other kinds, and for those without a path.
 */
export function explainSystemError(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  const { code, syscall, path } = error as NodeJS.ErrnoException;
  if (typeof code !== 'string' || typeof path !== 'string' || typeof syscall !== 'string') return null;
  // Programs that can't be run and sockets that can't be reached are told of elsewhere.
  if (/^(?:spawn|connect|listen)/.test(syscall)) return null;
  const head = (name: string): string => `${name} can't be used (${code}, ${syscall})`;
  if (code === 'ENOTDIR') return `${head(firstFile(path))}: it is a file, and a directory is needed`;
  if (code === 'EACCES' || code === 'EPERM') return `${head(path)}: ${explainDenial(path)}`;
  return `${head(path)}: ${REASONS[code] ?? 'check the name and the file system'}`;
}
