// The shapes in which a request, a response and their bodies travel through the data plane, whatever the HTTP version.
import type { Duplex } from 'node:stream';
import type { Authority } from '../model/authority.ts';
import type { Cidr } from '../model/ip-class.ts';

/**
 * Header or trailer fields as a flat list: name, value, name, value. Values are Latin-1 strings of the bytes on the
 * wire; order, case and duplicates are as they came (RFC 9110 section 5.3).
 */
export type RawHeaders = readonly string[];

/** How the end of a body is known: there is none, its length in bytes was stated, or only its end tells. */
export type BodyFraming =
  { readonly kind: 'none' } | { readonly kind: 'length'; readonly bytes: number } | { readonly kind: 'stream' };

export type HttpVersion = '1.0' | '1.1' | '2';

/** Where an exchange goes. Pools are kept per session and origin, so that connection-bound logins never cross. */
export interface Destination {
  readonly sessionId: string;
  readonly scheme: 'https' | 'http';
  readonly authority: Authority;
  readonly allowedPrivateCidrs: readonly Cidr[];
}

/** A request as it goes upstream: hop-by-hop fields are gone, secrets are in. */
export interface UpstreamRequest {
  readonly method: string;
  /** Origin form (or `*`), byte for byte as the client sent it. */
  readonly target: string;
  /** In wire order, with `Host`; a `Content-Length` or `Transfer-Encoding` in it agrees with `body`. */
  readonly headers: RawHeaders;
  readonly body: BodyFraming;
  /** Lower-case names of fields whose values hold a secret: never indexed by HPACK (RFC 7541 section 7.1.3). */
  readonly sensitiveNames: ReadonlySet<string>;
  /** Set for a protocol upgrade: `websocket`. */
  readonly upgrade?: string;
}

/** The final response's head. */
export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  readonly headers: RawHeaders;
  readonly httpVersion: HttpVersion;
  readonly body: BodyFraming;
}

/** Takes one response: a head, data, then exactly one of `end` and `error`. */
export interface ResponseSink {
  head(head: ResponseHead): void;
  /** False asks the source to pause until it is resumed. The chunk is the sink's from then on. */
  data(chunk: Buffer): boolean;
  end(trailers: RawHeaders): void;
  error(error: Error): void;
}

/** What an upstream exchange tells its owner. */
export interface UpstreamHandlers extends ResponseSink {
  /** An interim response (1xx other than 101). */
  information(status: number, reason: string, headers: RawHeaders): void;
  /** The request body may go on after `write` returned false. */
  drain(): void;
  /** A 101 whose protocol the request asked for: the connection is the owner's from now on. */
  upgrade(head: ResponseHead, socket: Duplex, firstBytes: Buffer): void;
}

/** One request under way at an upstream. Every call after the end or an error does nothing. */
export interface UpstreamExchange {
  /** Sends body bytes; false means wait for `drain`. */
  write(chunk: Buffer): boolean;
  end(trailers?: RawHeaders): void;
  pause(): void;
  resume(): void;
  /** Gives the exchange up; the connection is closed (HTTP/1.1) or the stream reset (HTTP/2). */
  abort(): void;
}

/** The upstream side as the pipeline sees it. */
export interface Upstream {
  /** Whether a connection to it waits for a request, of which the address was vetted and may still be reached; never behind a chained proxy. */
  isConnected(destination: Destination): boolean;
  /** Resolves and classifies, and opens nothing. Rejects with `address_denied` or `upstream_connect_failed`. */
  vet(destination: Destination, signal: AbortSignal): Promise<void>;
  /**
   * Sends a request's head on a pooled or new connection. The promise (or the value, when a pooled connection was at
   * hand) is the exchange once its head has been written. A request without a body and with an idempotent method is
   * tried once more by itself when a pooled connection closed before the first byte of the response.
   */
  request(
    destination: Destination,
    request: UpstreamRequest,
    options: UpstreamRequestOptions,
  ): UpstreamExchange | Promise<UpstreamExchange>;
  /**
   * Whether a request that came by HTTP/2 would go on by it. Asks the origin with a handshake of its own when none has
   * told yet; rejects as `request` does.
   */
  speaksHttp2(destination: Destination, signal: AbortSignal): Promise<boolean>;
  /** A vetted TCP connection (through the chained proxy, if any) for a tunnel that is relayed unread. */
  dial(destination: Destination, signal: AbortSignal): Promise<Duplex>;
  /** Closes what a session has open, busy or not. */
  closeSession(sessionId: string): void;
  /** Closes what a session has open to addresses that are not admitted any more under these ranges of its environment. */
  keepAdmitted(sessionId: string, allowedPrivateCidrs: readonly Cidr[]): void;
  close(): Promise<void>;
}

export interface UpstreamRequestOptions {
  readonly handlers: UpstreamHandlers;
  /** The version that the client used: HTTP/2 is asked for only when the client came by it. */
  readonly clientVersion: HttpVersion;
  /** Gives up the wait for a connection. Once there is an exchange, only its `abort` counts. */
  readonly signal: AbortSignal;
  /** Milliseconds from the end of the request until the response's head. */
  readonly responseTimeoutMs: number;
}

const EMPTY: RawHeaders = [];

/** No fields. */
export function noHeaders(): RawHeaders {
  return EMPTY;
}

/** First value of a field, looked up without regard to case; undefined when absent. */
export function headerValue(headers: RawHeaders, lowerName: string): string | undefined {
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    if (name.length === lowerName.length && name.toLowerCase() === lowerName) return headers[index + 1];
  }
  return undefined;
}

/** All values of a field in order, looked up without regard to case. */
export function headerValues(headers: RawHeaders, lowerName: string): string[] {
  const values: string[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    if (name.length === lowerName.length && name.toLowerCase() === lowerName) values.push(headers[index + 1] as string);
  }
  return values;
}

/** The fields without those whose lower-case name is in the set; the same list when none was. */
export function withoutHeaders(headers: RawHeaders, lowerNames: ReadonlySet<string>): RawHeaders {
  let kept: string[] | null = null;
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    if (lowerNames.has(name.toLowerCase())) kept ??= headers.slice(0, index);
    else kept?.push(name, headers[index + 1] as string);
  }
  return kept ?? headers;
}

/** The fields with one of them set: at its old place when it was there (once, then), else at the end. */
export function withHeader(headers: RawHeaders, name: string, value: string): RawHeaders {
  const lowerName = name.toLowerCase();
  const result: string[] = [];
  let isSet = false;
  for (let index = 0; index < headers.length; index += 2) {
    const current = headers[index] as string;
    if (current.toLowerCase() !== lowerName) result.push(current, headers[index + 1] as string);
    else if (!isSet) {
      result.push(current, value);
      isSet = true;
    }
  }
  if (!isSet) result.push(name, value);
  return result;
}
