// Fields in the form that node:http2 takes: one entry for each name, with a list where it stands several times.

export type Http2Fields = Record<string, string | string[]>;

// Node throws at a second field line of these. Those of them that can be repeated are lists by their nature or mean the
// same when said twice, so that their lines may be joined (RFC 9110 section 5.3).
const JOINED = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
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
  'if-match',
  'if-none-match',
  'if-range',
  'last-modified',
  'location',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
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
