// Moves a request body to the upstream with backpressure, and says when it could not.
import type { Readable } from 'node:stream';
import type { RawHeaders, UpstreamExchange } from './exchange.ts';

export interface RequestPumpOptions {
  readonly body: Readable | Buffer;
  /** Sees each chunk before it leaves. */
  readonly onChunk: ((chunk: Buffer) => void) | null;
  /** Trailer fields to send, asked for when the body has ended; may throw, which fails the request. */
  readonly trailers: () => RawHeaders;
  readonly onError: (error: Error) => void;
}

/** The client's side of the body ended before the body did: with a reset, or with the loss of the connection. */
export class BodyCutError extends Error {}

// A reset of an HTTP/2 stream, or the loss of its connection, ends its readable side as a whole body does.
function wasCut(body: Readable): boolean {
  const { aborted, rstCode } = body as { aborted?: boolean; rstCode?: number };
  return aborted === true || (rstCode ?? 0) !== 0;
}

/** Where the pump puts the bytes, from the moment at which the upstream connection is there. */
export class RequestPump {
  readonly #options: RequestPumpOptions;
  #exchange: UpstreamExchange | null = null;
  #isStopped = false;

  constructor(options: RequestPumpOptions) {
    this.#options = options;
  }

  get body(): Readable | Buffer {
    return this.#options.body;
  }

  start(exchange: UpstreamExchange): void {
    if (this.#isStopped) return;
    this.#exchange = exchange;
    const { body, onChunk } = this.#options;
    if (Buffer.isBuffer(body)) {
      exchange.write(body);
      this.#end();
      return;
    }
    // An HTTP/2 stream whose body is empty may have ended while the upstream was being connected to.
    if (body.readableEnded) {
      if (wasCut(body)) this.#fail(new BodyCutError('The request body was cut short.'));
      else this.#end();
      return;
    }
    body.on('data', (chunk: Buffer) => {
      onChunk?.(chunk);
      if (!this.#isStopped && !exchange.write(chunk)) body.pause();
    });
    body.on('end', () => {
      if (wasCut(body)) this.#fail(new BodyCutError('The request body was cut short.'));
      else this.#end();
    });
    body.on('error', (error) => this.#fail(error));
    // `close` without `end`: the client has gone, or the stream was destroyed without a word.
    body.on('close', () => {
      if (!body.readableEnded) this.#fail(new BodyCutError('The request body ended early.'));
    });
  }

  resume(): void {
    const { body } = this.#options;
    if (!Buffer.isBuffer(body)) body.resume();
  }

  /** Sends no more; what still comes is thrown away, so that the connection can serve the next request. */
  stop(): void {
    this.#isStopped = true;
    this.resume();
  }

  #end(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    try {
      this.#exchange?.end(this.#options.trailers());
    } catch (error) {
      this.#options.onError(error as Error);
    }
  }

  #fail(error: Error): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#options.onError(error);
  }
}
