// The answer to a request that was read without an HTTP server: written as HTTP/1.1 to the connection itself.
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import type { ClientReply } from './client-exchange.ts';
import { headerValue, type RawHeaders, type ResponseHead } from './exchange.ts';
import { formatFields, formatHead } from './raw-reply.ts';
import { holdUntilTurnEnds, type Holder } from './turn.ts';
import { isField, isFieldContent } from './upstream/field-syntax.ts';

/** What is gathered in one turn before some of it leaves. */
const GATHERED_BYTES_MAX = 64 * 1024;
/** What is copied into one piece, rather than written in several. */
const JOINED_BYTES_MAX = 16 * 1024;

/** RFC 9110 section 5.5: no field may break out of its line. */
function requireFields({ reason, headers }: Pick<ResponseHead, 'reason' | 'headers'>): void {
  let isGood = isFieldContent(reason);
  for (let index = 0; index < headers.length && isGood; index += 2)
    isGood = isField(headers[index] as string, headers[index + 1] as string);
  if (isGood) return;
  throw new KeyveilError('upstream_protocol_error', 'The response holds a field that HTTP/1.1 can not carry.');
}

/** `Trailer` announces what only chunks can have after them (RFC 9110 section 6.6.2). */
function withoutTrailer(headers: RawHeaders): RawHeaders {
  if (headerValue(headers, 'trailer') === undefined) return headers;
  return headers.filter((_, index) => (headers[index - (index % 2)] as string).toLowerCase() !== 'trailer');
}

/** One reply on a connection of HTTP/1.1 that stays open after it. What is written in one turn leaves at its end. */
export class DirectReply implements ClientReply, Holder {
  onDrain: (() => void) | null = null;
  onAbort: (() => void) | null = null;
  onFinish: (() => void) | null = null;
  started = false;
  readonly #socket: Duplex;
  readonly #isHead: boolean;
  readonly #onOver: () => void;
  #hasBody = true;
  #isChunked = false;
  #hasEnded = false;
  /** It was given up, or is complete. */
  #isOver = false;
  /** A part of it could not be written, so that its connection is about to close. */
  #isCut = false;
  #parts: (string | Buffer)[] = [];
  #bytes = 0;
  #isHeld = false;
  /** Writes that the connection has not taken yet. */
  #pendingWrites = 0;
  #isFull = false;
  readonly #onWritten = (error?: Error | null): void => {
    this.#pendingWrites -= 1;
    if (error === null || error === undefined) this.#finishIfWritten();
  };

  /** `onOver` runs once, when the whole answer has been handed to the connection. */
  constructor(socket: Duplex, options: { readonly isHead: boolean; readonly onOver: () => void }) {
    this.#socket = socket;
    this.#isHead = options.isHead;
    this.#onOver = options.onOver;
  }

  information(status: number, reason: string, headers: RawHeaders): boolean {
    if (this.started || !this.#socket.writable) return true;
    requireFields({ reason, headers });
    this.#isFull = !this.#socket.write(formatHead(status, reason, headers));
    return !this.#isFull;
  }

  head(head: ResponseHead): void {
    if (this.started || this.#isGone()) return;
    requireFields(head);
    this.started = true;
    const { status, body } = head;
    this.#hasBody = !this.#isHead && status !== 204 && status !== 304;
    this.#isChunked = body.kind === 'stream';
    const headers = this.#isChunked ? head.headers : withoutTrailer(head.headers);
    let text = `HTTP/1.1 ${status} ${head.reason}\r\n${formatFields(headers)}`;
    if (this.#isChunked) text += 'Transfer-Encoding: chunked\r\n';
    // HTTP/2 needs no length to say that there is nothing.
    else if (body.kind === 'none' && this.#hasBody && headerValue(headers, 'content-length') === undefined)
      text += 'Content-Length: 0\r\n';
    this.#add(`${text}\r\n`);
  }

  data(chunk: Buffer): boolean {
    if (!this.#hasBody || chunk.length === 0 || this.#isGone()) return true;
    if (this.#isChunked) this.#add(`${chunk.length.toString(16)}\r\n`);
    this.#add(chunk);
    if (this.#isChunked) this.#add('\r\n');
    return !this.#isFull;
  }

  end(trailers: RawHeaders): void {
    this.#hasEnded = true;
    if (this.#isChunked && this.#hasBody) {
      requireFields({ reason: '', headers: trailers });
      this.#add(`0\r\n${formatFields(trailers)}\r\n`);
    }
    if (!this.#isHeld) this.#finishIfWritten();
  }

  /** Kills the connection, so that what was sent can't be taken for a whole response (RFC 9112 section 8). */
  error(): void {
    this.#write();
    this.#isCut = true;
    this.#socket.destroy();
  }

  /** The connection has room again. */
  drain(): void {
    this.#isFull = false;
    this.onDrain?.();
  }

  /** The client has closed its side, after which no more is written: an answer that is not complete is given up. */
  clientEnded(): void {
    this.#write();
    if (!this.#hasEnded) this.close();
  }

  /** The connection is gone. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#parts = [];
    this.onAbort?.();
  }

  release(): void {
    this.#isHeld = false;
    this.#write();
    this.#finishIfWritten();
  }

  #isGone(): boolean {
    if (!this.#socket.writable) this.#isCut = true;
    return this.#isCut;
  }

  #add(part: string | Buffer): void {
    this.#parts.push(part);
    this.#bytes += part.length;
    if (this.#bytes > GATHERED_BYTES_MAX) this.#write();
    if (this.#isHeld) return;
    this.#isHeld = true;
    holdUntilTurnEnds(this);
  }

  #write(): void {
    const parts = this.#parts;
    const bytes = this.#bytes;
    this.#parts = [];
    this.#bytes = 0;
    if (parts.length === 0 || this.#isGone()) return;
    if (parts.length === 1) return this.#writePart(parts[0] as string | Buffer);
    if (bytes <= JOINED_BYTES_MAX) return this.#writePart(join(parts, bytes));
    this.#socket.cork();
    for (const part of parts) this.#writePart(part);
    this.#socket.uncork();
  }

  #writePart(part: string | Buffer): void {
    this.#pendingWrites += 1;
    this.#isFull = !this.#socket.write(part, 'latin1', this.#onWritten);
  }

  #finishIfWritten(): void {
    if (!this.#hasEnded || this.#isOver || this.#isCut || this.#pendingWrites > 0 || this.#parts.length > 0) return;
    this.#isOver = true;
    this.onFinish?.();
    this.#onOver();
  }
}

function join(parts: readonly (string | Buffer)[], bytes: number): Buffer {
  const joined = Buffer.allocUnsafe(bytes);
  let offset = 0;
  for (const part of parts) {
    if (typeof part === 'string') joined.write(part, offset, 'latin1');
    else part.copy(joined, offset);
    offset += part.length;
  }
  return joined;
}
