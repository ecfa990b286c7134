// Bodies of unknown length, and those that can be kept nowhere: swapped while they pass.
import type { Readable } from 'node:stream';
import { CODING_PROBE_BYTES_MAX } from '../../model/limits.ts';
import { explainCodingError, renderLive, withCoding, withoutLength, type BodyJob } from './body-render.ts';
import { chunksOf, createLengthCheck, decodeChunks, streamOf } from './body-streams.ts';
import { createDecoder, type Decoder } from './decoder.ts';
import { withoutBodyDigests } from './digests.ts';
import { preparedBody, recordUnsupported, type PreparedBody } from './prepared-body.ts';

/**
 * Swaps a body while it passes. Of an encoded one, the start is awaited here: until its first decoded byte, a body that
 * turns out not to be in its coding can still go on as it is.
 */
export async function prepareStreamed(input: Readable, job: BodyJob): Promise<PreparedBody> {
  const { coding, tally, plan, signal, resources } = job;
  const headers = withoutBodyDigests(withoutLength(withCoding(job.headers, job)));
  const framing = { kind: 'stream' } as const;
  const check = createLengthCheck(job.framing);
  if (coding === null) {
    const body = streamOf((aborted) => renderLive(check(chunksOf(input, aborted)), job, null), signal);
    return preparedBody({ headers, framing, body, tally });
  }
  const decoder = createDecoder(coding, resources.decoderLimits);
  const onDispose = (): void => void decoder.destroy();
  const start = await decodeStart(check(chunksOf(input, signal)), decoder);
  if (decoder.errored === null) {
    const body = streamOf((aborted) => renderDecoded(check(chunksOf(input, aborted)), job, decoder), signal);
    return preparedBody({ headers, framing, body, tally, onDispose });
  }
  recordUnsupported(plan, tally);
  const body = streamOf((aborted) => joined(start, check(chunksOf(input, aborted))), signal);
  return preparedBody({ headers: job.headers, framing: job.framing, body, tally, onDispose });
}

/** Feeds the decoder until it gives or fails, or the input ends; returns what it was fed. */
async function decodeStart(chunks: AsyncIterable<Buffer>, decoder: Decoder): Promise<Buffer[]> {
  const start: Buffer[] = [];
  let bytes = 0;
  // A failure is read from the decoder, here or by who iterates it.
  decoder.on('error', () => undefined);
  try {
    for await (const chunk of chunks) {
      start.push(chunk);
      bytes += chunk.length;
      await settled(decoder, (done) => decoder.write(chunk, done));
      if (decoder.readableLength > 0 || decoder.destroyed || bytes > CODING_PROBE_BYTES_MAX) return start;
    }
    await settled(decoder, (done) => decoder.end(done));
    return start;
  } catch (error) {
    decoder.destroy();
    throw error;
  }
}

/** Resolves when the decoder has dealt with what `act` gives it, or has something to read, or is broken. */
function settled(decoder: Decoder, act: (done: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      decoder.off('readable', look);
      decoder.off('close', done);
      resolve();
    };
    const look = (): void => {
      if (decoder.readableLength > 0) done();
    };
    decoder.on('readable', look);
    decoder.on('close', done);
    act(done);
  });
}

async function* renderDecoded(
  rest: AsyncIterable<Buffer>,
  job: BodyJob,
  decoder: Decoder,
): AsyncGenerator<Buffer, void> {
  try {
    yield* renderLive(decodeChunks(rest, decoder), job, decoder);
  } catch (error) {
    throw explainCodingError(error, job.coding);
  }
}

async function* joined(start: readonly Buffer[], rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  yield* start;
  yield* rest;
}
