// A client that keeps what it gets, and responses that go through a veil to it.
import { EventEmitter, once } from 'node:events';
import zlib from 'node:zlib';
import type { RawHeaders, ResponseHead, ResponseSink } from '../../../proxy/exchange.ts';
import type { ContentCoding } from '../../../proxy/swap/content-coding.ts';
import { createResponseVeil, type ResponseVeil, type ResponseVeilOptions } from '../../../proxy/veil/response-veil.ts';
import type { Veil } from '../../../proxy/veil/veil.ts';
import { VALUE, veilOf } from './echoes.ts';

/** Keeps what reaches the client, in pieces, and tells of it. */
class Client extends EventEmitter implements ResponseSink {
  received: ResponseHead | null = null;
  chunks: Buffer[] = [];
  trailers: RawHeaders | null = null;
  failure: Error | null = null;
  isFull = false;

  head(head: ResponseHead): void {
    this.received = head;
    this.emit('head');
  }
  data(chunk: Buffer): boolean {
    this.chunks.push(Buffer.from(chunk));
    this.emit('data');
    return !this.isFull;
  }
  end(trailers: RawHeaders): void {
    this.trailers = trailers;
    this.emit('over');
  }
  error(error: Error): void {
    this.failure = error;
    this.emit('over');
  }
  get body(): string {
    return Buffer.concat(this.chunks).toString();
  }
  field(name: string): string | undefined {
    const headers = this.received?.headers ?? [];
    const index = headers.findIndex((field, at) => at % 2 === 0 && field.toLowerCase() === name);
    return index < 0 ? undefined : headers[index + 1];
  }
}

export class Memory {
  used = 0;
  readonly limit: number;
  constructor(limit = Number.POSITIVE_INFINITY) {
    this.limit = limit;
  }
  reserve(bytes: number): boolean {
    if (this.used + bytes > this.limit) return false;
    this.used += bytes;
    return true;
  }
  release(bytes: number): void {
    this.used -= bytes;
  }
}

export interface Fixture {
  readonly client: Client;
  readonly veil: ResponseVeil;
  readonly calls: string[];
  readonly memory: Memory;
}

export function fixture(
  veil: Veil = veilOf(VALUE),
  options: Partial<ResponseVeilOptions> & { memory?: Memory } = {},
): Fixture {
  const client = new Client();
  const calls: string[] = [];
  const memory = options.memory ?? new Memory();
  const source = { pause: () => calls.push('pause'), resume: () => calls.push('resume') };
  const base = { veil, method: 'GET', downstream: client, source, bufferBytes: 64 * 1024, idleMs: 60_000 };
  return { client, veil: createResponseVeil({ ...base, ...options, memory }), calls, memory };
}

export function headOf(headers: RawHeaders, body: ResponseHead['body'], status = 200): ResponseHead {
  return { status, reason: 'OK', headers, httpVersion: '1.1', body };
}

/** Sends a response through a veil, and waits until all of it has arrived. */
export async function send(
  { veil, client }: Fixture,
  head: ResponseHead,
  rest: { readonly chunks: readonly Buffer[]; readonly trailers?: RawHeaders },
): Promise<void> {
  const over = once(client, 'over');
  veil.head(head);
  for (const chunk of rest.chunks) veil.data(Buffer.from(chunk));
  veil.end(rest.trailers ?? []);
  await over;
}

export const ENCODERS: Record<ContentCoding, (bytes: Buffer) => Buffer> = {
  gzip: zlib.gzipSync,
  'x-gzip': zlib.gzipSync,
  deflate: zlib.deflateSync,
  br: zlib.brotliCompressSync,
  zstd: (bytes) => (zlib as unknown as { zstdCompressSync(bytes: Buffer): Buffer }).zstdCompressSync(bytes),
};
