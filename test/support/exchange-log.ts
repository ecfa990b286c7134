// Sends a request through an upstream and collects what comes back, for tests.
import { parseCidr, type Cidr } from '../../model/ip-class.ts';
import type {
  BodyFraming,
  Destination,
  HttpVersion,
  RawHeaders,
  ResponseHead,
  Upstream,
  UpstreamExchange,
  UpstreamRequest,
} from '../../proxy/exchange.ts';
import type { Duplex } from 'node:stream';

export const LOOPBACK = [parseCidr('127.0.0.0/8'), parseCidr('::1/128')] as Cidr[];

export interface Answer {
  readonly interim: number[];
  readonly head: ResponseHead | null;
  readonly body: string;
  readonly trailers: RawHeaders;
  readonly error: (Error & { code?: string }) | null;
  readonly upgrade: { readonly socket: Duplex; readonly firstBytes: Buffer } | null;
}

export interface SendOptions {
  readonly method?: string;
  readonly target?: string;
  readonly headers?: RawHeaders;
  readonly body?: BodyFraming;
  readonly upgrade?: string;
  readonly sensitiveNames?: ReadonlySet<string>;
  readonly clientVersion?: HttpVersion;
  readonly responseTimeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Is given the exchange when there is one; the default ends it. */
  readonly onExchange?: (exchange: UpstreamExchange) => void;
  readonly onHead?: (head: ResponseHead, exchange: UpstreamExchange | null) => void;
  readonly onData?: (chunk: Buffer, exchange: UpstreamExchange | null) => boolean;
  readonly onDrain?: () => void;
}

/** A destination of `https` unless told otherwise. */
export function destinationOf(
  port: number,
  changes: Partial<Destination> & { readonly host?: string } = {},
): Destination {
  const { host = 'api.test', ...rest } = changes;
  return { sessionId: 'sesn_1', scheme: 'https', authority: { host, port }, allowedPrivateCidrs: [], ...rest };
}

/** Resolves when the exchange is over, in whatever way. */
export function send(upstream: Upstream, destination: Destination, options: SendOptions = {}): Promise<Answer> {
  const interim: number[] = [];
  const chunks: Buffer[] = [];
  let head: ResponseHead | null = null;
  let exchange: UpstreamExchange | null = null;
  const request: UpstreamRequest = {
    method: options.method ?? 'GET',
    target: options.target ?? '/',
    headers: options.headers ?? ['Host', destination.authority.host],
    body: options.body ?? { kind: 'none' },
    sensitiveNames: options.sensitiveNames ?? new Set(),
    ...(options.upgrade === undefined ? {} : { upgrade: options.upgrade }),
  };
  return new Promise((resolve) => {
    const settle = (rest: Partial<Answer>): void => {
      const body = Buffer.concat(chunks).toString('latin1');
      resolve({ interim, head, body, trailers: [], error: null, upgrade: null, ...rest });
    };
    const started = (value: UpstreamExchange): void => {
      exchange = value;
      if (options.onExchange === undefined) value.end();
      else options.onExchange(value);
    };
    const result = upstream.request(destination, request, {
      clientVersion: options.clientVersion ?? '1.1',
      signal: options.signal ?? new AbortController().signal,
      responseTimeoutMs: options.responseTimeoutMs ?? 5000,
      handlers: {
        information: (status) => interim.push(status),
        head: (value) => {
          head = value;
          options.onHead?.(value, exchange);
        },
        data: (chunk) => {
          chunks.push(Buffer.from(chunk));
          return options.onData?.(chunk, exchange) ?? true;
        },
        end: (trailers) => settle({ trailers }),
        error: (error) => settle({ error }),
        drain: () => options.onDrain?.(),
        upgrade: (value, socket, firstBytes) => {
          head = value;
          settle({ upgrade: { socket, firstBytes } });
        },
      },
    });
    if (result instanceof Promise) result.then(started, (error: Error) => settle({ error }));
    else started(result);
  });
}
