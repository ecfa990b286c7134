// Fields in the form that node:http2 takes: one entry for each name, with a list where it stands several times.

export type Http2Fields = Record<string, string | string[]>;

// Node throws at a second field line of these, so their lines are joined (RFC 9110 section 5.3). Where a second line
// would be ambiguous in a request, the request was refused before.
const JOINED = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/** No fields yet; a name such as `constructor` or `__proto__` is one like any other. */
export function createHttp2Fields(): Http2Fields {
  return Object.create(null) as Http2Fields;
}

function joined(earlier: string, value: string): string {
  return earlier === value ? earlier : `${earlier}, ${value}`;
}

/** Adds a field whose name is in lower case. Duplicates become neighbours, or one line where Node takes only one. */
export function addHttp2Field(fields: Http2Fields, lowerName: string, value: string): void {
  const earlier = fields[lowerName];
  if (earlier === undefined) fields[lowerName] = value;
  else if (Array.isArray(earlier)) earlier.push(value);
  else fields[lowerName] = JOINED.has(lowerName) ? joined(earlier, value) : [earlier, value];
}
