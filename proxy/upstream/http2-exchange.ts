// One request under way on a stream of an HTTP/2 connection.
import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from 'node:http2';
import { constants } from 'node:http2';
import type { Duplex } from 'node:stream';
import type { Destination, RawHeaders, UpstreamExchange, UpstreamHandlers, UpstreamRequest } from '../exchange.ts';
import { INTERIM_RESPONSES_BYTES_MAX, INTERIM_RESPONSES_MAX } from '../../model/limits.ts';
import { noHeaders } from '../exchange.ts';
import { nameOfReset, protocolFailed, responseTimedOut } from './failures.ts';
import { isReplayable } from './http1-request.ts';
import type { Http2Probe } from './http2-probe.ts';
import {
  fromHttp2Fields,
  fromHttp2Head,
  isFinalStatus,
  requestOptions,
  statusOfBlock,
  toHttp2Request,
  toHttp2Trailers,
} from './http2-headers.ts';

const { NGHTTP2_CANCEL, NGHTTP2_HTTP_1_1_REQUIRED, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants;

/** What an exchange needs to know of its connection. */
export interface Http2Carrier {
  readonly session: ClientHttp2Session;
  readonly socket: Duplex;
  /** The last stream that the upstream says it has processed; Infinity until it goes away. */
  readonly lastStreamId: number;
  /** Whether the upstream went away with HTTP_1_1_REQUIRED. */
  readonly wantsHttp1: boolean;
  /** Whether a request before this one was answered here. */
  readonly wasUsed: boolean;
  /** The exchange is over. */
  settled(exchange: Http2Exchange): void;
  /** Is told of what comes. */
  readonly probe: Http2Probe;
  /** Takes no more requests, and closes when those under way are done. */
  retire(): void;
}

export interface Http2ExchangeInput {
  readonly destination: Destination;
  readonly request: UpstreamRequest;
  readonly handlers: UpstreamHandlers;
  readonly responseTimeoutMs: number;
  /** How a request goes on that a connection has not served. */
  readonly repeats: {
    /** Sends the request once more, on another connection. */
    readonly replay: (exchange: Http2Exchange, lostSocket: Duplex) => void;
    /** The origin wants HTTP/1.1, from now on and for every request. */
    readonly requireHttp1: () => void;
    /** Sends the request once more by HTTP/1.1; gives what serves the request from then on, or null when it has failed. */
    readonly replayByHttp1: (exchange: Http2Exchange, lostSocket: Duplex) => UpstreamExchange | null;
  };
}

export class Http2Exchange implements UpstreamExchange {
  readonly input: Http2ExchangeInput;
  isOver = false;
  #carrier: Http2Carrier | null = null;
  #stream: ClientHttp2Stream | null = null;
  /** What serves the request in place of this, once the upstream has asked for HTTP/1.1. */
  #successor: UpstreamExchange | null = null;
  #headTimer: NodeJS.Timeout | null = null;
  #hasHead = false;
  #interimCount = 0;
  #interimBytes = 0;
  #hasReplayed = false;
  #hasSeenEnd = false;
  #wasUsed = false;
  #isRequestSent: boolean;
  #bodyBytesLeft: number;
  #trailersOut: OutgoingHttpHeaders = {};
  #trailersIn: RawHeaders = noHeaders();
  #cause: Error | undefined;

  constructor(input: Http2ExchangeInput) {
    this.input = input;
    const { body } = input.request;
    this.#isRequestSent = body.kind === 'none';
    this.#bodyBytesLeft = body.kind === 'length' ? body.bytes : 0;
  }

  /** Whether a part of the request is still to come. */
  get isSending(): boolean {
    return !this.#isRequestSent;
  }

  /** Sends the head. Throws `bad_request` for fields that HTTP/2 can't carry, or the runtime's error for a dead session. */
  start(carrier: Http2Carrier): void {
    const { destination, request } = this.input;
    const stream = carrier.session.request(toHttp2Request(destination, request), {
      endStream: this.#isRequestSent,
      waitForTrailers: request.body.kind === 'stream',
      ...requestOptions,
    });
    this.#carrier = carrier;
    this.#wasUsed = carrier.wasUsed;
    this.#stream = stream;
    this.#watchForEnd(stream);
    stream.on('error', (error: Error) => {
      this.#cause = error;
    });
    // The flat list of fields as they came is the third argument, which the platform's types leave out.
    stream.on('headers', (_headers: unknown, _flags: unknown, raw: RawHeaders) => {
      this.#onInformation(raw);
    });
    stream.on('response', (_headers: unknown, flags: number, raw: RawHeaders) => {
      this.#onHead(raw, flags);
    });
    stream.on('trailers', (_headers: unknown, _flags: unknown, raw: RawHeaders) => {
      this.#trailersIn = fromHttp2Fields(raw);
      carrier.probe.heard();
    });
    stream.on('data', (chunk: Buffer) => {
      carrier.probe.heard();
      if (!this.isOver && !this.input.handlers.data(chunk)) stream.pause();
    });
    stream.on('drain', () => {
      if (!this.isOver && !this.#isRequestSent) this.input.handlers.drain();
    });
    stream.on('wantTrailers', () => {
      // A throw here would have no one to catch it.
      try {
        stream.sendTrailers(this.#trailersOut);
      } catch (error) {
        this.settleError(error as Error);
      }
    });
    stream.on('end', this.#onEnd);
    stream.on('close', this.#onClose);
    if (this.#isRequestSent) this.#awaitHead();
  }

  write(chunk: Buffer): boolean {
    if (this.isOver || this.#isRequestSent || this.#stream === null || chunk.length === 0) return true;
    if (this.input.request.body.kind === 'length') {
      this.#bodyBytesLeft -= chunk.length;
      if (this.#bodyBytesLeft < 0) {
        this.#failLength();
        return true;
      }
    }
    return this.#stream.write(chunk);
  }

  end(trailers: RawHeaders = noHeaders()): void {
    if (this.isOver || this.#isRequestSent || this.#stream === null) return;
    if (this.#bodyBytesLeft !== 0) {
      this.#failLength();
      return;
    }
    try {
      this.#trailersOut = toHttp2Trailers(trailers);
    } catch (error) {
      this.settleError(error as Error);
      return;
    }
    this.#isRequestSent = true;
    this.#stream.end();
    if (!this.#hasHead) this.#awaitHead();
  }

  pause(): void {
    (this.#successor ?? this.#stream)?.pause();
  }

  resume(): void {
    (this.#successor ?? this.#stream)?.resume();
  }

  abort(): void {
    this.#successor?.abort();
    if (!this.isOver) this.#finish();
  }

  /** Tells the owner that it failed, once. */
  settleError(error: Error): void {
    if (this.isOver) return;
    this.#finish();
    this.input.handlers.error(error);
  }

  /**
   * The runtime ends a stream's readable side for a reset and a dead socket too. A true end of the response (END_STREAM)
   * is the one that is pushed while the stream is still open.
   */
  #watchForEnd(stream: ClientHttp2Stream): void {
    const push = stream.push.bind(stream);
    stream.push = (chunk: unknown, encoding?: BufferEncoding): boolean => {
      if (chunk === null && !stream.closed && !stream.destroyed) this.#hasSeenEnd = true;
      return push(chunk, encoding);
    };
  }

  #onInformation(raw: RawHeaders): void {
    this.#carrier?.probe.heard();
    if (this.isOver) return;
    this.#interimCount += 1;
    for (const part of raw) this.#interimBytes += part.length;
    if (this.#interimCount > INTERIM_RESPONSES_MAX || this.#interimBytes > INTERIM_RESPONSES_BYTES_MAX)
      this.settleError(protocolFailed(this.input.destination.authority, 'it sends interim responses without end'));
    else this.input.handlers.information(statusOfBlock(raw), '', fromHttp2Fields(raw));
  }

  #onHead(raw: RawHeaders, flags: number): void {
    if (this.isOver) return;
    this.#hasHead = true;
    this.#carrier?.probe.heard();
    this.#clearTimer();
    const status = statusOfBlock(raw);
    if (!isFinalStatus(status)) {
      this.settleError(protocolFailed(this.input.destination.authority, 'its status is not one of HTTP'));
      return;
    }
    this.input.handlers.head(fromHttp2Head(raw, flags, this.input.request.method));
  }

  readonly #onEnd = (): void => {
    if (this.isOver || !this.#hasSeenEnd || !this.#hasHead) return; // `close` says what happened
    this.#finish();
    this.input.handlers.end(this.#trailersIn);
  };

  readonly #onClose = (): void => {
    if (this.isOver) return;
    this.#carrier?.probe.heard();
    const { authority } = this.input.destination;
    const code = this.#stream?.rstCode ?? NGHTTP2_NO_ERROR;
    if (this.#replay(code)) return;
    this.settleError(protocolFailed(authority, `it ended the HTTP/2 stream early (${nameOfReset(code)})`, this.#cause));
  };

  /**
   * Once, for a request without a body of which nothing was processed: by the upstream's word (RFC 9113 section 8.7, and
   * HTTP_1_1_REQUIRED of section 7), or because a connection that was in use before died without a byte of the response and the method is idempotent.
   */
  #replay(code: number): boolean {
    const { request } = this.input;
    const carrier = this.#carrier;
    if (carrier === null || this.#hasReplayed || this.#hasHead) return false;
    const wantsHttp1 = code === NGHTTP2_HTTP_1_1_REQUIRED || carrier.wantsHttp1;
    if (wantsHttp1) {
      carrier.retire();
      this.input.repeats.requireHttp1();
    }
    if (request.body.kind !== 'none' || !(wantsHttp1 || this.#isUntouched(code, carrier))) return false;
    this.#hasReplayed = true;
    const { socket } = carrier;
    this.#detach();
    if (wantsHttp1) this.#successor = this.input.repeats.replayByHttp1(this, socket);
    else this.input.repeats.replay(this, socket);
    return true;
  }

  #isUntouched(code: number, carrier: Http2Carrier): boolean {
    if (code === NGHTTP2_REFUSED_STREAM || (this.#stream?.id ?? 0) > carrier.lastStreamId) return true;
    // The runtime ends the streams of a connection that is gone with the code that an upstream may send as well.
    const isLost = code === NGHTTP2_CANCEL && carrier.session.destroyed;
    return isLost && this.#wasUsed && isReplayable(this.input.request);
  }

  #awaitHead(): void {
    const { destination, responseTimeoutMs } = this.input;
    this.#headTimer = setTimeout(() => {
      // The runtime does not tell when it has ended a connection for a broken frame and the peer keeps it open: what
      // was silent for so long gets no more requests.
      this.#carrier?.retire();
      this.settleError(responseTimedOut(destination.authority, responseTimeoutMs));
    }, responseTimeoutMs).unref();
  }

  #failLength(): void {
    this.settleError(
      protocolFailed(this.input.destination.authority, 'the body of the request was not as long as it said'),
    );
  }

  #clearTimer(): void {
    if (this.#headTimer !== null) clearTimeout(this.#headTimer);
    this.#headTimer = null;
  }

  #detach(): void {
    this.#clearTimer();
    const carrier = this.#carrier;
    this.#carrier = null;
    this.#stream = null;
    carrier?.settled(this);
  }

  #finish(): void {
    this.isOver = true;
    const stream = this.#stream;
    this.#detach();
    // An upstream that has answered wants no more of the body, and an owner that has gone wants no more of the answer.
    if (stream !== null && !stream.closed && (!this.#hasSeenEnd || !this.#isRequestSent)) stream.close(NGHTTP2_CANCEL);
    if (stream?.isPaused() === true) stream.resume();
  }
}
