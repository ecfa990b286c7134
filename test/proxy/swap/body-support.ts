// What the tests of bodies share: resources of their own, bodies in chunks, and the bytes that come out.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import zlib from 'node:zlib';
import type { BodyFraming, RawHeaders } from '../../../proxy/exchange.ts';
import { prepareBody } from '../../../proxy/swap/body.ts';
import {
  createBodyResources,
  type BodyResources,
  type BodyResourcesOptions,
} from '../../../proxy/swap/body-resources.ts';
import type { SwapPlan } from '../../../proxy/swap/plan.ts';
import type { PreparedBody } from '../../../proxy/swap/prepared-body.ts';

export type Mode = 'buffered' | 'spooled' | 'streamed' | 'http2';

export const MODES: readonly Mode[] = ['buffered', 'spooled', 'streamed', 'http2'];

export interface Bench {
  readonly directory: string;
  resources(options?: Partial<BodyResourcesOptions>): BodyResources;
  close(): Promise<void>;
}

/** Resources on a folder of its own. */
export function createBench(): Bench {
  const directory = mkdtempSync(join(tmpdir(), 'keyveil-swap-'));
  const made: BodyResources[] = [];
  return {
    directory,
    resources(options) {
      const resources = createBodyResources({
        spoolDirectory: join(directory, 'spool'),
        spoolBytes: 1 << 30,
        bufferBytes: 1 << 20,
        memoryBytes: 64 << 20,
        growthBytes: 16 << 20,
        ...options,
      });
      made.push(resources);
      return resources;
    },
    async close() {
      for (const resources of made) await resources.close();
      rmSync(directory, { recursive: true });
    },
  };
}

export function cut(bytes: Buffer, length: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let start = 0; start < bytes.length; start += length) chunks.push(bytes.subarray(start, start + length));
  return chunks;
}

export async function readAll(body: Buffer | Readable): Promise<Buffer> {
  if (Buffer.isBuffer(body)) return body;
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export interface Sent {
  readonly prepared: PreparedBody;
  readonly headers: RawHeaders;
  readonly body: Buffer;
}

export interface Input {
  readonly plan: SwapPlan;
  readonly headers: RawHeaders;
  readonly chunks: readonly Buffer[];
  readonly mode: Mode;
  readonly resources: BodyResources;
  readonly signal?: AbortSignal;
}

/** Prepares a body so that it takes the way of the mode; `resources` must let it. */
export async function prepare(input: Input): Promise<PreparedBody> {
  const bytes = input.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const framing: BodyFraming = input.mode === 'streamed' ? { kind: 'stream' } : { kind: 'length', bytes };
  const headers = input.mode === 'streamed' ? input.headers : [...input.headers, 'content-length', String(bytes)];
  // Copies, since a stream hands its chunks over.
  return prepareBody(
    Readable.from(
      input.chunks.map((chunk) => Buffer.from(chunk)),
      { objectMode: false },
    ),
    {
      plan: input.plan,
      headers,
      framing,
      upstreamIsHttp2: input.mode === 'http2',
      resources: input.resources,
      sessionId: 'sesn_1',
      signal: input.signal ?? new AbortController().signal,
    },
  );
}

/** Prepares a body and reads all of it. */
export async function send(input: Input): Promise<Sent> {
  const prepared = await prepare(input);
  const body = await readAll(prepared.body);
  prepared.dispose();
  return { prepared, headers: prepared.headers, body };
}

/** Decodes what an upstream received. */
export function decodeBody(coding: string | undefined, body: Buffer): Buffer {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return zlib.gunzipSync(body);
    case 'deflate':
      return zlib.inflateSync(body);
    case 'deflate-raw':
      return zlib.inflateRawSync(body);
    case 'br':
      return zlib.brotliDecompressSync(body);
    default:
      return body;
  }
}
