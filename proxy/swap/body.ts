// Makes a request body ready for its upstream: swapped, framed anew where it must be, else byte for byte as it came.
import type { Readable } from 'node:stream';
import { bodyClassOf } from './body-class.ts';
import { prepareBuffered, prepareSpooled } from './body-known.ts';
import type { PrepareBodyOptions } from './body-render.ts';
import { prepareStreamed } from './body-streamed.ts';
import { chunksOf, streamOf } from './body-streams.ts';
import { codingOf } from './content-coding.ts';
import { createBodyObserver } from './observer.ts';
import { preparedBody, recordUnsupported, type PreparedBody } from './prepared-body.ts';
import { SwapTally } from './tally.ts';

const NO_BYTES = Buffer.alloc(0);

/**
 * Prepares a body. One of known length is read whole, to memory or disk, before this resolves, so that every refusal
 * comes before a byte of the request has gone upstream: `swap_too_large`, `credential_unreadable`, `bad_request` (cut
 * short, or decoding to far too much), `overloaded` (the disk failed). In a body that streams these are the stream's
 * errors. `input` is read to its end or left paused; it is never destroyed here.
 */
export async function prepareBody(input: Readable, options: PrepareBodyOptions): Promise<PreparedBody> {
  const { plan, headers, framing, upstreamIsHttp2 } = options;
  const tally = new SwapTally();
  if (framing.kind === 'none') return preparedBody({ headers, framing, body: NO_BYTES, tally });
  const bodyClass = bodyClassOf(headers);
  if (!plan.swapsBody || bodyClass === 'binary') return observed(input, options);
  const coding = codingOf(headers);
  if (coding === 'unsupported') {
    recordUnsupported(plan, tally);
    return preparedBody({ headers, framing, body: input, tally, ownsStream: false });
  }
  const { resources, sessionId, signal } = options;
  // Written out: a copy by spread that is then added to costs V8 hidden classes of its own.
  const job = { plan, headers, framing, upstreamIsHttp2, resources, sessionId, signal, bodyClass, coding, tally };
  if (framing.kind === 'length') {
    const buffered = await prepareBuffered(input, framing.bytes, job);
    if (buffered !== null) return buffered;
    const spooled = upstreamIsHttp2 ? null : await prepareSpooled(input, framing.bytes, job);
    if (spooled !== null) return spooled;
  }
  return prepareStreamed(input, job);
}

/** Passes a body unchanged and looks at its start. */
function observed(input: Readable, options: PrepareBodyOptions): PreparedBody {
  const { plan, headers, framing, signal } = options;
  const observer = createBodyObserver(plan, headers);
  const watch = async function* (aborted: AbortSignal): AsyncGenerator<Buffer, void> {
    for await (const chunk of chunksOf(input, aborted)) {
      observer.push(chunk);
      yield chunk;
    }
  };
  const tally = { swaps: () => [], misses: () => observer.misses() };
  return preparedBody({ headers, framing, body: streamOf(watch, signal), tally });
}
