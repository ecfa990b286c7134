// Writes gzip, zlib and raw deflate without compression: a secret's length shows in the size of a body, its text never.
import { crc32 } from 'node:zlib';
import type { CodingFormat } from './content-coding.ts';

export type StoredFormat = 'gzip' | 'zlib' | 'raw';

/** Most bytes that a stored block can hold (RFC 1951 section 3.2.4). */
const BLOCK_BYTES_MAX = 0xffff;
const BLOCK_HEADER_BYTES = 5;

// RFC 1952 section 2.3: magic, deflate, no flags, no time, no hint, unknown system.
const GZIP_HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
// RFC 1950 section 2.2: deflate with a window of 32 KiB, fastest.
const ZLIB_HEADER = Buffer.from([0x78, 0x01]);
const FINAL_BLOCK = Buffer.from([1, 0, 0, 0xff, 0xff]);

const HEADERS: Readonly<Record<StoredFormat, Buffer>> = { gzip: GZIP_HEADER, zlib: ZLIB_HEADER, raw: Buffer.alloc(0) };
const TRAILER_BYTES: Readonly<Record<StoredFormat, number>> = { gzip: 8, zlib: 4, raw: 0 };

const ADLER_MODULUS = 65521;
/** So many bytes can be summed before a sum must be reduced, to stay within 32 bits (as in zlib). */
const ADLER_RUN_BYTES = 5552;

/** RFC 1950 section 8.2; start with 1. */
export function adler32(bytes: Buffer, value: number): number {
  let low = value & 0xffff;
  let high = value >>> 16;
  for (let start = 0; start < bytes.length; start += ADLER_RUN_BYTES) {
    const end = Math.min(start + ADLER_RUN_BYTES, bytes.length);
    for (let index = start; index < end; index += 1) {
      low += bytes[index] as number;
      high += low;
    }
    low %= ADLER_MODULUS;
    high %= ADLER_MODULUS;
  }
  return high * 0x10000 + low;
}

/** The format in which a swapped body of this one is sent; null: without any, also when it had none. */
export function storedFormatOf(format: CodingFormat | undefined): StoredFormat | null {
  return format === 'gzip' || format === 'zlib' || format === 'raw' ? format : null;
}

/** Bytes that `encodeStored` makes of so many when only full blocks are flushed. */
export function storedLength(format: StoredFormat, bytes: number): number {
  const blocks = Math.ceil(bytes / BLOCK_BYTES_MAX);
  return HEADERS[format].length + bytes + (blocks + 1) * BLOCK_HEADER_BYTES + TRAILER_BYTES[format];
}

export interface StoredEncoder {
  /** Full blocks of what was pushed so far. Doesn't copy: pieces must not change afterwards. */
  push(piece: Buffer): Buffer[];
  /** A block of what is left, so that it can leave at once. */
  flush(): Buffer[];
  end(): Buffer[];
}

function blockHeader(length: number): Buffer {
  const header = Buffer.alloc(BLOCK_HEADER_BYTES);
  header.writeUInt16LE(length, 1);
  header.writeUInt16LE(length ^ 0xffff, 3);
  return header;
}

/** An encoder of one message. */
export function encodeStored(format: StoredFormat): StoredEncoder {
  let checksum = format === 'zlib' ? 1 : 0;
  let bytesTotal = 0;
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let isStarted = false;

  function start(): Buffer[] {
    if (isStarted) return [];
    isStarted = true;
    return format === 'raw' ? [] : [HEADERS[format]];
  }

  function flush(): Buffer[] {
    if (pendingBytes === 0) return start();
    const block = [...start(), blockHeader(pendingBytes), ...pending];
    pending = [];
    pendingBytes = 0;
    return block;
  }

  function trailer(): Buffer {
    const bytes = Buffer.alloc(TRAILER_BYTES[format]);
    if (format === 'gzip') {
      bytes.writeUInt32LE(checksum, 0);
      bytes.writeUInt32LE(bytesTotal % 0x100000000, 4);
    } else if (format === 'zlib') bytes.writeUInt32BE(checksum, 0);
    return bytes;
  }

  return {
    push(piece) {
      if (format === 'gzip') checksum = crc32(piece, checksum);
      else if (format === 'zlib') checksum = adler32(piece, checksum);
      bytesTotal += piece.length;
      const blocks: Buffer[] = [];
      for (let rest = piece; rest.length > 0;) {
        const part = rest.subarray(0, BLOCK_BYTES_MAX - pendingBytes);
        pending.push(part);
        pendingBytes += part.length;
        rest = rest.subarray(part.length);
        if (pendingBytes === BLOCK_BYTES_MAX) blocks.push(...flush());
      }
      return blocks;
    },
    flush,
    end: () => [...flush(), FINAL_BLOCK, trailer()],
  };
}
