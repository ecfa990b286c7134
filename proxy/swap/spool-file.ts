// A file without a name that keeps a body as it came, placeholders and all, until it has been sent.
import { randomBytes } from 'node:crypto';
import { constants, type FileHandle, mkdir, open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { KeyveilError } from '../../model/errors.ts';
import { SPOOL_READ_BYTES } from '../../model/limits.ts';

export interface SpoolFile {
  /** Appends. Rejects with `overloaded` when the disk does not take it. */
  write(chunk: Buffer): Promise<void>;
  /** What was written, from its start; several readers don't disturb each other. */
  chunks(): AsyncGenerator<Buffer, void>;
  /** `listener` is called once, when the file has been closed. */
  onClose(listener: () => void): void;
  /** Lets the disk have its space back. Never rejects; can be called again. */
  close(): Promise<void>;
}

const FLAGS = constants.O_CREAT | constants.O_EXCL | constants.O_RDWR | constants.O_NOFOLLOW;
const NAME_BYTES = 16;

function spoolFailed(cause: unknown): KeyveilError {
  const { code = 'unknown error' } = cause as NodeJS.ErrnoException;
  return new KeyveilError(
    'overloaded',
    `The spool folder can't take the body (${code}). Check the space and the permissions of the data folder.`,
    { cause },
  );
}

async function openUnlinked(directory: string): Promise<FileHandle> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, randomBytes(NAME_BYTES).toString('hex'));
  const handle = await open(path, FLAGS, 0o600);
  await unlink(path);
  return handle;
}

/** Opens a new file. Rejects with `overloaded` when the folder does not take it. */
export async function openSpoolFile(directory: string): Promise<SpoolFile> {
  let handle: FileHandle;
  try {
    handle = await openUnlinked(directory);
  } catch (error) {
    throw spoolFailed(error);
  }
  let bytesWritten = 0;
  let closing: Promise<void> | null = null;
  let notify = (): void => undefined;

  async function write(chunk: Buffer): Promise<void> {
    try {
      for (let start = 0; start < chunk.length;) {
        const result = await handle.write(chunk, start, chunk.length - start, bytesWritten);
        start += result.bytesWritten;
        bytesWritten += result.bytesWritten;
      }
    } catch (error) {
      throw spoolFailed(error);
    }
  }

  async function read(position: number): Promise<Buffer> {
    const buffer = Buffer.allocUnsafeSlow(Math.min(SPOOL_READ_BYTES, bytesWritten - position));
    try {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
      /* c8 ignore next -- nobody else can reach a file without a name, but a loop without end would be the price */
      if (bytesRead === 0) throw new Error('The spool file is shorter than what was written to it.');
      return buffer.subarray(0, bytesRead);
    } catch (error) {
      throw spoolFailed(error);
    }
  }

  async function* chunks(): AsyncGenerator<Buffer, void> {
    for (let position = 0; position < bytesWritten;) {
      const chunk = await read(position);
      position += chunk.length;
      yield chunk;
    }
  }

  return {
    write,
    chunks,
    onClose(listener) {
      notify = listener;
    },
    close() {
      // The descriptor is gone even when close(2) fails, and a file without a name has nothing to lose.
      closing ??= handle.close().then(
        () => notify(),
        () => notify(),
      );
      return closing;
    },
  };
}
