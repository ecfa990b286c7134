// Which content codings (RFC 9110 section 8.4.1) can be undone here, and by what.
import zlib from 'node:zlib';
import { DECODED_BYTES_BEFORE_RATIO, DECODED_RATIO_MAX, ZSTD_WINDOW_LOG_MAX } from '../../model/limits.ts';
import { headerValues, type RawHeaders } from '../exchange.ts';

export type ContentCoding = 'gzip' | 'x-gzip' | 'deflate' | 'br' | 'zstd';

/** What lies below the name: `deflate` comes as zlib (RFC 1950), as the standard says, or raw (RFC 1951). */
export type CodingFormat = 'gzip' | 'zlib' | 'raw' | 'br' | 'zstd';

/** `malformed`: not in that coding, or cut short. `bomb`: far more comes out than an honest body holds. */
export type CodingFault = 'malformed' | 'bomb';

export class ContentCodingError extends Error {
  override readonly name = 'ContentCodingError';
  readonly fault: CodingFault;

  constructor(fault: CodingFault, message: string, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}

/** Decoding fails once more than so many bytes came out at more than so many for each that went in. */
export interface DecoderLimits {
  readonly bytesBeforeRatio: number;
  readonly ratioMax: number;
}

export const DECODER_LIMITS: DecoderLimits = {
  bytesBeforeRatio: DECODED_BYTES_BEFORE_RATIO,
  ratioMax: DECODED_RATIO_MAX,
};

/** Node's decompression streams have one shape. */
export type Engine = zlib.Gunzip;

type CreateEngine = (options: object) => Engine;

const { Z_SYNC_FLUSH, BROTLI_OPERATION_FLUSH } = zlib.constants;
// Of zstd.h: runtimes without zstd name no constants for it.
const ZSTD_E_FLUSH = 1;
const ZSTD_D_WINDOW_LOG_MAX = 100;

/** Undefined before Node 22.15. */
const { createZstdDecompress } = zlib as { createZstdDecompress?: CreateEngine };

/** Flushes after every write, so that the events of a stream come out one by one. */
export function createEngine(format: CodingFormat): Engine {
  switch (format) {
    case 'gzip':
      return zlib.createGunzip({ flush: Z_SYNC_FLUSH });
    case 'zlib':
      return zlib.createInflate({ flush: Z_SYNC_FLUSH });
    case 'raw':
      return zlib.createInflateRaw({ flush: Z_SYNC_FLUSH });
    case 'br':
      return zlib.createBrotliDecompress({ flush: BROTLI_OPERATION_FLUSH });
    /* c8 ignore start -- not in every runtime; DECODABLE_CODINGS names it only where it is */
    case 'zstd':
      return (createZstdDecompress as CreateEngine)({
        flush: ZSTD_E_FLUSH,
        // RFC 9659: a content coding may ask for a window of 8 MiB at most.
        params: { [ZSTD_D_WINDOW_LOG_MAX]: ZSTD_WINDOW_LOG_MAX },
      });
    /* c8 ignore stop */
  }
}

/** Names of the codings that can be undone here. */
export const DECODABLE_CODINGS: readonly ContentCoding[] = [
  'gzip',
  'x-gzip',
  'deflate',
  'br',
  ...(createZstdDecompress === undefined ? [] : /* c8 ignore next -- as above */ (['zstd'] as const)),
];

/** The coding of a message: null for none, `unsupported` for one that can't be undone here, or several. */
export function codingOf(headers: RawHeaders): ContentCoding | null | 'unsupported' {
  const values = headerValues(headers, 'content-encoding');
  if (values.length === 0) return null;
  const names = values
    .flatMap((value) => value.split(','))
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  if (names.length === 0) return null;
  const coding = DECODABLE_CODINGS.find((name) => name === names[0]);
  return names.length > 1 || coding === undefined ? 'unsupported' : coding;
}

/** zlib's header (RFC 1950 section 2.2): method 8 in the low bits, and a multiple of 31 as a whole. */
export function isZlibHeader(bytes: Buffer): boolean {
  const [first = 0, second = 0] = bytes;
  return (first & 0x0f) === 8 && (first * 256 + second) % 31 === 0;
}
