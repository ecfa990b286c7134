// Reads the server name out of a TLS ClientHello without terminating it (RFC 8446 section 4.1.2, RFC 6066 section 3).
import { CLIENT_HELLO_BYTES_MAX, CLIENT_HELLO_RECORDS_MAX } from '../model/limits.ts';

const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;
const RECORD_HEADER_BYTES = 5;
const MESSAGE_HEADER_BYTES = 4;

/** What the first bytes of a TLS connection say. */
export type ClientHello =
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'malformed' }
  | { readonly kind: 'hello'; /** As sent; null when the extension is missing. */ readonly serverName: string | null };

class Reader {
  offset = 0;
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get rest(): number {
    return this.bytes.length - this.offset;
  }

  number(size: 1 | 2 | 3): number {
    if (this.rest < size) throw new RangeError('The ClientHello ends early.');
    const value = this.bytes.readUIntBE(this.offset, size);
    this.offset += size;
    return value;
  }

  /** A vector with its length in front. */
  vector(lengthSize: 1 | 2 | 3): Buffer {
    const length = this.number(lengthSize);
    if (this.rest < length) throw new RangeError('The ClientHello ends early.');
    const value = this.bytes.subarray(this.offset, this.offset + length);
    this.offset += length;
    return value;
  }
}

// A handshake message may be spread over several records (RFC 8446 section 5.1). What has come may be looked at for each
// byte that comes, so the work for one look is bounded by the number of records.
function collectHandshake(bytes: Buffer): Buffer | null {
  const parts: Buffer[] = [];
  let collectedBytes = 0;
  let messageBytes = Infinity;
  let offset = 0;
  while (bytes.length - offset >= RECORD_HEADER_BYTES) {
    if (bytes[offset] !== HANDSHAKE_RECORD) throw new RangeError('The record is not a handshake.');
    if (parts.length === CLIENT_HELLO_RECORDS_MAX) throw new RangeError('The ClientHello is in too many records.');
    const end = offset + RECORD_HEADER_BYTES + bytes.readUInt16BE(offset + 3);
    if (end === offset + RECORD_HEADER_BYTES) throw new RangeError('The record is empty.');
    const part = bytes.subarray(offset + RECORD_HEADER_BYTES, end);
    parts.push(part);
    collectedBytes += part.length;
    if (messageBytes === Infinity && collectedBytes >= MESSAGE_HEADER_BYTES) {
      messageBytes = MESSAGE_HEADER_BYTES + Buffer.concat(parts).readUIntBE(1, 3);
      if (messageBytes > CLIENT_HELLO_BYTES_MAX) throw new RangeError('The ClientHello is too long.');
    }
    if (collectedBytes >= messageBytes) return Buffer.concat(parts);
    offset = end;
  }
  return null;
}

function serverNameOf(extensions: Reader): string | null {
  while (extensions.rest > 0) {
    const type = extensions.number(2);
    const data = new Reader(extensions.vector(2));
    if (type !== SERVER_NAME) continue;
    const names = new Reader(data.vector(2));
    if (names.number(1) !== HOST_NAME) return null;
    return names.vector(2).toString('latin1');
  }
  return null;
}

/** Parses what has arrived so far. */
export function parseClientHello(bytes: Buffer): ClientHello {
  try {
    const message = collectHandshake(bytes);
    if (message === null) return { kind: bytes.length > CLIENT_HELLO_BYTES_MAX ? 'malformed' : 'incomplete' };
    const reader = new Reader(message);
    if (reader.number(1) !== CLIENT_HELLO) return { kind: 'malformed' };
    const hello = new Reader(reader.vector(3));
    hello.offset += 2 + 32; // legacy_version and random
    hello.vector(1); // legacy_session_id
    hello.vector(2); // cipher_suites
    hello.vector(1); // legacy_compression_methods
    return { kind: 'hello', serverName: hello.rest === 0 ? null : serverNameOf(new Reader(hello.vector(2))) };
  } catch (error) {
    if (error instanceof RangeError) return { kind: 'malformed' };
    throw error;
  }
}
