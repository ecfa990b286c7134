// Fields that belong to one connection and are never passed on (RFC 9110 section 7.6.1).
import { headerValues, withoutHeaders, type RawHeaders } from './exchange.ts';

const REQUEST_FIELDS = new Set([
  'connection',
  'http2-settings', // RFC 7540 section 3.2.1; RFC 9113 has given it up
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'te',
  'transfer-encoding',
  'upgrade',
]);

const RESPONSE_FIELDS = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'transfer-encoding',
  'upgrade',
]);

// What a Connection field can't take away: what frames or describes the body, which decides how it is searched, and
// the destination. RFC 9110 section 7.6.1: a field that is meant for all recipients must not be named.
const NEVER_NAMED = new Set(['host', 'connection']);
const DESCRIBES_BODY = 'content-';

function canBeNamed(field: string): boolean {
  return field !== '' && !NEVER_NAMED.has(field) && !field.startsWith(DESCRIBES_BODY);
}

interface Found {
  readonly hasAny: boolean;
  readonly named: ReadonlySet<string> | null;
}

function find(headers: RawHeaders, fields: ReadonlySet<string>): Found {
  let hasAny = false;
  let named: Set<string> | null = null;
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] as string).toLowerCase();
    if (!fields.has(name)) continue;
    hasAny = true;
    if (name !== 'connection') continue;
    const value = headers[index + 1] as string;
    if (value === 'keep-alive' || value === 'close') continue; // what nearly all of them say, and it names no field
    for (const option of value.split(',')) {
      const field = option.trim().toLowerCase();
      if (canBeNamed(field) && !fields.has(field)) (named ??= new Set()).add(field);
    }
  }
  return { hasAny, named };
}

function strip(headers: RawHeaders, fields: ReadonlySet<string>): RawHeaders {
  const { hasAny, named } = find(headers, fields);
  if (!hasAny) return headers;
  return withoutHeaders(headers, named === null ? fields : new Set([...fields, ...named]));
}

/**
 * A request's end-to-end fields. `TE: trailers` is passed on (with the `Connection: TE` that RFC 9110 section 10.1.4
 * asks for), since trailers are; the framing is put back by the upstream codec.
 */
export function endToEndRequestHeaders(headers: RawHeaders): RawHeaders {
  const stripped = strip(headers, REQUEST_FIELDS);
  if (stripped === headers) return headers;
  const acceptsTrailers = headerValues(headers, 'te').some((value) =>
    /(?:^|,)[ \t]*trailers[ \t]*(?:$|,)/i.test(value),
  );
  return acceptsTrailers ? [...stripped, 'TE', 'trailers', 'Connection', 'TE'] : stripped;
}

/** A response's end-to-end fields; the framing is put back in the client's version. */
export function endToEndResponseHeaders(headers: RawHeaders): RawHeaders {
  return strip(headers, RESPONSE_FIELDS);
}

// RFC 9110 section 6.5.1: what frames or routes a message, or logs in to a proxy, can't come after its content.
const NOT_IN_TRAILERS = new Set([...REQUEST_FIELDS, ...RESPONSE_FIELDS, 'content-length', 'host', 'trailer']);

/** Trailer fields that may be passed on, of a request or a response. */
export function endToEndTrailers(trailers: RawHeaders): RawHeaders {
  return trailers.length === 0 ? trailers : withoutHeaders(trailers, NOT_IN_TRAILERS);
}
