// What all request bodies together may take: memory for those that are read whole, and disk for those that are spooled.
import { KeyveilError } from '../../model/errors.ts';
import { DECODER_LIMITS, type DecoderLimits } from './content-coding.ts';
import { openSpoolFile, type SpoolFile } from './spool-file.ts';

/** All in bytes. */
export interface BodyResourcesOptions {
  /** Made with mode 0700 when it is needed. */
  readonly spoolDirectory: string;
  /** All spooled bodies together. */
  readonly spoolBytes: number;
  /** A body up to this length is read whole. */
  readonly bufferBytes: number;
  /** All bodies that are read whole together; one session may have a quarter of it. */
  readonly memoryBytes: number;
  /** What a swap may add to one body. */
  readonly growthBytes: number;
  readonly decoderLimits?: DecoderLimits;
}

/** A share that is held until it is released, once. */
export interface Lease {
  release(): void;
}

interface BodyUsage {
  readonly memoryBytes: number;
  readonly spoolBytes: number;
  readonly spoolFiles: number;
}

export interface BodyResources {
  readonly bufferBytes: number;
  readonly growthBytes: number;
  readonly decoderLimits: DecoderLimits;
  /** Null when it would be too much. */
  reserveMemory(sessionId: string, bytes: number): Lease | null;
  /** A new file for so many bytes, or null when the spool has no room. Rejects with `overloaded` when the disk fails. */
  openSpool(bytes: number): Promise<SpoolFile | null>;
  usage(): BodyUsage;
  /** Closes what is still open. */
  close(): Promise<void>;
}

const SESSION_SHARE = 4;

function stopping(): KeyveilError {
  return new KeyveilError('shutting_down', 'The daemon is stopping and takes no more bodies.');
}

export function createBodyResources(options: BodyResourcesOptions): BodyResources {
  const memoryBySession = new Map<string, number>();
  const files = new Set<SpoolFile>();
  let memoryBytes = 0;
  let spoolBytes = 0;
  let isClosed = false;

  function reserveMemory(sessionId: string, bytes: number): Lease | null {
    const ofSession = memoryBySession.get(sessionId) ?? 0;
    if (memoryBytes + bytes > options.memoryBytes) return null;
    if (ofSession + bytes > options.memoryBytes / SESSION_SHARE) return null;
    memoryBytes += bytes;
    memoryBySession.set(sessionId, ofSession + bytes);
    let isHeld = true;
    return {
      release() {
        if (!isHeld) return;
        isHeld = false;
        memoryBytes -= bytes;
        const rest = (memoryBySession.get(sessionId) as number) - bytes;
        if (rest === 0) memoryBySession.delete(sessionId);
        else memoryBySession.set(sessionId, rest);
      },
    };
  }

  async function openSpool(bytes: number): Promise<SpoolFile | null> {
    if (isClosed) throw stopping();
    if (spoolBytes + bytes > options.spoolBytes) return null;
    spoolBytes += bytes;
    const giveBack = (): void => {
      spoolBytes -= bytes;
    };
    const file = await openSpoolFile(options.spoolDirectory).catch((error: unknown) => {
      giveBack();
      throw error;
    });
    files.add(file);
    file.onClose(() => {
      giveBack();
      files.delete(file);
    });
    if (!isClosed) return file;
    await file.close();
    throw stopping();
  }

  return {
    bufferBytes: options.bufferBytes,
    growthBytes: options.growthBytes,
    decoderLimits: options.decoderLimits ?? DECODER_LIMITS,
    reserveMemory,
    openSpool,
    usage: () => ({ memoryBytes, spoolBytes, spoolFiles: files.size }),
    async close() {
      isClosed = true;
      await Promise.all([...files].map((file) => file.close()));
    },
  };
}
