// What of an HTTP/1.x connection is parsed: one head at a time, and no more while enough requests wait for their turn.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { PIPELINED_BYTES_MAX, PIPELINED_REQUESTS_MAX } from '../model/limits.ts';
import type { Clock } from '../model/ports.ts';
import { chargeTurn, hasTurn, PieceSize, waitForTurn, type Work } from './fair-turns.ts';

const END_OF_SECTION = Buffer.from('\r\n\r\n');
// Connections that plain requests come by share one share of a turn: each request may be another session's.
const PLAIN_REQUESTS = 'plain requests';
// What a chunk that is kept costs beside its bytes, so that many small ones count too.
export const CHUNK_OVERHEAD_BYTES = 256;

/** A request that was parsed and whose answer is not complete. */
interface Pending {
  readonly response: ServerResponse;
  /** What was parsed of it. */
  bytes: number;
}

function costOf(chunk: Buffer): number {
  return chunk.length + CHUNK_OVERHEAD_BYTES;
}

/**
 * Stands between a connection and Node's HTTP/1.x server. Node parses all that comes, and keeps a request and a response
 * for each head of a pipeline (RFC 9112 section 9.3.2), some KiB for 30 bytes. Here the parser gets pieces that end where
 * a head does, until `PIPELINED_REQUESTS_MAX` requests, or `PIPELINED_BYTES_MAX` bytes of them, wait behind the one under
 * way; then some bytes are read ahead, so that a client that leaves is noticed, and beyond that the connection is left
 * unread. What is under way is never held up: its body comes before the next head.
 */
export class Http1Intake implements Work {
  /** When the first byte of a head that is not complete came, milliseconds of the clock; null while none is arriving. */
  headSince: number | null = null;
  readonly #socket: Duplex;
  readonly #clock: Clock;
  /** Node's own listener for bytes of the connection; null when the connection is its server's no more. */
  #parse: ((bytes: Buffer) => void) | null;
  #pending: Pending[] = [];
  /** The request whose head was parsed last. */
  #last: IncomingMessage | null = null;
  /** Bytes of its body that are still to come, where it has a Content-Length. */
  #bodyBytesLeft = 0;
  /** Bytes of the head that is arriving. */
  #headBytes = 0;
  /** How much of `END_OF_SECTION` the last piece ended with. */
  #matched = 0;
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** Whether it was paused here, and not by Node for its own reasons. */
  #isStopped = false;
  /** Chunks of a body wait for the session's share of a turn. */
  #isWaiting = false;
  readonly #sessionId: string;
  /** Made when a body in chunks comes. */
  #pieceSize: PieceSize | null = null;
  readonly #onData = (chunk: Buffer): void => {
    // Most of what comes is one whole head, with nothing under way before it.
    if (this.#held.length === 0 && this.#pending.length === 0 && this.#isWholeHead(chunk)) this.#parsePiece(chunk);
    else {
      this.#hold(chunk);
      this.#run();
    }
  };
  readonly #onResume = (): void => this.#run();
  readonly #onClose = (): void => this.discard();

  /** The server must have been given the connection just before. */
  constructor(socket: Duplex, clock: Clock, sessionId = PLAIN_REQUESTS) {
    this.#socket = socket;
    this.#sessionId = sessionId;
    this.#clock = clock;
    const [parse] = socket.listeners('data') as ((bytes: Buffer) => void)[];
    if (parse === undefined) throw new Error('The connection has not been given to a server.');
    this.#parse = parse;
    socket.off('data', parse);
    // Node notices such a listener, and hands the bytes out instead of to its parser.
    socket.on('data', this.#onData);
    socket.on('resume', this.#onResume);
    socket.once('close', this.#onClose);
  }

  /** Nothing is under way on the connection, nor arriving. */
  get isIdle(): boolean {
    return this.#pending.length === 0 && this.headSince === null;
  }

  /** The server has announced a request; it counts until its response is closed. */
  begin(request: IncomingMessage, response: ServerResponse): void {
    this.headSince = null;
    const { headers } = request;
    this.#last = request;
    this.#bodyBytesLeft = headers['transfer-encoding'] === undefined ? Number(headers['content-length'] ?? 0) : 0;
    const pending = { response, bytes: this.#headBytes };
    this.#headBytes = 0;
    this.#pending.push(pending);
    response.once('close', () => this.#end(pending));
  }

  /** The connection leaves HTTP: gives the bytes that were not parsed, and lets go of it. */
  release(): Buffer {
    this.#parse = null;
    this.headSince = null;
    this.#socket.off('data', this.#onData);
    this.#socket.off('resume', this.#onResume);
    this.#socket.off('close', this.#onClose);
    const rest = Buffer.concat(this.#held);
    this.#held = [];
    return rest;
  }

  /** Nothing that follows on the connection may be taken for a request; it is read and thrown away. */
  discard(): void {
    this.#parse = null;
    this.headSince = null;
    this.#held = [];
  }

  /** Nothing was begun before it either: neither a head nor a body. */
  #isWholeHead(chunk: Buffer): boolean {
    if (this.#parse === null || this.headSince !== null || this.#matched > 0 || this.#bodyBytesLeft > 0) return false;
    if (this.#last?.complete === false || this.#socket.isPaused() || this.#socket.destroyed) return false;
    const end = chunk.indexOf(END_OF_SECTION);
    return end >= 0 && end + END_OF_SECTION.length === chunk.length;
  }

  #end(pending: Pending): void {
    if (this.#pending[0] === pending) this.#pending.shift();
    else this.#pending = this.#pending.filter((other) => other !== pending);
    if (this.#pending.length === 0 && this.#last?.complete === true) this.#last = null;
    this.#run();
  }

  #hold(chunk: Buffer): void {
    if (this.#parse === null) return;
    this.#held.push(chunk);
    this.#heldBytes += costOf(chunk);
  }

  #run(): void {
    if (!this.#isWaiting) this.#startAgain();
    while (!this.#isWaiting && this.#canParse()) {
      if (!this.#isInChunks()) this.#parseNext();
      else if (hasTurn(this.#sessionId)) {
        const startedAt = performance.now();
        this.#parseSome();
        chargeTurn(this.#sessionId, startedAt);
      } else {
        this.#isWaiting = true;
        waitForTurn(this.#sessionId, this);
      }
    }
    this.#stopIfEnough();
  }

  #startAgain(): void {
    if (!this.#isStopped || this.#isFull()) return;
    this.#isStopped = false;
    this.#socket.resume();
  }

  #stopIfEnough(): void {
    if (this.#heldBytes < PIPELINED_BYTES_MAX || this.#held.length === 0 || this.#socket.isPaused()) return;
    this.#isStopped = true;
    this.#socket.pause();
  }

  /** Its turn has come. */
  work(): boolean {
    this.#startAgain();
    if (this.#canParse() && this.#isInChunks()) this.#parseSome();
    if (this.#canParse() && this.#isInChunks()) {
      this.#stopIfEnough();
      return true;
    }
    this.#isWaiting = false;
    this.#run();
    return false;
  }

  #canParse(): boolean {
    return this.#held.length > 0 && !this.#isFull() && !this.#socket.isPaused() && !this.#socket.destroyed;
  }

  /** Whether what comes next is a part of a body in chunks, of which a few bytes can hold very many. */
  #isInChunks(): boolean {
    return this.#bodyBytesLeft === 0 && this.#last?.complete === false;
  }

  #parseSome(): void {
    const size = (this.#pieceSize ??= new PieceSize());
    const startedAt = performance.now();
    this.#parseNext(size.bytes);
    size.adapt(startedAt);
  }

  #parseNext(bytesMax = Number.POSITIVE_INFINITY): void {
    const chunk = this.#held.shift() as Buffer;
    this.#heldBytes -= costOf(chunk);
    const length = this.#lengthOfPiece(chunk.length > bytesMax ? chunk.subarray(0, bytesMax) : chunk);
    if (length < chunk.length) {
      const rest = chunk.subarray(length);
      this.#held.unshift(rest);
      this.#heldBytes += costOf(rest);
    }
    this.#parsePiece(length < chunk.length ? chunk.subarray(0, length) : chunk);
  }

  #isFull(): boolean {
    if (this.#pending.length > PIPELINED_REQUESTS_MAX) return true;
    let waitingBytes = 0;
    for (let index = 1; index < this.#pending.length; index += 1)
      waitingBytes += (this.#pending[index] as Pending).bytes;
    return waitingBytes > PIPELINED_BYTES_MAX;
  }

  /** Up to the end of a head, of a chunked body with its trailers, or of a body with a length; else all. */
  #lengthOfPiece(chunk: Buffer): number {
    if (this.#bodyBytesLeft > 0) {
      const length = Math.min(this.#bodyBytesLeft, chunk.length);
      this.#bodyBytesLeft -= length;
      return length;
    }
    if (this.#matched > 0) {
      const wanted = END_OF_SECTION.subarray(this.#matched, this.#matched + chunk.length);
      if (chunk.subarray(0, wanted.length).equals(wanted)) {
        this.#matched = (this.#matched + wanted.length) % END_OF_SECTION.length;
        return wanted.length;
      }
      this.#matched = 0;
    }
    const end = chunk.indexOf(END_OF_SECTION);
    if (end >= 0) return end + END_OF_SECTION.length;
    for (let length = END_OF_SECTION.length - 1; length > 0 && this.#matched === 0; length -= 1) {
      if (chunk.subarray(-length).equals(END_OF_SECTION.subarray(0, length))) this.#matched = length;
    }
    return chunk.length;
  }

  #parsePiece(piece: Buffer): void {
    const last = this.#last;
    if (last?.complete === false) {
      const pending = this.#pending.at(-1);
      if (pending !== undefined) pending.bytes += piece.length;
      this.#parse?.(piece);
      return;
    }
    this.#headBytes += piece.length;
    this.#parse?.(piece);
    if (this.#last === last && this.#parse !== null) this.headSince ??= this.#clock.now();
  }
}
