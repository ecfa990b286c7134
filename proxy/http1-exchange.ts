// HTTP/1.1 towards the client: Node's request and response as a client exchange.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import { HEADER_BLOCK_BYTES_MAX, HEADER_FIELDS_MAX, REQUEST_TARGET_BYTES_MAX } from '../model/limits.ts';
import { Attachment } from './attachment.ts';
import type { ClientExchange, ClientReply, ClientRequest } from './client-exchange.ts';
import { lingerAfterAnswer } from './linger.ts';
import { headerValue, headerValues, type BodyFraming, type RawHeaders, type ResponseHead } from './exchange.ts';
import { holdUntilTurnEnds, type Holder } from './turn.ts';

const NO_BODY: BodyFraming = { kind: 'none' };
const NOTHING = Buffer.alloc(0);
const STREAM: BodyFraming = { kind: 'stream' };

function malformed(what: string): KeyveilError {
  return new KeyveilError('bad_request', `The request is malformed: ${what}.`);
}

/**
 * Refuses what Node's strict parser lets through and RFC 9112 forbids or makes ambiguous: two `Host` fields, a
 * transfer coding other than chunked, chunked on HTTP/1.0, versions that are neither 1.0 nor 1.1, and too much of
 * anything.
 */
function requireClearFraming(request: IncomingMessage): void {
  const { rawHeaders, httpVersion } = request;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') throw malformed('the HTTP version must be 1.0 or 1.1');
  if ((request.url ?? '').length > REQUEST_TARGET_BYTES_MAX) {
    throw new KeyveilError('header_too_large', `The request target is longer than ${REQUEST_TARGET_BYTES_MAX} bytes.`);
  }
  if (rawHeaders.length > 2 * HEADER_FIELDS_MAX) {
    throw new KeyveilError('header_too_large', `The request has more than ${HEADER_FIELDS_MAX} header fields.`);
  }
  let hosts = 0;
  let bytes = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    bytes += name.length + (rawHeaders[index + 1] as string).length + 4;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  // RFC 9112 section 3.2.
  if (hosts === 0 && httpVersion === '1.1') throw malformed('it has no Host field');
  if (hosts > 1) throw malformed('it has more than one Host field');
  if (bytes > HEADER_BLOCK_BYTES_MAX) {
    throw new KeyveilError('header_too_large', `The header block is longer than ${HEADER_BLOCK_BYTES_MAX} bytes.`);
  }
}

function framingOf(request: IncomingMessage): BodyFraming {
  const { headers, rawHeaders } = request;
  if (headers['transfer-encoding'] !== undefined) {
    const codings = headerValues(rawHeaders, 'transfer-encoding');
    if (request.httpVersion !== '1.1') throw malformed('a transfer coding needs HTTP/1.1');
    if (codings.length !== 1 || codings[0]?.toLowerCase() !== 'chunked') {
      throw malformed('the only transfer coding that is understood is chunked');
    }
    return STREAM;
  }
  const length = headers['content-length'];
  // A stated length of zero is kept: a POST without it is a 411 at some servers.
  return length === undefined ? NO_BODY : { kind: 'length', bytes: Number(length) };
}

/** Throws `bad_request` or `header_too_large`. */
export function readHttp1Request(request: IncomingMessage): ClientRequest {
  requireClearFraming(request);
  return {
    httpVersion: request.httpVersion === '1.0' ? '1.0' : '1.1',
    method: request.method ?? '',
    target: request.url ?? '',
    headers: request.rawHeaders,
    body: framingOf(request),
    stream: request,
    trailers: () => request.rawTrailers,
    expectsContinue: request.headers.expect !== undefined && /^100-continue$/i.test(request.headers.expect),
  };
}

/** `Trailer` announces what only chunks can have after them (RFC 9110 section 6.6.2), and Node refuses it elsewhere. */
function withoutChunks(response: ServerResponse, headers: string[]): void {
  response.removeHeader('transfer-encoding');
  for (let index = headers.length - 2; index >= 0; index -= 2) {
    const name = headers[index] as string;
    if (name.length === 7 && name.toLowerCase() === 'trailer') headers.splice(index, 2);
  }
}

function needsLength(head: ResponseHead, method: string | undefined): boolean {
  if (method === 'HEAD' || head.status === 204 || head.status === 304) return false;
  return headerValue(head.headers, 'content-length') === undefined;
}

/** A connection's replies that are not over, in the order of their requests. */
interface Replies {
  readonly open: Set<Http1Reply>;
  /** An answer has said that the connection closes after it. */
  isClosing: boolean;
}

const repliesBySocket = new Attachment<Duplex, Replies>('keyveil.replies');

function repliesOf(socket: Duplex): Replies {
  const known = repliesBySocket.get(socket);
  if (known !== undefined) return known;
  const replies: Replies = { open: new Set(), isClosing: false };
  repliesBySocket.set(socket, replies);
  // Node tells it to the one reply that has the connection; those of requests pipelined behind would wait for ever.
  socket.once('close', () => {
    for (const reply of replies.open) reply.close();
  });
  return replies;
}

/** RFC 9112 section 9.6: what comes behind a request whose answer closes the connection is not processed. */
export function isClosing(socket: Duplex): boolean {
  return repliesBySocket.get(socket)?.isClosing === true;
}

/** A reply over Node's ServerResponse, with fields in the order and case given. */
class Http1Reply implements ClientReply, Holder {
  onDrain: (() => void) | null = null;
  onAbort: (() => void) | null = null;
  onFinish: (() => void) | null = null;
  readonly #response: ServerResponse;
  readonly #socket: Duplex;
  readonly #replies: Replies;
  #hasEnded = false;
  #isHeld = false;

  constructor(response: ServerResponse, socket: Duplex) {
    this.#response = response;
    this.#socket = socket;
    // Node would add these by itself; only the upstream's own fields go to the client.
    response.sendDate = false;
    response.on('drain', () => this.onDrain?.());
    response.on('close', () => this.close());
    this.#replies = repliesOf(socket);
    this.#replies.open.add(this);
  }

  get started(): boolean {
    return this.#response.headersSent;
  }

  information(status: number, reason: string, headers: RawHeaders): boolean {
    // RFC 9110 section 15.2: an HTTP/1.0 client must not be sent an interim response.
    if (this.#response.headersSent || this.#response.req.httpVersion === '1.0') return true;
    let head = `HTTP/1.1 ${status} ${reason}\r\n`;
    for (let index = 0; index < headers.length; index += 2) head += `${headers[index]}: ${headers[index + 1]}\r\n`;
    const hasRoom = this.#socket.write(`${head}\r\n`, 'latin1');
    // Told to Node too, which would close the connection after a response to a client that still waits for its 100.
    if (status === 100) Object.assign(this.#response, { _sent100: true });
    // Node tells a response of the drain only after writes of its own.
    if (!hasRoom) this.#socket.once('drain', () => this.onDrain?.());
    return hasRoom;
  }

  /** Its body may come or not, so that nobody could say where the next request begins (RFC 9110 section 10.1.1). */
  #isContinueOwed(): boolean {
    const { req, _sent100: isSent } = this.#response as ServerResponse & { _sent100?: boolean };
    return isSent !== true && req.httpVersion === '1.1' && /\b100-continue\b/i.test(req.headers.expect ?? '');
  }

  head(head: ResponseHead): void {
    const response = this.#response;
    if (response.headersSent || response.destroyed) return;
    const headers = [...head.headers];
    const isHttp10 = response.req.httpVersion === '1.0';
    // An HTTP/1.0 client learns the end of a body of unknown length from the end of the connection.
    const isStream = head.body.kind === 'stream';
    if (isStream && isHttp10) response.shouldKeepAlive = false;
    if (isStream && !isHttp10) headers.push('Transfer-Encoding', 'chunked');
    else withoutChunks(response, headers);
    // HTTP/2 needs no length to say that there is nothing; without one HTTP/1.1 would have to close the connection.
    if (head.body.kind === 'none' && needsLength(head, response.req.method)) headers.push('Content-Length', '0');
    if (this.#isContinueOwed()) response.shouldKeepAlive = false;
    if (!response.shouldKeepAlive) {
      headers.push('Connection', 'close');
      this.#dropLater();
    } else if (isHttp10) headers.push('Connection', 'keep-alive');
    else response.removeHeader('connection');
    this.#hold();
    response.writeHead(head.status, head.reason, headers);
    // An event stream's head leaves at once; a body that is at hand leaves in the same segment.
    if (isStream) queueMicrotask(() => this.#flushHead());
  }

  #flushHead(): void {
    // `flushHeaders` would turn Latin-1 values into UTF-8; a Buffer, an empty one too, leaves them as they are.
    if (!this.#hasEnded && !this.#response.destroyed) this.#response.write(NOTHING);
  }

  data(chunk: Buffer): boolean {
    if (this.#response.destroyed) return true;
    return this.#response.write(chunk);
  }

  end(trailers: RawHeaders): void {
    this.#hasEnded = true;
    if (this.#response.destroyed) return;
    if (trailers.length > 0 && this.#response.chunkedEncoding) this.#addTrailers(trailers);
    if (!this.#isHeld) this.#finish();
  }

  #finish(): void {
    if (!this.#response.shouldKeepAlive && !this.#response.req.complete) lingerAfterAnswer(this.#socket);
    this.#response.end();
  }

  #hold(): void {
    this.#isHeld = true;
    this.#socket.cork();
    holdUntilTurnEnds(this);
  }

  /** Node's `end` uncorks the connection whoever has corked it, so that comes here too. */
  release(): void {
    this.#isHeld = false;
    if (this.#hasEnded && !this.#response.destroyed) this.#finish();
    else this.#socket.uncork();
  }

  #addTrailers(trailers: RawHeaders): void {
    const pairs: [string, string][] = [];
    for (let index = 0; index < trailers.length; index += 2) {
      pairs.push([trailers[index] as string, trailers[index + 1] as string]);
    }
    this.#response.addTrailers(pairs);
  }

  /** Kills the connection, so that what was sent can't be taken for a whole response (RFC 9112 section 8). */
  error(): void {
    this.#hasEnded = true;
    // Node corks the connection until the end of the turn: what was written in it leaves first.
    while (this.#socket.writableCorked > 0) this.#socket.uncork();
    this.#response.destroy();
    this.#socket.destroy();
  }

  #dropLater(): void {
    this.#replies.isClosing = true;
    let isLater = false;
    for (const reply of this.#replies.open) {
      if (isLater) reply.close();
      else isLater = reply === this;
    }
  }

  /** The answer has left as a whole, or its connection is gone. */
  close(): void {
    this.#replies.open.delete(this);
    const { onAbort, onFinish } = this;
    this.onAbort = null;
    this.onFinish = null;
    if (this.#response.writableFinished) onFinish?.();
    else onAbort?.();
  }
}

/** Whether a request asks for a protocol that is switched to here; any other upgrade goes on as an ordinary request. */
export function asksForWebSocket(request: IncomingMessage): boolean {
  return request.method === 'GET' && (headerValue(request.rawHeaders, 'upgrade') ?? '').toLowerCase() === 'websocket';
}

/** Pairs a request with its reply. Throws what `readHttp1Request` throws. */
export function createHttp1Exchange(
  request: IncomingMessage,
  response: ServerResponse,
  socket: Duplex,
): ClientExchange {
  return { request: readHttp1Request(request), reply: new Http1Reply(response, socket) };
}
