// Fields of a request in the form that node:http2 takes, and of a response out of the form that it gives.
import process from 'node:process';
import type { OutgoingHttpHeaders } from 'node:http2';
import { sensitiveHeaders } from 'node:http2';
import { KeyveilError } from '../../model/errors.ts';
import { formatAuthority } from '../../model/authority.ts';
import type { BodyFraming, Destination, RawHeaders, ResponseHead, UpstreamRequest } from '../exchange.ts';
import { headerValue } from '../exchange.ts';
import { addHttp2Field, createHttp2Fields, type Http2Fields } from '../http2-fields.ts';
import { requireField, requireRequestLine } from './field-syntax.ts';

// RFC 9113 section 8.2.2; `host` is in `:authority`.
const NOT_IN_HTTP2 = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'host',
]);
// HTTP/1.1 lets a client say these twice; HTTP/2 does not, and which one would count is anybody's guess.
const NEVER_TWICE = new Set([
  'authorization',
  'content-length',
  'from',
  'if-modified-since',
  'if-unmodified-since',
  'max-forwards',
  'range',
  'referer',
  'user-agent',
]);
const END_STREAM = 1;

function addFields(target: OutgoingHttpHeaders, headers: RawHeaders): void {
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] as string).toLowerCase();
    const value = headers[index + 1] as string;
    requireField(name, value);
    if (NOT_IN_HTTP2.has(name) || (name === 'te' && value.toLowerCase() !== 'trailers')) continue;
    if (target[name] !== undefined && NEVER_TWICE.has(name)) throw repeated(name);
    addHttp2Field(target as Http2Fields, name, value);
  }
}

function repeated(name: string): KeyveilError {
  return new KeyveilError('bad_request', `The request is malformed: the field ${name} is repeated.`);
}

/**
 * A request's fields with the pseudo-fields of RFC 9113 section 8.3.1. Duplicates of a name become neighbours. Fields
 * that hold a secret are marked never to be indexed (RFC 7541 section 7.1.3). Throws `bad_request`.
 */
export function toHttp2Request(destination: Destination, request: UpstreamRequest): OutgoingHttpHeaders {
  requireRequestLine(request);
  const headers = createHttp2Fields() as OutgoingHttpHeaders;
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
  const headers = createHttp2Fields() as OutgoingHttpHeaders;
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

/** Whether a status may end an exchange: three digits (RFC 9110 section 15), and none that announces another. */
export function isFinalStatus(status: number): boolean {
  return Number.isInteger(status) && status >= 200 && status <= 999;
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

/**
 * What a request's options are completed with. Node.js 20 copies the options by object spread and adds these where they
 * are missing. Its V8 makes hidden classes for each single copy that is added to, which outlive the request. Newer ones
 * have no priorities any more (RFC 9113 section 5.3.2).
 */
export const requestOptions = process.versions.node.startsWith('20.')
  ? { exclusive: false, parent: 0, weight: 16, silent: false }
  : {};
