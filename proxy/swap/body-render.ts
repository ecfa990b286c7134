// The two passes over a body: one that measures what the swap makes of it, and one that makes it.
import { KeyveilError } from '../../model/errors.ts';
import { headerValue, withHeader, withoutHeaders, type BodyFraming, type RawHeaders } from '../exchange.ts';
import type { BodyClass } from './body-class.ts';
import type { BodyResources } from './body-resources.ts';
import { decodeChunks } from './body-streams.ts';
import { BodySwapper, joinPieces } from './body-swapper.ts';
import { ContentCodingError, type ContentCoding } from './content-coding.ts';
import { createDecoder, type Decoder } from './decoder.ts';
import type { SwapPlan } from './plan.ts';
import { encodeStored, storedFormatOf, storedLength, type StoredEncoder, type StoredFormat } from './stored-blocks.ts';
import { SwapTally } from './tally.ts';

export interface PrepareBodyOptions {
  readonly plan: SwapPlan;
  /** Of the request as it would go upstream, without hop-by-hop fields. */
  readonly headers: RawHeaders;
  readonly framing: BodyFraming;
  /** Such a body needs no length, so that a long one is not spooled. */
  readonly upstreamIsHttp2: boolean;
  readonly resources: BodyResources;
  readonly sessionId: string;
  readonly signal: AbortSignal;
}

/** One body that is to be swapped. */
export interface BodyJob extends PrepareBodyOptions {
  readonly bodyClass: Exclude<BodyClass, 'binary'>;
  readonly coding: ContentCoding | null;
  readonly tally: SwapTally;
}

type Chunks = AsyncIterable<Buffer>;

export interface Measured {
  /** Length of the swapped body as it is sent. */
  readonly bytes: number;
  readonly swapCount: number;
  /** How it will be encoded; null for not at all. */
  readonly format: StoredFormat | null;
}

function createSwapper(job: BodyJob, tally: SwapTally): BodySwapper {
  const { plan, bodyClass, resources } = job;
  return new BodySwapper({ plan, bodyClass, location: 'body', growthBytes: resources.growthBytes, tally });
}

/** Counts what the swap will make of a body. Throws what the swap throws, or a `ContentCodingError`. */
export async function measure(chunks: Chunks, job: BodyJob): Promise<Measured> {
  const decoder = job.coding === null ? null : createDecoder(job.coding, job.resources.decoderLimits);
  const swapper = createSwapper(job, job.tally);
  let bytes = 0;
  for await (const chunk of decoder === null ? chunks : decodeChunks(chunks, decoder)) {
    for (const piece of swapper.push(chunk)) bytes += piece.length;
  }
  for (const piece of swapper.end()) bytes += piece.length;
  const format = storedFormatOf(decoder?.format);
  return { bytes: format === null ? bytes : storedLength(format, bytes), swapCount: swapper.swapCount, format };
}

/** The swapped body in the pieces in which it is sent, of a body that was measured: its length is the measured one. */
export async function* render(chunks: Chunks, job: BodyJob): AsyncGenerator<Buffer, void> {
  const decoder = job.coding === null ? null : createDecoder(job.coding, job.resources.decoderLimits);
  // What is swapped was counted while it was measured.
  const swapper = createSwapper(job, new SwapTally());
  let encoder: StoredEncoder | null = null;
  for await (const chunk of decoder === null ? chunks : decodeChunks(chunks, decoder)) {
    encoder ??= encoderOf(decoder);
    yield* joinPieces(encodePieces(swapper.push(chunk), encoder));
  }
  yield* joinPieces(encodeEnd(swapper, encoder));
}

/** As `render`, for a body whose length nobody knows: what comes in goes out at once. */
export async function* renderLive(
  decoded: Chunks,
  job: BodyJob,
  decoder: Decoder | null,
): AsyncGenerator<Buffer, void> {
  const swapper = createSwapper(job, job.tally);
  let encoder: StoredEncoder | null = null;
  for await (const chunk of decoded) {
    encoder ??= encoderOf(decoder);
    yield* joinPieces(encodePieces(swapper.push(chunk), encoder));
    if (encoder !== null) yield* joinPieces(encoder.flush());
  }
  yield* joinPieces(encodeEnd(swapper, encoder ?? encoderOf(decoder)));
}

/** Called once the decoder has given a chunk, or its end: then it knows its format. */
function encoderOf(decoder: Decoder | null): StoredEncoder | null {
  const format = storedFormatOf(decoder?.format);
  return format === null ? null : encodeStored(format);
}

function* encodePieces(pieces: Iterable<Buffer>, encoder: StoredEncoder | null): Generator<Buffer, void> {
  if (encoder === null) yield* pieces;
  else for (const piece of pieces) yield* encoder.push(piece);
}

function* encodeEnd(swapper: BodySwapper, encoder: StoredEncoder | null): Generator<Buffer, void> {
  yield* encodePieces(swapper.end(), encoder);
  if (encoder !== null) yield* encoder.end();
}

const CODING_NAMES: ReadonlySet<string> = new Set(['content-encoding']);
const LENGTH_NAMES: ReadonlySet<string> = new Set(['content-length']);

/** The fields of a body that is sent decoded: br and zstd have no form without compression that all can read. */
export function withCoding(headers: RawHeaders, job: BodyJob): RawHeaders {
  return job.coding === 'br' || job.coding === 'zstd' ? withoutHeaders(headers, CODING_NAMES) : headers;
}

export function withoutLength(headers: RawHeaders): RawHeaders {
  return withoutHeaders(headers, LENGTH_NAMES);
}

/** The fields with this length, under the name that the client wrote. */
export function withLength(headers: RawHeaders, bytes: number): RawHeaders {
  return headerValue(headers, 'content-length') === String(bytes)
    ? headers
    : withHeader(headers, 'Content-Length', String(bytes));
}

/** What a client is told about a body that can't be decoded. */
export function explainCodingError(error: unknown, coding: ContentCoding | null): unknown {
  if (!(error instanceof ContentCodingError)) return error;
  const reason =
    error.fault === 'bomb'
      ? `decodes to far more than ${coding} data of its size may hold. Send it in parts`
      : `is not whole ${coding} data, as its Content-Encoding says. Send all of it, or without that field`;
  return new KeyveilError('bad_request', `The request body ${reason}.`, { cause: error });
}
