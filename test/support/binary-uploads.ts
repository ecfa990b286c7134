// Binary uploads through the real proxy, each compared byte by byte with what arrived.
import { createRandom } from '../fuzz/http1-codec-corpus.ts';
import { binaryBody } from '../fuzz/swap-corpus.ts';
import { readHead } from './operator.ts';
import type { TestProxy } from './proxy.ts';
import type { TestUpstream } from './upstream.ts';

const PIECES_MAX = 5;

export interface BinaryUploadOptions {
  readonly keyveil: TestProxy;
  readonly upstream: TestUpstream;
  /** With the port. */
  readonly target: string;
  readonly count: number;
  readonly seed: number;
}

function cutAnywhere(bytes: Buffer, random: () => number): Buffer[] {
  const places = Array.from({ length: Math.floor(random() * PIECES_MAX) }, () => Math.floor(random() * bytes.length));
  const bounds = [0, ...places.sort((a, b) => a - b), bytes.length];
  return bounds.slice(1).map((end, index) => bytes.subarray(bounds[index], end));
}

/** Sends so many, half of them in chunks; gives one line for each that arrived otherwise. */
export async function sendBinaryUploads(options: BinaryUploadOptions): Promise<string[]> {
  const { keyveil, upstream, target, count, seed } = options;
  const random = createRandom(seed);
  const faults: string[] = [];
  const tls = await keyveil.tunnel(target);
  for (let round = 0; round < count; round += 1) {
    const { body, contentType } = binaryBody(random);
    const isChunked = random() < 0.5;
    const arrived = upstream.next();
    const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`;
    tls.write(`POST / HTTP/1.1\r\nHost: ${target}\r\nContent-Type: ${contentType}\r\n${framing}\r\n\r\n`);
    for (const piece of cutAnywhere(body, random)) {
      if (!isChunked) tls.write(piece);
      else if (piece.length > 0)
        tls.write(Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]));
    }
    if (isChunked) tls.write('0\r\n\r\n');
    const received = await arrived;
    await readHead(tls);
    tls.read();
    upstream.received.length = 0;
    const keptFraming = received.header('content-length') === (isChunked ? undefined : String(body.length));
    if (!received.body.equals(body) || !keptFraming) {
      faults.push(`upload ${round} of seed ${seed}, ${framing}, ${contentType}: ${body.toString('base64')}`);
    }
  }
  tls.destroy();
  return faults;
}
