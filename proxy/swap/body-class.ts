// What a body's content type means for the swap: how a value is written into it, or that it must not be touched.
import { headerValue, type RawHeaders } from '../exchange.ts';

/** `form` is decided by the body's first byte that isn't blank; `binary` holds lengths that a swap would falsify. */
export type BodyClass = 'json' | 'form' | 'raw' | 'binary';

const JSON_TYPES: ReadonlySet<string> = new Set([
  'application/json',
  'application/json-seq',
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/x-jsonlines',
  'application/csp-report',
  'text/json',
]);

// Length-prefixed or otherwise framed by counts: gRPC and Connect envelopes, protobuf, CBOR and its like, DER, DNS
// messages, git's pkt-lines, AWS event streams.
const BINARY_TYPES: ReadonlySet<string> = new Set([
  'application/proto',
  'application/cbor',
  'application/cbor-seq',
  'application/msgpack',
  'application/x-msgpack',
  'application/vnd.msgpack',
  'application/bson',
  'application/ubjson',
  'application/x-jackson-smile',
  'application/avro',
  'application/vnd.apache.avro+binary',
  'avro/binary',
  'application/x-flatbuffers',
  'application/x-capnp',
  'application/vnd.amazon.eventstream',
  'application/dns-message',
  'application/ocsp-request',
  'application/timestamp-query',
  'application/pkcs10',
  'application/x-java-serialized-object',
]);

const BINARY_PATTERN =
  /^application\/(?:grpc|connect\+|x-git-)|protobuf|thrift|\+(?:proto|cbor|cbor-seq|msgpack|avro|der|fastinfoset)$/;

/** The class of a body by its `Content-Type` (RFC 9110 section 8.3); parameters don't matter. */
export function bodyClassOf(headers: RawHeaders): BodyClass {
  const value = headerValue(headers, 'content-type') ?? '';
  const end = value.indexOf(';');
  const type = (end < 0 ? value : value.slice(0, end)).trim().toLowerCase();
  if (BINARY_TYPES.has(type) || BINARY_PATTERN.test(type)) return 'binary';
  if (JSON_TYPES.has(type) || type.endsWith('+json')) return 'json';
  return type === 'application/x-www-form-urlencoded' ? 'form' : 'raw';
}

const BLANKS: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);
const OPENING_BRACE = 0x7b;
const OPENING_BRACKET = 0x5b;

/**
 * Whether a body is JSON by its first bytes; null while all of them are blank. `curl -d '{…}'` sends JSON under the form
 * type, and WebSocket messages have no type at all.
 */
export function startsLikeJson(bytes: Buffer): boolean | null {
  const first = bytes.find((byte) => !BLANKS.has(byte));
  return first === undefined ? null : first === OPENING_BRACE || first === OPENING_BRACKET;
}
