// HTTP/2 towards the client: a stream as a client exchange (RFC 9113 section 8).
import { constants, type ServerHttp2Stream } from 'node:http2';
import { KeyveilError } from '../model/errors.ts';
import {
  HEADER_BLOCK_BYTES_MAX,
  HEADER_FIELDS_MAX,
  HTTP2_CLIENT_HEADER_LIST_BYTES_MAX,
  REQUEST_TARGET_BYTES_MAX,
} from '../model/limits.ts';
import type { ClientReply, ClientRequest } from './client-exchange.ts';
import { addHttp2Field, createHttp2Fields, type Http2Fields } from './http2-fields.ts';
import { interimBacklogOf } from './http2-interim.ts';
import { headerValue, type BodyFraming, type RawHeaders, type ResponseHead } from './exchange.ts';

// Fields of which a second one would be ambiguous (RFC 9110 section 5.3); HTTP/2 to HTTP/1.1 must not smuggle it in.
const SINGLE_VALUE_FIELDS = new Set([
  'authorization',
  'content-length',
  'content-type',
  'content-encoding',
  'content-location',
  'expect',
  'from',
  'host',
  'if-modified-since',
  'if-unmodified-since',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'user-agent',
]);

// RFC 9113 section 8.2.2; `te` may say `trailers` in a request alone.
const CONNECTION_FIELDS = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);

const FIELD_OVERHEAD_BYTES = 32;
const RESET_CONTENT = 205;
// Node would add the field by itself; the option is missing in its types.
const NO_DATE = { sendDate: false };

function malformed(what: string): KeyveilError {
  return new KeyveilError('bad_request', `The request is malformed: ${what}.`);
}

/** A request's pseudo-header fields and its others, as HTTP/1.1 would have them. */
interface ParsedFields {
  readonly pseudo: ReadonlyMap<string, string>;
  readonly headers: string[];
}

function parseFields(raw: readonly string[]): ParsedFields {
  const pseudo = new Map<string, string>();
  const headers: string[] = [];
  const seen = new Set<string>();
  let bytes = 0;
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] as string;
    const value = raw[index + 1] as string;
    bytes += name.length + value.length + 4;
    if (name.startsWith(':')) {
      if (pseudo.has(name)) throw malformed('a pseudo-header field is repeated');
      pseudo.set(name, value);
      continue;
    }
    if (SINGLE_VALUE_FIELDS.has(name) && seen.has(name)) throw malformed(`the field ${name} is repeated`);
    seen.add(name);
    headers.push(name, value);
  }
  if (bytes > HEADER_BLOCK_BYTES_MAX || raw.length > 2 * HEADER_FIELDS_MAX) {
    throw new KeyveilError('header_too_large', `The header block is longer than ${HEADER_BLOCK_BYTES_MAX} bytes.`);
  }
  return { pseudo, headers };
}

function framingOf(headers: RawHeaders, endsStream: boolean): BodyFraming {
  const length = headerValue(headers, 'content-length');
  if (length !== undefined && !/^[0-9]{1,15}$/.test(length)) throw malformed('content-length is not a number');
  if (length !== undefined) return { kind: 'length', bytes: Number(length) };
  return endsStream ? { kind: 'none' } : { kind: 'stream' };
}

// `host` stands for `:authority` from here on; when both are there they must agree (RFC 9113 section 8.3.1).
function requireAuthorityField(parsed: ParsedFields): RawHeaders {
  const authority = parsed.pseudo.get(':authority');
  const host = headerValue(parsed.headers, 'host');
  if (authority === undefined) {
    if (host === undefined) throw malformed('it has neither :authority nor host');
    return parsed.headers;
  }
  if (host !== undefined && host.toLowerCase() !== authority.toLowerCase()) {
    throw malformed(':authority and host differ');
  }
  return host === undefined ? ['host', authority, ...parsed.headers] : parsed.headers;
}

/** What a stream asks for: an ordinary request, or an extended CONNECT (RFC 8441). */
export interface Http2Request {
  readonly request: ClientRequest;
  /** `:protocol` of an extended CONNECT. */
  readonly protocol: string | null;
}

/** Throws `bad_request`, `header_too_large` or `connect_not_allowed`. */
export function readHttp2Request(stream: ServerHttp2Stream, raw: readonly string[], endsStream: boolean): Http2Request {
  const parsed = parseFields(raw);
  const method = parsed.pseudo.get(':method') ?? '';
  const protocol = parsed.pseudo.get(':protocol') ?? null;
  const target = parsed.pseudo.get(':path') ?? '';
  if (method === 'CONNECT' && protocol === null) {
    throw new KeyveilError('connect_not_allowed', 'CONNECT inside a tunnel is not allowed. Open it at the proxy.');
  }
  if (parsed.pseudo.get(':scheme') !== 'https') throw malformed(':scheme must be https');
  if (target.length > REQUEST_TARGET_BYTES_MAX) {
    throw new KeyveilError('header_too_large', `The request target is longer than ${REQUEST_TARGET_BYTES_MAX} bytes.`);
  }
  const headers = requireAuthorityField(parsed);
  let trailers: RawHeaders = [];
  stream.on('trailers', (_fields: unknown, _flags: number, rawTrailers?: string[]) => (trailers = rawTrailers ?? []));
  const body: BodyFraming = protocol === null ? framingOf(headers, endsStream) : { kind: 'none' };
  // Nobody reads a body that is not there, and Node resets a stream that nobody has read.
  if (endsStream && body.kind === 'none') stream.resume();
  const request: ClientRequest = {
    httpVersion: '2',
    method: protocol === null ? method : 'GET',
    target,
    headers,
    body,
    stream,
    trailers: () => trailers,
    expectsContinue: /^100-continue$/i.test(headerValue(headers, 'expect') ?? ''),
  };
  return { request, protocol };
}

// HTTP/1.1's own fields have no place in HTTP/2 (RFC 9113 section 8.2.2); the rest is lower-cased, duplicates kept.
// Throws `upstream_protocol_error` for more than a client can be sent: nghttp2 would reset the stream without a word.
function toHttp2Fields(headers: RawHeaders): Http2Fields {
  const fields = createHttp2Fields();
  if (listBytesOf(headers) > HTTP2_CLIENT_HEADER_LIST_BYTES_MAX) {
    const limit = `${HTTP2_CLIENT_HEADER_LIST_BYTES_MAX} bytes`;
    throw new KeyveilError(
      'upstream_protocol_error',
      `The upstream sent a header block that HTTP/2 can't carry: over ${limit}.`,
    );
  }
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] as string).toLowerCase();
    if (CONNECTION_FIELDS.has(name)) continue;
    addHttp2Field(fields, name, headers[index + 1] as string);
  }
  return fields;
}

// RFC 9113 section 6.5.2.
function listBytesOf(headers: RawHeaders): number {
  let bytes = headers.length * (FIELD_OVERHEAD_BYTES / 2);
  for (const part of headers) bytes += part.length;
  return bytes;
}

// The runtime refuses other numbers, and no client of HTTP/2 expects them.
function requireHttp2Status(status: number): void {
  if (status <= 599) return;
  throw new KeyveilError('upstream_protocol_error', `The upstream answered ${status}, which HTTP/2 can't carry.`);
}

/** A reply on an HTTP/2 stream. */
export class Http2Reply implements ClientReply {
  onDrain: (() => void) | null = null;
  onAbort: (() => void) | null = null;
  onFinish: (() => void) | null = null;
  readonly #stream: ServerHttp2Stream;
  #trailers: Http2Fields = {};
  #awaitsTrailers = false;
  #isOver = false;

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream;
    // A reset is an `error` event too; `close` tells all that is needed.
    stream.on('error', () => undefined);
    stream.on('drain', () => this.onDrain?.());
    stream.on('wantTrailers', () => {
      this.#awaitsTrailers = false;
      // A throw here would have no one to catch it.
      try {
        this.#stream.sendTrailers(this.#trailers);
      } catch (error) {
        this.error(error as Error);
        return;
      }
      this.#leaveRequest();
    });
    stream.on('finish', () => this.#finish());
    stream.on('close', () => this.#abort());
  }

  get started(): boolean {
    return this.#stream.headersSent;
  }

  information(status: number, _reason: string, headers: RawHeaders): boolean {
    const { session } = this.#stream;
    if (this.started || this.#stream.destroyed || session === undefined) return true;
    this.#stream.additionalHeaders({ ':status': status, ...toHttp2Fields(headers) });
    return interimBacklogOf(session).add(listBytesOf(headers), () => this.onDrain?.());
  }

  head(head: ResponseHead): void {
    if (this.started || this.#stream.destroyed) return;
    requireHttp2Status(head.status);
    const fields = { ':status': head.status, ...toHttp2Fields(head.headers) };
    // Node ends the stream by itself after a 205 (RFC 9110 section 15.3.6), and asks for no trailers then.
    const endStream = head.body.kind === 'none' || head.status === RESET_CONTENT;
    // Also where none can come: without the wait a client that leaves at the last byte is taken for one that cut it short.
    this.#awaitsTrailers = !endStream;
    this.#stream.respond(fields, { endStream, waitForTrailers: !endStream, ...NO_DATE });
  }

  data(chunk: Buffer): boolean {
    if (this.#stream.destroyed || this.#stream.writableEnded) return true;
    return this.#stream.write(chunk);
  }

  end(trailers: RawHeaders): void {
    this.#trailers = toHttp2Fields(trailers);
    if (!this.#stream.destroyed && !this.#stream.writableEnded) this.#stream.end();
  }

  /** `close(code)` would end the stream in good order first; only `destroy` resets it. */
  error(error: Error): void {
    this.#stream.destroy(error);
  }

  #finish(): void {
    // A reset ends the writable side too; `close` follows and tells.
    if (this.#stream.aborted || this.#stream.rstCode !== constants.NGHTTP2_NO_ERROR) return;
    this.#isOver = true;
    const { onFinish } = this;
    this.onFinish = null;
    this.onAbort = null;
    onFinish?.();
    // `finish` comes before the trailers, and END_STREAM comes with them: a reset now would cut the response.
    if (!this.#awaitsTrailers) this.#leaveRequest();
  }

  /** RFC 9113 section 8.1: a whole response before the end of the request is followed by RST_STREAM(NO_ERROR). */
  #leaveRequest(): void {
    if (this.#stream.readableEnded) return;
    // nghttp2 is still at sending what ends the stream, and a reset from within would overtake it.
    setImmediate(() => {
      if (this.#stream.readableEnded || this.#stream.destroyed) return;
      this.#stream.resume();
      if (!this.#stream.endAfterHeaders) this.#stream.close(constants.NGHTTP2_NO_ERROR);
    });
  }

  #abort(): void {
    const { onAbort } = this;
    this.onAbort = null;
    this.onFinish = null;
    if (!this.#isOver) onAbort?.();
  }
}
