// Decoders of the content codings that the veil can see through (RFC 9110 section 8.4.1).
import type { Transform } from 'node:stream';
import zlib from 'node:zlib';

/** Only later runtimes have zstd; the types are those of the oldest one that is supported. */
const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };

const DECODERS = new Map<string, (first: Buffer) => Transform>([
  ['gzip', () => zlib.createGunzip()],
  ['x-gzip', () => zlib.createGunzip()],
  ['deflate', (first) => (isZlib(first) ? zlib.createInflate() : zlib.createInflateRaw())],
  ['br', () => zlib.createBrotliDecompress()],
]);
if (createZstdDecompress !== undefined) DECODERS.set('zstd', () => createZstdDecompress());

/** Some senders of `deflate` leave the zlib header out (RFC 9110 section 8.4.1.2 tells of them). */
function isZlib(first: Buffer): boolean {
  return ((first[0] as number) & 0x0f) === 8;
}

/** Whether a coding, in lower case, can be decoded here. */
export function isDecodable(coding: string): boolean {
  return DECODERS.has(coding);
}

/** A stream that decodes; the first bytes of the body tell variants apart. The coding must be decodable. */
export function createDecoder(coding: string, first: Buffer): Transform {
  return (DECODERS.get(coding) as (first: Buffer) => Transform)(first);
}
