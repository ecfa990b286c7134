// Undoes a content coding as a stream, with bounded memory, and without starving the thread pool.
import { Transform, type TransformCallback } from 'node:stream';
import { INFLATE_TURN_BYTES, INFLATING_STREAMS_MAX } from '../../model/limits.ts';
import {
  ContentCodingError,
  createEngine,
  DECODER_LIMITS,
  isZlibHeader,
  type CodingFormat,
  type ContentCoding,
  type DecoderLimits,
  type Engine,
} from './content-coding.ts';
import { createTurnstile } from './turnstile.ts';

// zlib works on libuv's pool, four threads by default, which name resolution and files share. Two streams at a time
// leave room for those. A stream gives its place up when its reader is slow, and after each turn when others wait.
const turnstile = createTurnstile(INFLATING_STREAMS_MAX);

const ZLIB_HEADER_BYTES = 2;
/** Decoded bytes that may wait for a slow reader; its engine holds 16 KiB more. */
const DECODED_BUFFER_BYTES = 64 * 1024;

/** Encoded bytes in, decoded bytes out; what a write can give comes out at once. Fails with a `ContentCodingError`. */
export class Decoder extends Transform {
  readonly #limits: DecoderLimits;
  #format: CodingFormat | null;
  #engine: Engine | null = null;
  /** Bytes that are too few to tell zlib from raw. */
  #start: Buffer = Buffer.alloc(0);
  #encodedBytes = 0;
  #decodedBytes = 0;
  #turnBytes = 0;
  #hasTurn = false;
  /** The reader has enough for now. */
  #isStalled = false;
  /** The coding's own end was met. */
  #isOver = false;
  /** What the current write or flush waits for. */
  #pending: TransformCallback | null = null;
  #postponed: (() => void) | null = null;
  /** What to do once it is this stream's turn. */
  #starts: (() => void)[] = [];
  #lastInput: Buffer = Buffer.alloc(0);

  constructor(coding: ContentCoding, limits: DecoderLimits) {
    super({ readableHighWaterMark: DECODED_BUFFER_BYTES });
    this.#limits = limits;
    if (coding === 'deflate') this.#format = null;
    else this.#format = coding === 'x-gzip' ? 'gzip' : coding;
  }

  /** What the bytes turned out to be. A deflate stream without any bytes counts as zlib. */
  get format(): CodingFormat {
    return this.#format ?? 'zlib';
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    if (this.#format !== null) {
      this.#decode(chunk, done);
      return;
    }
    this.#start = Buffer.concat([this.#start, chunk]);
    if (this.#start.length < ZLIB_HEADER_BYTES) {
      done();
      return;
    }
    this.#format = isZlibHeader(this.#start) ? 'zlib' : 'raw';
    this.#decode(this.#start, done);
  }

  override _flush(done: TransformCallback): void {
    if (this.#format === null && this.#start.length > 0) {
      // No coding has a message of one byte.
      done(malformed('deflate'));
      return;
    }
    const engine = this.#engine;
    if (engine === null || this.#isOver) {
      done();
      return;
    }
    this.#pending = done;
    this.#work(() => engine.end());
  }

  override _read(size: number): void {
    if (this.#isStalled) {
      this.#isStalled = false;
      const postponed = this.#postponed;
      this.#postponed = null;
      this.#takeTurn(() => {
        this.#engine?.resume();
        postponed?.();
      });
    }
    super._read(size);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#engine?.destroy();
    this.#endTurn();
    done(error);
  }

  #decode(bytes: Buffer, done: TransformCallback): void {
    this.#encodedBytes += bytes.length;
    this.#lastInput = bytes;
    if (this.#isOver) {
      done(this.#isPadding(bytes) ? null : malformed(this.format));
      return;
    }
    const engine = (this.#engine ??= this.#openEngine());
    this.#pending = done;
    this.#work(() => {
      engine.write(bytes, (error) => {
        if (!error) this.#settle();
      });
    });
  }

  #openEngine(): Engine {
    const engine = createEngine(this.format);
    engine.on('data', (bytes: Buffer) => this.#give(bytes, engine));
    engine.on('error', (cause) => this.destroy(malformed(this.format, cause)));
    // Past its end an engine takes nothing and calls no write back: this event does.
    engine.on('end', () => {
      this.#isOver = true;
      const rest = this.#lastInput.subarray(this.#lastInput.length - (this.#encodedBytes - engine.bytesWritten));
      if (this.#isPadding(rest)) this.#settle();
      else this.destroy(malformed(this.format));
    });
    return engine;
  }

  #give(bytes: Buffer, engine: Engine): void {
    this.#decodedBytes += bytes.length;
    this.#turnBytes += bytes.length;
    const { bytesBeforeRatio, ratioMax } = this.#limits;
    if (this.#decodedBytes > bytesBeforeRatio && this.#decodedBytes > ratioMax * this.#encodedBytes) {
      this.destroy(new ContentCodingError('bomb', `${this.#decodedBytes} bytes came out of ${this.#encodedBytes}.`));
      return;
    }
    if (!this.push(bytes)) {
      this.#isStalled = true;
      engine.pause();
      this.#endTurn();
    } else if (this.#hasTurn && this.#turnBytes >= INFLATE_TURN_BYTES && turnstile.isWaitedFor()) {
      engine.pause();
      this.#endTurn();
      this.#takeTurn(() => engine.resume());
    }
  }

  /** gzip files may be padded with zero bytes; nothing else may follow the end of a coding. */
  #isPadding(bytes: Buffer): boolean {
    return bytes.length === 0 || (this.format === 'gzip' && bytes.every((byte) => byte === 0));
  }

  #work(start: () => void): void {
    if (this.#isStalled) this.#postponed = start;
    else this.#takeTurn(start);
  }

  #takeTurn(start: () => void): void {
    // One place in line for each stream: one that held a place while it waited for another would block all.
    this.#starts.push(start);
    if (this.#starts.length > 1) return;
    turnstile.enter(() => {
      const starts = this.#starts;
      this.#starts = [];
      if (this.destroyed) {
        turnstile.leave();
        return;
      }
      this.#hasTurn = true;
      this.#turnBytes = 0;
      for (const each of starts) each();
      // Only the rest of what is decoded already had to leave.
      if (this.#pending === null) this.#endTurn();
    });
  }

  #endTurn(): void {
    if (!this.#hasTurn) return;
    this.#hasTurn = false;
    turnstile.leave();
  }

  #settle(): void {
    const done = this.#pending;
    this.#pending = null;
    this.#endTurn();
    done?.();
  }
}

function malformed(format: string, cause?: unknown): ContentCodingError {
  return new ContentCodingError('malformed', `The body is not whole ${format} data.`, { cause });
}

/** A decoder of one message. */
export function createDecoder(coding: ContentCoding, limits: DecoderLimits = DECODER_LIMITS): Decoder {
  return new Decoder(coding, limits);
}
