// Fields of a request in the form that node:http2 takes, and of a response out of the form that it gives.
import type { OutgoingHttpHeaders } from 'node:http2';
import { sensitiveHeaders } from 'node:http2';
import { formatAuthority } from '../../model/authority.ts';
import type { BodyFraming, Destination, RawHeaders, ResponseHead, UpstreamRequest } from '../exchange.ts';
import { headerValue } from '../exchange.ts';
import { requireField, requireRequestLine } from './field-syntax.ts';

// RFC 9113 section 8.2.2; `host` is in `:authority`.
const NOT_IN_HTTP2 = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade', 'host']);
const END_STREAM = 1;

function addFields(target: OutgoingHttpHeaders, headers: RawHeaders): void {
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] as string).toLowerCase();
    const value = headers[index + 1] as string;
    requireField(name, value);
    if (NOT_IN_HTTP2.has(name) || (name === 'te' && value.toLowerCase() !== 'trailers')) continue;
    const present = target[name];
    if (present === undefined) target[name] = value;
    else if (Array.isArray(present)) present.push(value);
    else target[name] = [String(present), value];
  }
}

function emptyHeaders(): OutgoingHttpHeaders {
  return Object.create(null) as OutgoingHttpHeaders;
}

/**
 * A request's fields with the pseudo-fields of RFC 9113 section 8.3.1. Duplicates of a name become neighbours. Fields
 * that hold a secret are marked never to be indexed (RFC 7541 section 7.1.3). Throws `bad_request`.
 */
export function toHttp2Request(destination: Destination, request: UpstreamRequest): OutgoingHttpHeaders {
  requireRequestLine(request);
  const headers = emptyHeaders();
  headers[':method'] = request.method;
  headers[':scheme'] = destination.scheme;
  headers[':authority'] = headerValue(request.headers, 'host') ?? formatAuthority(destination.authority);
  headers[':path'] = request.target;
  addFields(headers, request.headers);
  const sensitive = [...request.sensitiveNames].filter((name) => name in headers);
  return Object.assign(headers, { [sensitiveHeaders]: sensitive });
}

/** Trailers of a request. Throws `bad_request`. */
export function toHttp2Trailers(trailers: RawHeaders): OutgoingHttpHeaders {
  const headers = emptyHeaders();
  addFields(headers, trailers);
  return headers;
}

/** A response's fields without the pseudo-fields. */
export function fromHttp2Fields(raw: RawHeaders): RawHeaders {
  let start = 0;
  while (raw[start]?.startsWith(':') === true) start += 2;
  return start === 0 ? raw : raw.slice(start);
}

/** Status of a block of fields; 0 when it has none. */
export function statusOfBlock(raw: RawHeaders): number {
  return Number(headerValue(raw, ':status') ?? 0);
}

/** The head of a final response, from its block of fields and the flags of its frame. */
export function fromHttp2Head(raw: RawHeaders, flags: number, method: string): ResponseHead {
  const status = statusOfBlock(raw);
  const headers = fromHttp2Fields(raw);
  const hasNone = (flags & END_STREAM) !== 0 || method === 'HEAD' || status === 204 || status === 304;
  return { status, reason: '', headers, httpVersion: '2', body: hasNone ? { kind: 'none' } : framingOf(headers) };
}

function framingOf(headers: RawHeaders): BodyFraming {
  const length = headerValue(headers, 'content-length');
  return length === undefined ? { kind: 'stream' } : { kind: 'length', bytes: Number(length) };
}
