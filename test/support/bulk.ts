// Large bodies through the built daemon, checked by hash, with its memory watched: for a test and a benchmark.
import { createHash, randomBytes, type Hash } from 'node:crypto';
import { once } from 'node:events';
import {
  createSecureServer,
  connect as connectHttp2,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { TLSSocket } from 'node:tls';
import { startDaemonProcess, type DaemonProcess } from './daemon-process.ts';
import { readHead, type TestSession } from './operator.ts';
import { createTestAuthority } from './test-authority.ts';

const BULK_PIECE_BYTES = 64 * 1024;
const VALUE = 'bulk-real-secret-value-that-is-longer-than-its-placeholder';
const SAMPLE_MS = 25;
/** Bytes of a placeholder that stand before a cut, the rest after it. */
const HEAD_BYTES = 20;

export interface Transfer {
  readonly direction: 'upload' | 'download';
  readonly version: '1.1' | '2';
  /** Whether the length is stated. */
  readonly framing: 'chunked' | 'length';
  /** `plain`: no credential covers the host. `swap`: a placeholder (or, coming back, a value) at every 64 KiB. */
  readonly content: 'plain' | 'swap';
  /** A multiple of 64 KiB. */
  readonly bytes: number;
}

interface TransferResult {
  /** The bytes that arrived are those that should. */
  readonly isIntact: boolean;
  readonly seconds: number;
  /** Processor time that the daemon took. */
  readonly cpuSeconds: number;
  /** By how much the daemon's resident memory was larger at its peak than before. */
  readonly growthBytes: number;
  /** `Content-Length` and HTTP version as the receiver saw them. */
  readonly contentLength: string | undefined;
  readonly httpVersion: string;
  /** Bytes that arrived. */
  readonly arrivedBytes: number;
}

export interface BulkScene {
  readonly keyveil: DaemonProcess;
  run(transfer: Transfer): Promise<TransferResult>;
  close(): Promise<void>;
}

interface Arrived {
  readonly digest: string;
  readonly bytes: number;
  readonly contentLength: string | undefined;
  readonly httpVersion: string;
}

/** The pieces of a body, and the hash of what should arrive: `mark` stands across every cut, and arrives as `becomes`. */
function contentOf(bytes: number, mark: { text: string; becomes: string }) {
  const head = Buffer.from(mark.text.slice(0, HEAD_BYTES));
  const tail = Buffer.from(mark.text.slice(HEAD_BYTES));
  const becomes = Buffer.from(mark.becomes);
  const middle = randomBytes(BULK_PIECE_BYTES - mark.text.length);
  const hash = createHash('sha256');
  const count = bytes / BULK_PIECE_BYTES;
  function* pieces(): Generator<Buffer, void> {
    for (let index = 0; index < count; index += 1) {
      const own = Buffer.from(middle);
      own.writeUInt32BE(index);
      hash.update(index === 0 ? tail : becomes).update(own);
      yield Buffer.concat([tail, own, head]);
    }
    hash.update(head);
  }
  return { pieces: pieces(), digest: () => hash.digest('hex') };
}

async function digestOf(source: AsyncIterable<Buffer>): Promise<{ digest: string; bytes: number }> {
  const hash: Hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of source) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { digest: hash.digest('hex'), bytes };
}

function startBulkUpstream(leaf: { key: string; cert: string }) {
  let onArrived: (arrived: Arrived) => void = () => undefined;
  let outgoing: { pieces: Iterable<Buffer>; length: number | null } = { pieces: [], length: null };
  const serve = async (request: Http2ServerRequest, response: Http2ServerResponse): Promise<void> => {
    const { headers, httpVersion } = request;
    const body = await digestOf(request as AsyncIterable<Buffer>);
    response.setHeader('Content-Type', 'application/octet-stream');
    if (request.method === 'GET') {
      if (outgoing.length !== null) response.setHeader('Content-Length', outgoing.length);
      await pipeline(Readable.from(outgoing.pieces, { objectMode: true }), response as unknown as Writable);
      return;
    }
    response.end('ok');
    onArrived({ ...body, contentLength: headers['content-length'], httpVersion });
  };
  const server = createSecureServer({ ...leaf, allowHTTP1: true }, (request, response) => {
    serve(request, response).catch((error: unknown) => response.stream.destroy(error as Error));
  });
  const sockets = new Set<Socket>();
  server.on('secureConnection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
  });
  return {
    server,
    arrived: () => new Promise<Arrived>((resolve) => (onArrived = resolve)),
    send: (next: typeof outgoing) => (outgoing = next),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

async function writeAll(target: Writable, pieces: Iterable<Buffer>): Promise<void> {
  let wake = (): void => undefined;
  const onChange = (): void => wake();
  target.on('drain', onChange).on('close', onChange);
  for (const piece of pieces) {
    if (target.destroyed) throw new Error('The connection was closed in mid-body.');
    if (!target.write(piece)) await new Promise<void>((resolve) => (wake = resolve));
  }
  target.off('drain', onChange).off('close', onChange);
}

function* asChunks(pieces: Iterable<Buffer>): Generator<Buffer, void> {
  for (const piece of pieces) {
    yield Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]);
  }
  yield Buffer.from('0\r\n\r\n');
}

/** The body after a head, with its framing undone; the connection ends it. */
async function* bodyOf(tls: TLSSocket, isChunked: boolean): AsyncGenerator<Buffer, void> {
  if (!isChunked) return yield* tls as AsyncIterable<Buffer>;
  let held = Buffer.alloc(0) as Buffer;
  let rest = 0;
  for await (const chunk of tls as AsyncIterable<Buffer>) {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    for (;;) {
      if (rest > 2) {
        const piece = held.subarray(0, rest - 2);
        held = held.subarray(piece.length);
        rest -= piece.length;
        if (piece.length > 0) yield piece;
        if (rest > 2) break;
      }
      if (rest === 2) {
        if (held.length < 2) break;
        held = held.subarray(2);
        rest = 0;
      }
      const end = held.indexOf('\r\n');
      if (end < 0) break;
      rest = parseInt(held.toString('latin1', 0, end), 16) + 2;
      held = held.subarray(end + 2);
      if (rest === 2) return;
    }
  }
  throw new Error('The body was cut short.');
}

interface Leg {
  readonly tls: TLSSocket;
  readonly host: string;
  readonly transfer: Transfer;
}

type Received = Omit<Arrived, 'digest'> & { readonly digest: string };

async function overHttp1({ tls, host, transfer }: Leg, pieces: Iterable<Buffer>): Promise<Received | null> {
  const { direction, framing, bytes } = transfer;
  const start = `${direction === 'upload' ? 'POST' : 'GET'} / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n`;
  if (direction === 'upload') {
    const length = framing === 'length' ? `Content-Length: ${bytes}` : 'Transfer-Encoding: chunked';
    tls.write(`${start}${length}\r\n\r\n`);
    await writeAll(tls, framing === 'length' ? pieces : asChunks(pieces));
  } else tls.write(`${start}\r\n`);
  const head = await readHead(tls);
  if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
  if (direction === 'upload') return null;
  const body = await digestOf(bodyOf(tls, /^transfer-encoding: chunked/im.test(head)));
  return { ...body, contentLength: /^content-length: (\d+)/im.exec(head)?.[1], httpVersion: '1.1' };
}

async function overHttp2({ tls, host, transfer }: Leg, pieces: Iterable<Buffer>): Promise<Received | null> {
  const { direction, framing, bytes } = transfer;
  const session = connectHttp2(`https://${host}`, { createConnection: () => tls });
  session.on('error', () => undefined);
  const length = direction === 'upload' && framing === 'length' ? { 'content-length': bytes } : {};
  const stream = session.request(
    { ':method': direction === 'upload' ? 'POST' : 'GET', ':path': '/', ...length },
    { endStream: direction === 'download' },
  );
  const answered = once(stream, 'response') as Promise<[Record<string, string | number | undefined>]>;
  if (direction === 'upload') {
    await writeAll(stream, pieces);
    stream.end();
  }
  const [headers] = await answered;
  if (headers[':status'] !== 200) throw new Error(JSON.stringify(headers));
  const body = await digestOf(stream as AsyncIterable<Buffer>);
  session.destroy();
  const contentLength = headers['content-length']?.toString();
  return direction === 'upload' ? null : { ...body, contentLength, httpVersion: '2.0' };
}

/** Starts a daemon and one upstream that speaks both versions. */
export async function openBulkScene(): Promise<BulkScene> {
  const authority = createTestAuthority();
  const upstream = startBulkUpstream(authority.leafFor(['plain.test', 'swap.test']));
  upstream.server.listen(0, '127.0.0.1');
  await once(upstream.server, 'listening');
  const { port } = upstream.server.address() as AddressInfo;
  const keyveil = await startDaemonProcess({
    authority,
    overrides: { 'plain.test': port, 'swap.test': port },
    // A value that is cut by a pause longer than this one passes, and on a busy machine pauses are long.
    environment: { KEYVEIL_LOG_LEVEL: 'info', KEYVEIL_VEIL_IDLE_MS: '10000' },
  });
  const vaultId = await keyveil.createVault();
  const { placeholder } = await keyveil.createCredential(vaultId, {
    secret_name: 'BULK_KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['swap.test'] },
    injection_location: { header: true, body: true },
  });
  const session: TestSession = await keyveil.createSession({ vault_ids: [vaultId] });

  async function run(transfer: Transfer): Promise<TransferResult> {
    const { direction, version, content, bytes } = transfer;
    const host = `${content}.test`;
    // Coming back, what is the value becomes the placeholder, or stars where its length is fixed.
    const veiled = transfer.framing === 'length' ? '*'.repeat(VALUE.length) : placeholder;
    const sent = direction === 'upload' ? placeholder : VALUE;
    const becomes = content === 'plain' ? sent : direction === 'upload' ? VALUE : veiled;
    const { pieces, digest } = contentOf(bytes, { text: sent, becomes });
    if (direction === 'download') upstream.send({ pieces, length: transfer.framing === 'length' ? bytes : null });
    const tls = await keyveil.tunnel(session, `${host}:443`, { ALPNProtocols: [version === '2' ? 'h2' : 'http/1.1'] });
    const before = keyveil.residentBytes();
    const cpuBefore = keyveil.cpuSeconds();
    let peak = before;
    const timer = setInterval(() => (peak = Math.max(peak, keyveil.residentBytes())), SAMPLE_MS);
    const arriving = upstream.arrived();
    const startedAt = performance.now();
    const received = await (version === '2' ? overHttp2 : overHttp1)({ tls, host, transfer }, pieces);
    const arrived = received ?? (await arriving);
    const seconds = (performance.now() - startedAt) / 1000;
    clearInterval(timer);
    tls.destroy();
    return {
      isIntact: arrived.digest === digest(),
      seconds,
      cpuSeconds: keyveil.cpuSeconds() - cpuBefore,
      growthBytes: Math.max(peak, keyveil.residentBytes()) - before,
      contentLength: arrived.contentLength,
      httpVersion: arrived.httpVersion,
      arrivedBytes: arrived.bytes,
    };
  }

  return {
    keyveil,
    run,
    async close() {
      await keyveil.close();
      await upstream.close();
    },
  };
}

/** Every kind of transfer, without its size. */
export const TRANSFERS: readonly Omit<Transfer, 'bytes'>[] = [
  { direction: 'upload', version: '1.1', framing: 'length', content: 'plain' },
  { direction: 'download', version: '1.1', framing: 'length', content: 'plain' },
  { direction: 'upload', version: '1.1', framing: 'chunked', content: 'swap' },
  { direction: 'upload', version: '1.1', framing: 'length', content: 'swap' },
  { direction: 'download', version: '1.1', framing: 'chunked', content: 'swap' },
  { direction: 'download', version: '1.1', framing: 'length', content: 'swap' },
  { direction: 'upload', version: '2', framing: 'length', content: 'plain' },
  { direction: 'download', version: '2', framing: 'length', content: 'plain' },
  { direction: 'upload', version: '2', framing: 'chunked', content: 'swap' },
  { direction: 'download', version: '2', framing: 'chunked', content: 'swap' },
];

/** What a kind of transfer is called. */
export function transferName({ direction, version, framing, content }: Omit<Transfer, 'bytes'>): string {
  return `${content === 'plain' ? 'untouched' : direction === 'upload' ? 'swapped' : 'veiled'} ${direction} ${framing === 'length' ? 'of known length' : 'in chunks'} over HTTP/${version}`;
}
