// One request from a client and the way to answer it, whatever the HTTP version it came by.
import type { Readable } from 'node:stream';
import type { BodyFraming, HttpVersion, RawHeaders, ResponseSink } from './exchange.ts';

/** A request as the client sent it. */
export interface ClientRequest {
  readonly httpVersion: HttpVersion;
  readonly method: string;
  /** As it stood in the request line, or `:path`. */
  readonly target: string;
  /** As they came; over HTTP/2 the pseudo-header fields are left out and `host` stands for `:authority`. */
  readonly headers: RawHeaders;
  readonly body: BodyFraming;
  /** The body's bytes; nothing is read from it before somebody listens. Null where no more than the head was read. */
  readonly stream: Readable | null;
  /** Trailer fields, once the body has ended. */
  trailers(): RawHeaders;
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean;
}

/** The answer's way back. `head`, `data`, `end` and `error` come from the sink that the pipeline fills. */
export interface ClientReply extends ResponseSink {
  /**
   * Passes an interim response on; does nothing where the version has none. False asks for no more until `onDrain`. Throws
   * `upstream_protocol_error` for one that the version can't carry.
   */
  information(status: number, reason: string, headers: RawHeaders): boolean;
  /** True once a final head was sent: a refusal can't be told any more. */
  readonly started: boolean;
  /** Called when `data` or `information` returned false and there is room again. */
  onDrain: (() => void) | null;
  /** Called once, when the client has gone before the answer was complete. */
  onAbort: (() => void) | null;
  /** Called once, when the whole answer has been handed to the connection. */
  onFinish: (() => void) | null;
}

export interface ClientExchange {
  readonly request: ClientRequest;
  readonly reply: ClientReply;
}
