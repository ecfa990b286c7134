// One HTTP/1.1 connection to an upstream, with at most one exchange at a time.
import type { Duplex } from 'node:stream';
import type { Cidr } from '../../model/ip-class.ts';
import type { Destination, RawHeaders, ResponseHead } from '../exchange.ts';
import { PieceSize, workInTurns, type Work } from '../fair-turns.ts';
import { holdUntilTurnEnds, type Holder } from '../turn.ts';
import { protocolFailed, responseTimedOut } from './failures.ts';
import { ResponseParser } from './http1-codec.ts';
import type { Http1Carrier, Http1Exchange } from './http1-exchange.ts';
import { ResponseSyntaxError } from './http1-head.ts';
import { isReplayable } from './http1-request.ts';

/** What a connection's owner, the pool, is told. */
export interface Http1ConnectionOwner {
  /** The exchange is over and the connection can carry another one. */
  release(connection: Http1Connection): void;
  /** The connection is closed, or about to be. */
  lost(connection: Http1Connection): void;
  /** Sends the request of an exchange again, which was on the lost connection and is on none now. */
  replay(exchange: Http1Exchange, lost: Http1Connection): void;
}

export class Http1Connection implements Http1Carrier, Holder, Work {
  readonly socket: Duplex;
  readonly destination: Destination;
  readonly #owner: Http1ConnectionOwner;
  readonly #parser: ResponseParser;
  #exchange: Http1Exchange | null = null;
  #isFirstExchange = true;
  #hasBytes = false;
  /** Bytes of a response in chunks that have come and wait to be gone through. */
  #waiting: Buffer[] = [];
  /** Made when a response in chunks comes. */
  #pieceSize: PieceSize | null = null;
  /** It was paused for these, and not by the response's owner. */
  #isBusy = false;
  #isLost = false;
  #headTimer: NodeJS.Timeout | null = null;
  #headTimerMs = 0;
  /** Moment after which it is not taken from the pool any more, on the clock of `performance.now()`. */
  expiresAt = 0;
  /** The ranges under which its peer's address was admitted. */
  admittedUnder: readonly Cidr[];

  /** Takes a connected socket with no listeners of others on it. */
  constructor(socket: Duplex, destination: Destination, owner: Http1ConnectionOwner) {
    this.socket = socket;
    this.destination = destination;
    this.admittedUnder = destination.allowedPrivateCidrs;
    this.#owner = owner;
    this.#parser = new ResponseParser(this);
    socket.on('error', this.#onError);
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('close', this.#onClose);
    socket.on('drain', this.#onDrain);
    socket.resume(); // a `data` listener alone does not wake a stream that was paused before
  }

  /** Seconds for which the upstream keeps it when idle. */
  get idleSeconds(): number {
    return this.#parser.idleSeconds;
  }

  get isUsable(): boolean {
    return !this.#isLost && this.socket.writable && !this.socket.readableEnded;
  }

  /** Writes the exchange's head, at the end of the turn; the body follows in the same packet when it is at hand. */
  start(exchange: Http1Exchange): void {
    const { request, head } = exchange.input;
    this.#exchange = exchange;
    this.#hasBytes = false;
    exchange.connection = this;
    this.#parser.begin(request);
    this.socket.cork();
    holdUntilTurnEnds(this);
    this.socket.write(head, 'latin1');
    if (exchange.isRequestSent) this.awaitHead();
  }

  release(): void {
    this.socket.uncork();
  }

  /** The request is sent: its response's head is due. */
  awaitHead(): void {
    const timeoutMs = this.#exchange?.input.responseTimeoutMs ?? 0;
    if (this.#headTimer !== null && this.#headTimerMs === timeoutMs) {
      this.#headTimer.refresh();
      return;
    }
    // One timer for the whole life of the connection: it finds nothing to do when the head came in time.
    if (this.#headTimer !== null) clearTimeout(this.#headTimer);
    this.#headTimerMs = timeoutMs;
    this.#headTimer = setTimeout(this.#onHeadTimeout, timeoutMs);
    this.#headTimer.unref();
  }

  /** Closes it, telling no exchange. */
  drop(): void {
    this.#exchange = null;
    this.#lose();
    this.socket.destroy();
  }

  /** Closes it and fails its exchange. */
  fail(error: Error): void {
    const exchange = this.#exchange;
    this.drop();
    exchange?.settleError(error);
  }

  // ---- the parts of a response

  information(status: number, reason: string, headers: RawHeaders): void {
    this.#exchange?.input.handlers.information(status, reason, headers);
  }

  head(head: ResponseHead): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    exchange.hasHead = true;
    exchange.input.handlers.head(head);
  }

  data(chunk: Buffer): void {
    if (this.#exchange?.input.handlers.data(chunk) !== false) return;
    this.#isBusy = false;
    this.socket.pause();
  }

  end(trailers: RawHeaders): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    this.#exchange = null;
    exchange.isOver = true;
    exchange.connection = null;
    // A response that came before the end of its request ends the connection too (RFC 9112 section 9.3).
    // Bytes that wait belong to no response any more.
    const isReusable = this.#parser.isReusable && this.#waiting.length === 0;
    if (exchange.isRequestSent && isReusable && this.isUsable) this.#release();
    else this.drop();
    exchange.input.handlers.end(trailers);
  }

  upgrade(head: ResponseHead, firstBytes: Buffer): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    this.#exchange = null;
    exchange.isOver = true;
    exchange.connection = null;
    this.#lose();
    this.#unlisten();
    this.socket.pause();
    exchange.input.handlers.upgrade(head, this.socket, firstBytes);
  }

  #release(): void {
    this.#isFirstExchange = false;
    if (this.socket.isPaused()) this.socket.resume();
    this.#owner.release(this);
  }

  #lose(): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.#waiting = [];
    this.#parser.stop();
    if (this.#headTimer !== null) clearTimeout(this.#headTimer);
    this.#owner.lost(this);
  }

  /** All but the `error` listener, so that there is one at every moment. */
  #unlisten(): void {
    this.socket.removeListener('data', this.#onData);
    this.socket.removeListener('end', this.#onEnd);
    this.socket.removeListener('close', this.#onClose);
    this.socket.removeListener('drain', this.#onDrain);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#exchange === null) {
      // Bytes that nobody asked for must never be taken for the answer to the next request.
      this.drop();
      return;
    }
    this.#hasBytes = true;
    if (!this.#parser.isInChunks && this.#waiting.length === 0) this.#parse(chunk);
    else if (this.#waiting.push(chunk) === 1) workInTurns(this.destination.sessionId, this);
    if (this.#waiting.length === 0 || this.socket.isPaused()) return;
    this.#isBusy = true;
    this.socket.pause();
  };

  #parse(chunk: Buffer): void {
    try {
      this.#parser.execute(chunk);
    } catch (error) {
      this.#failParsing(error);
    }
  }

  /** Goes through some of the bytes that wait. */
  work(): boolean {
    const chunk = this.#waiting.shift();
    if (chunk === undefined) return false;
    const size = (this.#pieceSize ??= new PieceSize());
    if (chunk.length > size.bytes) this.#waiting.unshift(chunk.subarray(size.bytes));
    const startedAt = performance.now();
    this.#parse(chunk.length > size.bytes ? chunk.subarray(0, size.bytes) : chunk);
    size.adapt(startedAt);
    if (this.#waiting.length > 0) return true;
    if (this.#isBusy) this.socket.resume();
    this.#isBusy = false;
    return false;
  }

  readonly #onEnd = (): void => {
    if (this.#exchange === null) {
      this.drop();
      return;
    }
    try {
      this.#parser.finish();
    } catch (error) {
      if (!this.#replay()) this.#failParsing(error);
    }
  };

  readonly #onError = (error: Error): void => {
    if (!this.#replay()) this.#breakOff(error);
  };

  readonly #onClose = (): void => {
    if (!this.#replay()) this.#breakOff();
  };

  readonly #onDrain = (): void => {
    const exchange = this.#exchange;
    if (exchange !== null && !exchange.isRequestSent) exchange.input.handlers.drain();
  };

  readonly #onHeadTimeout = (): void => {
    const exchange = this.#exchange;
    if (exchange === null || exchange.hasHead || !exchange.isRequestSent) return;
    this.fail(responseTimedOut(this.destination.authority, exchange.input.responseTimeoutMs));
  };

  /** A pooled connection that closes before the first byte of a response has processed nothing (RFC 9112 section 9.3.1). */
  #replay(): boolean {
    const exchange = this.#exchange;
    if (exchange === null || this.#hasBytes || this.#isFirstExchange || !isReplayable(exchange.input.request))
      return false;
    exchange.connection = null;
    this.drop();
    this.#owner.replay(exchange, this);
    return true;
  }

  #breakOff(cause?: Error): void {
    const { authority } = this.destination;
    this.fail(protocolFailed(authority, 'its connection broke before the response was complete', cause));
  }

  #failParsing(error: unknown): void {
    const { authority } = this.destination;
    if (error instanceof ResponseSyntaxError) this.fail(protocolFailed(authority, error.message, error));
    // Not of the upstream's making but of a handler's: its owner hears of it, or nobody could.
    else if (this.#exchange === null) throw error;
    else this.fail(error as Error);
  }
}
