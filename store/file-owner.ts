// Whose a new file is: root that works in another user's data directory leaves files that this user can go on with.
import { fchownSync, lstatSync } from 'node:fs';
import { dirname } from 'node:path';
import { StartError } from '../model/errors.ts';

/** User and group as the system numbers them. */
export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

/** User id that files are made under; undefined where the system has none. */
function ownUserId(): number | undefined {
  return process.geteuid?.();
}

/** Owner of the file of that name, else of the folder that it would be in. Throws what the system throws. */
export function ownerFor(path: string): FileOwner {
  const { uid, gid } = lstatSync(path, { throwIfNoEntry: false }) ?? lstatSync(dirname(path));
  return { uid, gid };
}

/**
 * Gives an open, new file to its owner when root has made it; anybody else's stays as it is. By the descriptor, since a
 * name could be made to lead elsewhere by the owner of the folder. Throws a StartError that names `path`.
 */
export function giveTo(descriptor: number, owner: FileOwner, file: { path: string; userId?: number }): void {
  const userId = file.userId ?? ownUserId();
  if (userId !== 0) return;
  try {
    fchownSync(descriptor, owner.uid, owner.gid);
  } catch (error) {
    throw new StartError(
      `${file.path} can't be given to user ${owner.uid}, whose file or folder it replaces or is in ` +
        `(${String((error as NodeJS.ErrnoException).code)}). Run the command as that user.`,
      { cause: error },
    );
  }
}

/**
 * Throws a StartError when the file belongs to another user and this process is not root: its replacement would be out
 * of reach for whoever uses it.
 */
export function requireOwner(path: string, userId: number | undefined = ownUserId()): void {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined || userId === undefined || userId === 0 || stats.uid === userId) return;
  throw new StartError(
    `${path} belongs to user ${stats.uid}, and this is user ${userId}. Run the command as that user, or as root; nothing was changed.`,
  );
}

/** ` NAME belongs to user 0, and this is user 1000…`, for the end of an error's message; empty when all are this user's. */
export function foreignNote(paths: readonly string[], userId: number | undefined = ownUserId()): string {
  for (const path of paths) {
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats === undefined || stats.uid === userId) continue;
    return ` ${path} belongs to user ${stats.uid}, and this is user ${String(userId)}: run the command as that user, or give the file to this one by chown.`;
  }
  return '';
}
