// Reads streams as chunks and gives chunks as streams, without ever destroying the client's request.
import { Readable } from 'node:stream';
import { KeyveilError } from '../../model/errors.ts';
import { BODY_BATCH_BYTES } from '../../model/limits.ts';
import type { BodyFraming } from '../exchange.ts';
import type { Decoder } from './decoder.ts';

type Chunks = AsyncIterable<Buffer>;

/**
 * The chunks of a stream, as they come. Leaving early leaves the stream paused, not destroyed: an answer to its request
 * may still have to be sent on the same connection. Throws the stream's error, the signal's reason, or `bad_request`
 * when the stream closed before its end.
 */
export async function* chunksOf(input: Readable, signal: AbortSignal): AsyncGenerator<Buffer, void> {
  let wake = (): void => undefined;
  const notice = (): void => wake();
  const events = ['readable', 'end', 'error', 'close'];
  for (const event of events) input.on(event, notice);
  signal.addEventListener('abort', notice);
  try {
    for (;;) {
      signal.throwIfAborted();
      const chunk = input.read() as Buffer | null;
      if (chunk !== null) {
        yield chunk;
        continue;
      }
      if (input.readableEnded) return;
      if (input.errored) throw input.errored;
      if (input.destroyed) throw new KeyveilError('bad_request', 'The request body ended before it was complete.');
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    for (const event of events) input.off(event, notice);
    signal.removeEventListener('abort', notice);
  }
}

/**
 * Counts the chunks of one body, which may be read in several parts, and throws `bad_request` at its end when a length
 * was stated and isn't met: what is cut short must not look complete.
 */
export function createLengthCheck(framing: BodyFraming): (chunks: Chunks) => AsyncGenerator<Buffer, void> {
  let bytes = 0;
  return async function* checked(chunks) {
    for await (const chunk of chunks) {
      bytes += chunk.length;
      yield chunk;
    }
    if (framing.kind !== 'length' || framing.bytes === bytes) return;
    throw new KeyveilError(
      'bad_request',
      `The request body has ${bytes} bytes, but its Content-Length says ${framing.bytes}.`,
    );
  };
}

/** Resolves when the decoder takes more, or never will. */
function drained(decoder: Decoder): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      decoder.off('drain', done);
      decoder.off('close', done);
      resolve();
    };
    decoder.on('drain', done);
    decoder.on('close', done);
  });
}

async function feed(source: Chunks, decoder: Decoder): Promise<void> {
  try {
    for await (const chunk of source) {
      if (decoder.destroyed) return;
      if (!decoder.write(chunk)) await drained(decoder);
    }
    decoder.end();
  } catch (error) {
    decoder.destroy(error as Error);
  }
}

/** What the decoder makes of the chunks. Throws the source's error or a `ContentCodingError`. */
export async function* decodeChunks(source: Chunks, decoder: Decoder): AsyncGenerator<Buffer, void> {
  const fed = feed(source, decoder);
  yield* decoder as AsyncIterable<Buffer>;
  await fed;
}

/** The chunks that `generate` makes, asked for only as they are read. */
class ChunkStream extends Readable {
  readonly #chunks: AsyncGenerator<Buffer, void>;
  readonly #abortion = new AbortController();

  constructor(generate: (signal: AbortSignal) => AsyncGenerator<Buffer, void>, signal: AbortSignal) {
    super({ highWaterMark: BODY_BATCH_BYTES });
    this.#chunks = generate(AbortSignal.any([signal, this.#abortion.signal]));
  }

  override _read(): void {
    this.#chunks.next().then(
      ({ done, value }) => this.push(done === true ? null : value),
      (error: unknown) => this.destroy(error as Error),
    );
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#abortion.abort();
    this.#chunks.return().then(
      () => done(error),
      (failure: unknown) => done(error ?? (failure as Error)),
    );
  }
}

/** A readable stream of chunks; destroying it aborts the signal that `generate` is given. */
export function streamOf(
  generate: (signal: AbortSignal) => AsyncGenerator<Buffer, void>,
  signal: AbortSignal,
): Readable {
  return new ChunkStream(generate, signal);
}
