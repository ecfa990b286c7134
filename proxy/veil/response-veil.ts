// Stands between an upstream's response and its way to the client, and veils head, body and trailers as they pass.
import type { VeilRecord } from '../../model/audit.ts';
import { KeyveilError } from '../../model/errors.ts';
import { BODY_BATCH_BYTES, BODY_SMALL_CHUNK_BYTES } from '../../model/limits.ts';
import type { RawHeaders, ResponseHead, ResponseSink } from '../exchange.ts';
import type { ContentCoding } from '../swap/content-coding.ts';
import { createDecoder, type Decoder } from '../swap/decoder.ts';
import { withoutBodyDigests } from '../swap/digests.ts';
import { type BoundaryFinder, GrpcBoundaries, NO_BOUNDARIES } from './boundaries.ts';
import * as heads from './response-plan.ts';
import { type BodyPlan, boundariesOf, planBody } from './response-plan.ts';
import { type HitCounts, recordsOf, VeilScanner } from './scanner.ts';
import { veilHead, type VeilableHead, veilHeaders } from './veil-headers.ts';
import type { Veil } from './veil.ts';

/** Room for buffered bodies, shared with others. */
export interface MemoryReservation {
  /** False when there is no room for so many bytes more. */
  reserve(bytes: number): boolean;
  release(bytes: number): void;
}

export interface ResponseVeilOptions {
  readonly veil: Veil;
  readonly method: string;
  readonly downstream: ResponseSink;
  readonly source: { pause(): void; resume(): void };
  /** A body of known length up to so many bytes is read whole. */
  readonly bufferBytes: number;
  /**
   * Milliseconds without a byte from the upstream after which all that is held back leaves. Of a body of known length
   * nothing leaves before its end: it is what everybody waits for.
   */
  readonly idleMs: number;
  readonly memory: MemoryReservation;
}

export interface ResponseVeil extends ResponseSink {
  /** Veils a head that does not go this way: of an interim response, or of a switch of protocols. */
  veilHead<T extends VeilableHead>(head: T): T;
  /** The downstream takes data again. */
  drain(): void;
  /** Passes on what waits for the end of this turn of the event loop. */
  flush(): void;
  /** The response is given up: nothing more is passed on. */
  destroy(): void;
  /** What was veiled so far. */
  veils(): VeilRecord[];
  /** Whether something could not be looked into, or a value not be opened. */
  impossible(): boolean;
}

/** Makes the veil of one response. */
export function createResponseVeil(options: ResponseVeilOptions): ResponseVeil {
  return new StreamingVeil(options);
}

const NO_PLAN: BodyPlan = { mode: 'none', coding: null, sameLength: false, isOpaque: false, isPart: false };

class StreamingVeil implements ResponseVeil {
  readonly #options: ResponseVeilOptions;
  readonly #counts: HitCounts = new Map();
  #scanner: VeilScanner;
  #head: ResponseHead | null = null;
  #plan: BodyPlan = NO_PLAN;
  #boundaries: BoundaryFinder = NO_BOUNDARIES;
  #impossible: boolean;
  #isDone = false;
  /** The body so far, while it is read whole; else what came in this turn and was not looked at yet. */
  #pieces: Buffer[] = [];
  #piecesBytes = 0;
  #reserved = 0;
  #decoder: Decoder | null = null;
  #trailers: RawHeaders = [];
  #isDownstreamFull = false;
  #isDecoderFull = false;
  #idleTimer: NodeJS.Timeout | null = null;
  /** Set from the first chunk of a turn of the event loop until its end. */
  #turnEnd: NodeJS.Immediate | null = null;
  /** Chunks of the upstream so far. */
  #arrivals = 0;

  constructor(options: ResponseVeilOptions) {
    this.#options = options;
    this.#scanner = new VeilScanner(options.veil, { sameLength: false, counts: this.#counts });
    this.#impossible = options.veil.unopened.length > 0;
  }

  veilHead<T extends VeilableHead>(head: T): T {
    return heads.interimHead(veilHead(this.#options.veil, head, this.#counts));
  }

  head(head: ResponseHead): void {
    if (this.#isDone) return;
    const { veil, downstream } = this.#options;
    this.#plan = planBody(head, this.#options);
    const veiled = veilHead(veil, head, this.#counts);
    if (this.#plan.isOpaque) this.#impossible = true;
    if (this.#plan.mode === 'none') downstream.head(heads.bodilessHead(veiled, this.#plan));
    else {
      this.#head = veiled;
      if (this.#plan.mode === 'stream') this.#startStream();
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#isDone || chunk.length === 0) return true;
    this.#arrivals += 1;
    if (this.#plan.coding !== null) return this.#decode(chunk, this.#plan.coding);
    return this.#take(chunk);
  }

  end(trailers: RawHeaders): void {
    if (this.#isDone) return;
    this.#trailers = trailers;
    if (this.#decoder === null) this.#finish();
    else this.#decoder.end();
  }

  error(error: Error): void {
    if (this.#isDone) return;
    this.destroy();
    this.#options.downstream.error(error);
  }

  drain(): void {
    if (this.#isDone) return;
    this.#isDownstreamFull = false;
    this.#restartIdleTime();
    this.#decoder?.resume();
    if (!this.#isDecoderFull) this.#options.source.resume();
  }

  flush(): void {
    if (!this.#isDone && this.#plan.mode === 'stream' && this.#piecesBytes > 0) this.#look();
  }

  destroy(): void {
    this.#isDone = true;
    this.#decoder?.destroy();
    if (this.#idleTimer !== null) clearTimeout(this.#idleTimer);
    if (this.#turnEnd !== null) clearImmediate(this.#turnEnd);
    this.#takePieces();
  }

  veils(): VeilRecord[] {
    return recordsOf(this.#counts);
  }

  impossible(): boolean {
    return this.#impossible;
  }

  /** Takes decoded bytes; false when no more should come for now. */
  #take(chunk: Buffer): boolean {
    if (this.#plan.mode === 'stream') return this.#stream(chunk);
    // What completes a body is held for a moment only, within this turn.
    const { body } = this.#head as ResponseHead;
    const completes =
      this.#plan.coding === null && body.kind === 'length' && body.bytes === this.#piecesBytes + chunk.length;
    if (this.#piecesBytes + chunk.length <= this.#options.bufferBytes && (completes || this.#reserve(chunk.length))) {
      this.#pieces.push(chunk);
      this.#piecesBytes += chunk.length;
      return true;
    }
    return this.#overflow(chunk);
  }

  #reserve(bytes: number): boolean {
    if (!this.#options.memory.reserve(bytes)) return false;
    this.#reserved += bytes;
    return true;
  }

  /** There is no room to read the body whole: what has come so far, and the rest, streams. */
  #overflow(chunk: Buffer): boolean {
    this.#plan = { ...this.#plan, mode: 'stream', sameLength: this.#plan.sameLength || this.#plan.coding === null };
    this.#startStream();
    const pieces = [...this.#takePieces(), chunk];
    this.#pieces = pieces;
    this.#piecesBytes = pieces.reduce((sum, { length }) => sum + length, 0);
    return this.#look();
  }

  #takePieces(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#piecesBytes = 0;
    if (this.#reserved > 0) this.#options.memory.release(this.#reserved);
    this.#reserved = 0;
    return pieces;
  }

  #startStream(): void {
    const head = this.#head as ResponseHead;
    const { veil, downstream } = this.#options;
    this.#scanner = new VeilScanner(veil, { sameLength: this.#plan.sameLength, counts: this.#counts });
    this.#boundaries = boundariesOf(head.headers, veil.spansLines);
    downstream.head(heads.streamedHead(head, this.#plan));
  }

  /**
   * An event leaves at once; what comes in large pieces, or in many within one turn of the event loop, is looked at
   * together at the end of the turn, and leaves in one write.
   */
  #stream(chunk: Buffer): boolean {
    this.#pieces.push(chunk);
    this.#piecesBytes += chunk.length;
    const isAlone = this.#turnEnd === null && chunk.length <= BODY_SMALL_CHUNK_BYTES;
    this.#turnEnd ??= setImmediate(() => {
      this.#turnEnd = null;
      if (this.#piecesBytes > 0 && !this.#look()) this.#options.source.pause();
    });
    return isAlone || this.#piecesBytes >= BODY_BATCH_BYTES ? this.#look() : !this.#isDownstreamFull;
  }

  /** Looks at what was gathered; at the end of a body, and after a pause, nothing is held back. */
  #look(isHolding = true): boolean {
    const pieces = this.#takePieces();
    let sinceEnd = Number.POSITIVE_INFINITY;
    for (const piece of pieces) {
      const since = this.#boundaries.sinceEnd(piece);
      sinceEnd = since === Number.POSITIVE_INFINITY ? sinceEnd + piece.length : since;
    }
    const out = this.#scanner.pushAll(pieces, isHolding ? sinceEnd : 0);
    if (this.#boundaries instanceof GrpcBoundaries && this.#boundaries.sawCompressed) this.#impossible = true;
    this.#restartIdleTime();
    return this.#send(out);
  }

  /** After each chunk, and after a pause that was not the upstream's: it was not idle, and needs time to go on. */
  #restartIdleTime(): void {
    if (this.#scanner.held === 0 || this.#head?.body.kind === 'length') return;
    if (this.#idleTimer === null) this.#idleTimer = setTimeout(() => this.#onIdle(), this.#options.idleMs);
    else this.#idleTimer.refresh();
  }

  /** What has arrived already, but waits behind a timer that is late or in the decoder, still counts as activity. */
  #onIdle(): void {
    const arrivals = this.#arrivals;
    setImmediate(() => {
      if (this.#isDone || arrivals !== this.#arrivals) return;
      if (this.#isDownstreamFull || (this.#decoder?.writableLength ?? 0) > 0) this.#restartIdleTime();
      else if (!this.#look(false)) this.#options.source.pause();
    });
  }

  #send(out: Buffer): boolean {
    if (out.length > 0 && !this.#options.downstream.data(out)) {
      this.#isDownstreamFull = true;
      this.#decoder?.pause();
    }
    return !this.#isDownstreamFull;
  }

  #decode(chunk: Buffer, coding: ContentCoding): boolean {
    this.#decoder ??= this.#openDecoder(coding);
    this.#idleTimer?.refresh();
    if (!this.#decoder.write(chunk)) this.#isDecoderFull = true;
    return !this.#isDecoderFull && !this.#isDownstreamFull;
  }

  #openDecoder(coding: ContentCoding): Decoder {
    const decoder = createDecoder(coding);
    decoder.on('data', (piece: Buffer) => this.#take(piece));
    decoder.on('drain', () => {
      this.#isDecoderFull = false;
      this.#restartIdleTime();
      if (!this.#isDownstreamFull) this.#options.source.resume();
    });
    decoder.on('end', () => this.#finish());
    decoder.on('error', (cause) => {
      const message = `The response's body is marked as ${coding}, and could not be decoded.`;
      this.error(new KeyveilError('upstream_protocol_error', message, { cause }));
    });
    return decoder;
  }

  #finish(): void {
    const { veil, downstream } = this.#options;
    if (this.#plan.mode === 'whole') this.#sendWhole(this.#head as ResponseHead);
    else if (this.#plan.mode === 'stream') this.#look(false);
    const trailers = this.#trailers.length === 0 ? this.#trailers : veilHeaders(veil, this.#trailers, this.#counts);
    const isOther = this.#plan.coding !== null || this.#plan.isPart || this.#scanner.hits > 0;
    this.destroy();
    downstream.end(isOther ? withoutBodyDigests(trailers) : trailers);
  }

  #sendWhole(head: ResponseHead): void {
    const pieces = this.#takePieces();
    const body = pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
    this.#scanner = new VeilScanner(this.#options.veil, { sameLength: this.#plan.sameLength, counts: this.#counts });
    const veiled = this.#scanner.whole(body);
    const isSame = this.#plan.coding === null && this.#scanner.hits === 0;
    const { isPart } = this.#plan;
    this.#options.downstream.head(isSame ? heads.keptHead(head, isPart) : heads.rewrittenHead(head, veiled.length));
    this.#send(veiled);
  }
}
