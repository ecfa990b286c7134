// Folders for the files of one command, with an error that says what to do where none can be made.
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../model/errors.ts';

/** Makes an empty folder of mode 0700 in `TMPDIR` (`/tmp` without it). Throws a StartError. */
export function makeTemporaryFolder(prefix: string): string {
  const parent = tmpdir();
  try {
    return mkdtempSync(join(parent, prefix));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new StartError(
      `No temporary folder can be made in ${parent} (${code}): name a directory that can be written by TMPDIR, or give a read-only container one by --tmpfs /tmp`,
      { cause: error },
    );
  }
}
