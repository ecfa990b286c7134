// Bodies of known length: read whole into memory or onto the disk, measured, then sent with their exact length.
import type { Readable } from 'node:stream';
import { BODY_BATCH_BYTES } from '../../model/limits.ts';
import type { RawHeaders } from '../exchange.ts';
import {
  explainCodingError,
  measure,
  render,
  withCoding,
  withLength,
  type BodyJob,
  type Measured,
} from './body-render.ts';
import type { Lease } from './body-resources.ts';
import { chunksOf, createLengthCheck, streamOf } from './body-streams.ts';
import { joined } from './body-swapper.ts';
import { ContentCodingError } from './content-coding.ts';
import { holdsBodyDigest, withBodyDigests, withoutBodyDigests } from './digests.ts';
import { preparedBody, recordUnsupported, type PreparedBody } from './prepared-body.ts';
import { holdsMarker } from './scanner.ts';
import type { SpoolFile } from './spool-file.ts';

/** A body that can be read again and again. */
interface KeptBody {
  /** All of it, if it is in memory. */
  readonly whole: Buffer | null;
  chunks(): AsyncGenerator<Buffer, void>;
  dispose(): void;
}

async function* slicesOf(whole: Buffer): AsyncGenerator<Buffer, void> {
  for (let start = 0; start < whole.length; start += BODY_BATCH_BYTES) {
    yield whole.subarray(start, start + BODY_BATCH_BYTES);
  }
}

async function readWhole(input: Readable, job: BodyJob): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of createLengthCheck(job.framing)(chunksOf(input, job.signal))) chunks.push(chunk);
  return chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
}

/** Reads the body into memory; null when it is too long for that, or too much is there already. */
export async function prepareBuffered(input: Readable, bytes: number, job: BodyJob): Promise<PreparedBody | null> {
  const { resources, sessionId } = job;
  if (bytes > resources.bufferBytes) return null;
  const lease = resources.reserveMemory(sessionId, bytes);
  if (lease === null) return null;
  try {
    const whole = await readWhole(input, job);
    const kept: KeptBody = { whole, chunks: () => slicesOf(whole), dispose: () => lease.release() };
    if (job.coding === null && !holdsMarker(whole)) return original(kept, job);
    return await prepareKept(kept, job, await measureKept(kept.chunks(), job));
  } catch (error) {
    lease.release();
    throw error;
  }
}

/** In larger pieces: each costs a write to the disk, and a search, of its own. */
async function* inBatches(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let batch: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    batch.push(chunk);
    bytes += chunk.length;
    if (bytes < BODY_BATCH_BYTES) continue;
    yield joined(batch, bytes);
    batch = [];
    bytes = 0;
  }
  if (bytes > 0) yield joined(batch, bytes);
}

async function* spooling(chunks: AsyncIterable<Buffer>, file: SpoolFile): AsyncGenerator<Buffer, void> {
  for await (const chunk of chunks) {
    await file.write(chunk);
    yield chunk;
  }
}

/** Keeps the body on disk; null when the spool has no room. */
export async function prepareSpooled(input: Readable, bytes: number, job: BodyJob): Promise<PreparedBody | null> {
  const file = await job.resources.openSpool(bytes);
  if (file === null) return null;
  try {
    const kept: KeptBody = { whole: null, chunks: () => file.chunks(), dispose: () => void file.close() };
    const spooled = spooling(inBatches(createLengthCheck(job.framing)(chunksOf(input, job.signal))), file);
    if (job.coding === null) return await prepareKept(kept, job, await measure(spooled, job));
    for await (const _ of spooled);
    return await prepareKept(kept, job, await measureKept(kept.chunks(), job));
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Null when the body isn't in its coding. */
async function measureKept(chunks: AsyncIterable<Buffer>, job: BodyJob): Promise<Measured | null> {
  try {
    return await measure(chunks, job);
  } catch (error) {
    if (error instanceof ContentCodingError && error.fault === 'malformed') return null;
    throw explainCodingError(error, job.coding);
  }
}

function original(kept: KeptBody, job: BodyJob): PreparedBody {
  const { headers, framing, tally, signal } = job;
  const body = kept.whole ?? streamOf(() => kept.chunks(), signal);
  return preparedBody({ headers, framing, body, tally, onDispose: () => kept.dispose() });
}

async function prepareKept(kept: KeptBody, job: BodyJob, measured: Measured | null): Promise<PreparedBody> {
  if (measured === null) {
    recordUnsupported(job.plan, job.tally);
    return original(kept, job);
  }
  if (measured.swapCount === 0) return original(kept, job);
  const { bytes } = measured;
  const { tally, signal, resources, sessionId } = job;
  const headers = await withNewDigests(withCoding(withLength(job.headers, bytes), job), kept, job);
  const framing = { kind: 'length', bytes } as const;
  const isSmall = kept.whole !== null && bytes <= resources.bufferBytes;
  const lease = isSmall ? resources.reserveMemory(sessionId, bytes) : null;
  if (lease === null) {
    const body = streamOf(() => render(kept.chunks(), job), signal);
    return preparedBody({ headers, framing, body, tally, onDispose: () => kept.dispose() });
  }
  const body = await renderWhole(kept, job, lease);
  return preparedBody({ headers, framing, body, tally, onDispose: () => lease.release() });
}

async function renderWhole(kept: KeptBody, job: BodyJob, lease: Lease): Promise<Buffer> {
  try {
    const pieces: Buffer[] = [];
    for await (const piece of render(kept.chunks(), job)) pieces.push(piece);
    kept.dispose();
    return Buffer.concat(pieces);
  } catch (error) {
    lease.release();
    throw error;
  }
}

async function withNewDigests(headers: RawHeaders, kept: KeptBody, job: BodyJob): Promise<RawHeaders> {
  if (!holdsBodyDigest(headers)) return headers;
  return kept.whole === null ? withoutBodyDigests(headers) : withBodyDigests(headers, render(kept.chunks(), job));
}
