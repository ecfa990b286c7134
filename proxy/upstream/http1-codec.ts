// The strict HTTP/1.1 client codec's reading half: bytes of an upstream to responses (RFC 9112), without any transport.
import {
  INTERIM_RESPONSES_BYTES_MAX,
  INTERIM_RESPONSES_MAX,
  RESPONSE_HEADER_BLOCK_BYTES_MAX,
  TRAILER_BLOCK_BYTES_MAX,
} from '../../model/limits.ts';
import type { BodyFraming, RawHeaders, ResponseHead } from '../exchange.ts';
import { noHeaders } from '../exchange.ts';
import { ByteGather } from './byte-gather.ts';
import { ChunkLine } from './chunk-line.ts';
import type { Http1Head } from './http1-head.ts';
import { hasOption, keepAliveSeconds, parseResponseHead, parseTrailers, ResponseSyntaxError } from './http1-head.ts';

/** Takes the parts of one response in order. Chunks of data are views of the bytes that were given to `execute`. */
export interface ResponseParts {
  information(status: number, reason: string, headers: RawHeaders): void;
  head(head: ResponseHead): void;
  data(chunk: Buffer): void;
  end(trailers: RawHeaders): void;
  upgrade(head: ResponseHead, firstBytes: Buffer): void;
}

/** What must be known of a request to read its response. */
export interface ExpectedResponse {
  readonly method: string;
  readonly upgrade?: string;
}

const NOT_BEGUN = 0; // no response is expected
const HEAD = 1;
const LENGTH = 2;
const UNTIL_CLOSE = 3;
const CHUNK_SIZE = 4;
const CHUNK_DATA = 5;
const CHUNK_DATA_CR = 6;
const CHUNK_DATA_LF = 7;
const TRAILERS = 8;
const STOPPED = 9;

const CR = 13;
const LF = 10;
const PREFIX = Buffer.from('HTTP/1.', 'latin1');
const NO_BODY: BodyFraming = { kind: 'none' };
const STREAM_BODY: BodyFraming = { kind: 'stream' };

/**
 * Reads one response at a time: `begin`, then `execute` for every chunk until the parts' `end` or `upgrade`. Bytes past
 * the end of a response are not read: they make `isReusable` false.
 */
export class ResponseParser {
  readonly #parts: ResponseParts;
  #state = NOT_BEGUN;
  #expected: ExpectedResponse = { method: '' };
  #gather: ByteGather | null = null;
  #remaining = 0;
  readonly #chunkLine = new ChunkLine();
  #interimCount = 0;
  #interimBytes = 0;
  /** Of the head that was read last. */
  #headBytes = 0;
  /** Whether another request may follow on the connection once `end` was called. */
  isReusable = true;
  /** Seconds that the upstream keeps an idle connection, by its own word; Infinity when it did not say. */
  idleSeconds = Infinity;

  constructor(parts: ResponseParts) {
    this.#parts = parts;
  }

  /** Whether what comes next is in chunks, of which a few bytes can hold very many. */
  get isInChunks(): boolean {
    return this.#state >= CHUNK_SIZE && this.#state <= CHUNK_DATA_LF;
  }

  begin(expected: ExpectedResponse): void {
    this.#state = HEAD;
    this.#expected = expected;
    this.#interimCount = 0;
    this.#interimBytes = 0;
  }

  /** Nothing more is read: for an owner that gives up inside one of its own callbacks. */
  stop(): void {
    this.#state = STOPPED;
  }

  /** Throws ResponseSyntaxError when the bytes are no valid response. */
  execute(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length && this.#state !== STOPPED) {
      if (this.#state === NOT_BEGUN) throw new ResponseSyntaxError('it sent bytes that belong to no response');
      offset = this.#step(chunk, offset);
    }
  }

  /** The upstream has ended its side. Throws ResponseSyntaxError when that truncates a response. */
  finish(): void {
    if (this.#state === UNTIL_CLOSE) this.#complete(noHeaders(), 0);
    else if (this.#state !== NOT_BEGUN && this.#state !== STOPPED) {
      throw new ResponseSyntaxError(
        this.#state === HEAD
          ? 'it closed the connection before its response'
          : 'it closed the connection in the middle of its response',
      );
    }
  }

  #step(chunk: Buffer, offset: number): number {
    switch (this.#state) {
      case HEAD:
        return this.#readHead(chunk, offset);
      case LENGTH:
      case CHUNK_DATA:
        return this.#readCounted(chunk, offset);
      case UNTIL_CLOSE:
        this.#parts.data(offset === 0 ? chunk : chunk.subarray(offset));
        return chunk.length;
      case CHUNK_SIZE:
        return this.#readChunkSize(chunk, offset);
      case TRAILERS:
        return this.#readTrailers(chunk, offset);
      default:
        return this.#readChunkEnd(chunk[offset] as number, offset);
    }
  }

  #readHead(chunk: Buffer, offset: number): number {
    const isWhole = this.#gather === null;
    if (isWhole && !beginsLikeHttp(chunk, offset)) throw new ResponseSyntaxError('it does not speak HTTP/1');
    const block = this.#block(chunk, offset, RESPONSE_HEADER_BLOCK_BYTES_MAX);
    if (block === null) return chunk.length;
    this.#headBytes = block.text.length;
    this.#onHead(parseResponseHead(block.text), chunk, block.next);
    return block.next;
  }

  /** The text up to an empty line, when that has come; else what there is of it is kept. */
  #block(chunk: Buffer, offset: number, bytesMax: number): { text: string; next: number } | null {
    if (this.#gather === null) {
      const end = chunk.indexOf('\r\n\r\n', offset, 'latin1');
      if (end >= 0) {
        if (end + 4 - offset > bytesMax) throw tooLong(bytesMax);
        return { text: chunk.toString('latin1', offset, end + 2), next: end + 4 };
      }
      this.#gather = new ByteGather();
    }
    const gather = this.#gather;
    const next = gather.appendBlock(chunk, offset);
    if (gather.length > bytesMax) throw tooLong(bytesMax);
    if (gather.hasBrokenLine) throw new ResponseSyntaxError('a line does not end in CRLF');
    if (next < 0) return null;
    this.#gather = null;
    return { text: gather.text(), next };
  }

  #onHead(head: Http1Head, chunk: Buffer, next: number): void {
    const { status } = head;
    if (status === 101) {
      this.#onSwitch(head, chunk, next);
      return;
    }
    if (status < 200) {
      this.#interimCount += 1;
      this.#interimBytes += this.#headBytes;
      if (this.#interimCount > INTERIM_RESPONSES_MAX || this.#interimBytes > INTERIM_RESPONSES_BYTES_MAX)
        throw new ResponseSyntaxError('it sends interim responses without end');
      this.#parts.information(status, head.reason, head.headers);
      return;
    }
    this.#onFinalHead(head, chunk.length - next);
  }

  #onFinalHead(head: Http1Head, bytesAfter: number): void {
    const { status, contentLength } = head;
    const hasBody = status !== 204 && status !== 304 && this.#expected.method !== 'HEAD';
    // A 204 has no body whatever it says (RFC 9110 section 15.3.5), but what its sender sends next can't be known.
    const isOdd = status === 204 && (head.isChunked || contentLength > 0);
    this.#remaining = contentLength;
    this.#state = bodyState(head, hasBody);
    this.idleSeconds = keepAliveSeconds(head.keepAlive);
    const isOver = this.#state === NOT_BEGUN;
    this.isReusable = isPersistent(head) && !isOdd && this.#state !== UNTIL_CLOSE && !(isOver && bytesAfter > 0);
    this.#parts.head(responseHead(head, hasBody));
    if (isOver && this.#state === NOT_BEGUN) this.#complete(noHeaders(), bytesAfter);
  }

  #onSwitch(head: Http1Head, chunk: Buffer, next: number): void {
    const { upgrade } = this.#expected;
    const isAgreed =
      upgrade !== undefined &&
      head.upgrade.toLowerCase() === upgrade.toLowerCase() &&
      hasOption(head.connection, 'upgrade');
    if (!isAgreed) throw new ResponseSyntaxError('it switches to a protocol that the request did not ask for');
    this.isReusable = false;
    this.#state = STOPPED;
    this.#parts.upgrade(responseHead(head, false), chunk.subarray(next));
  }

  #readCounted(chunk: Buffer, offset: number): number {
    const available = chunk.length - offset;
    const isChunked = this.#state === CHUNK_DATA;
    if (available < this.#remaining) {
      this.#remaining -= available;
      this.#parts.data(offset === 0 ? chunk : chunk.subarray(offset));
      return chunk.length;
    }
    const end = offset + this.#remaining;
    this.#remaining = 0;
    if (isChunked) this.#state = CHUNK_DATA_CR;
    else if (end < chunk.length) this.isReusable = false;
    this.#parts.data(offset === 0 && end === chunk.length ? chunk : chunk.subarray(offset, end));
    if (this.#state === LENGTH) this.#complete(noHeaders(), chunk.length - end);
    return end;
  }

  #readChunkSize(chunk: Buffer, offset: number): number {
    const next = this.#chunkLine.read(chunk, offset);
    if (next < 0) return chunk.length;
    this.#remaining = this.#chunkLine.size;
    this.#state = this.#remaining === 0 ? TRAILERS : CHUNK_DATA;
    return next;
  }

  /** The CRLF after a chunk's data. */
  #readChunkEnd(byte: number, offset: number): number {
    if (byte !== (this.#state === CHUNK_DATA_CR ? CR : LF))
      throw new ResponseSyntaxError('a chunk is not as long as its size says');
    this.#state = this.#state === CHUNK_DATA_CR ? CHUNK_DATA_LF : CHUNK_SIZE;
    return offset + 1;
  }

  #readTrailers(chunk: Buffer, offset: number): number {
    if (this.#gather === null && chunk[offset] === CR && chunk[offset + 1] === LF) {
      this.#complete(noHeaders(), chunk.length - offset - 2);
      return offset + 2;
    }
    const block = this.#block(chunk, offset, TRAILER_BLOCK_BYTES_MAX);
    if (block === null) return chunk.length;
    this.#complete(block.text === '' ? noHeaders() : parseTrailers(block.text), chunk.length - block.next);
    return block.next;
  }

  #complete(trailers: RawHeaders, extraBytes: number): void {
    this.#state = NOT_BEGUN;
    if (extraBytes > 0) {
      // What follows belongs to no response, and must never be taken for the next one's.
      this.isReusable = false;
      this.#state = STOPPED;
    }
    this.#parts.end(trailers);
  }
}

function bodyState(head: Http1Head, hasBody: boolean): number {
  if (!hasBody || head.contentLength === 0) return NOT_BEGUN;
  if (head.isChunked) return CHUNK_SIZE;
  return head.contentLength > 0 ? LENGTH : UNTIL_CLOSE;
}

function tooLong(bytesMax: number): ResponseSyntaxError {
  return new ResponseSyntaxError(`its header or trailer block is longer than ${bytesMax} bytes`);
}

function beginsLikeHttp(chunk: Buffer, offset: number): boolean {
  const length = Math.min(PREFIX.length, chunk.length - offset);
  for (let index = 0; index < length; index += 1) if (chunk[offset + index] !== PREFIX[index]) return false;
  return true;
}

function isPersistent(head: Http1Head): boolean {
  if (head.connection === '') return head.minor === 1;
  if (hasOption(head.connection, 'close')) return false;
  return head.minor === 1 || hasOption(head.connection, 'keep-alive');
}

function responseHead(head: Http1Head, hasBody: boolean): ResponseHead {
  let body: BodyFraming = STREAM_BODY;
  if (!hasBody) body = NO_BODY;
  else if (head.contentLength >= 0) body = { kind: 'length', bytes: head.contentLength };
  return {
    status: head.status,
    reason: head.reason,
    headers: head.headers,
    httpVersion: head.minor === 1 ? '1.1' : '1.0',
    body,
  };
}
