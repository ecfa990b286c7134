// Backup of the control database while it is served; the master key is never part of it.
import { constants, existsSync, fsyncSync, openSync, closeSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { StartError } from '../model/errors.ts';
import { dataPathsOf } from './data-directory.ts';
import { createPrivateFile, faultCodeOf, openConnection, singleFile, syncDirectory } from './database.ts';
import { foreignNote } from './file-owner.ts';

// Enough to be done in one go: between two goes a writer of another process would make SQLite begin anew.
const PAGES_PER_STEP = 100_000;

function syncFile(path: string): void {
  const descriptor = openSync(path, constants.O_RDWR);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Copies `keyveil.db` of a data directory into a new file of mode 0600, as of one moment, with the daemon running or
 * not. Rejects with a StartError when the file exists or the database can't be read.
 */
export async function backupStore(directory: string, file: string): Promise<void> {
  const source = dataPathsOf(directory).controlDatabase;
  if (!existsSync(source))
    throw new StartError(`There is no database in ${directory}. Give the daemon's data directory.`);
  if (existsSync(file)) throw new StartError(`${file} exists already. Give the backup a name of its own.`);
  const draft = `${file}.part`;
  rmSync(draft, { force: true });
  try {
    createPrivateFile(draft);
    const database = openConnection(source, { readonly: true });
    try {
      await database.backup(draft, { progress: () => PAGES_PER_STEP });
    } finally {
      database.close();
    }
    singleFile(draft);
    syncFile(draft);
    renameSync(draft, file);
    syncDirectory(dirname(file));
  } catch (error) {
    rmSync(draft, { force: true });
    throw new StartError(
      `The backup of ${source} into ${file} failed (${faultCodeOf(error)}). Give a file in a folder that this user can write.${foreignNote([source])}`,
      {
        cause: error,
      },
    );
  }
}
