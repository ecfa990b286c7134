// A gRPC service without generated code: messages are bytes behind the five-byte prefix, and each method is a few lines.
import { createHash } from 'node:crypto';
import type { EventEmitter } from 'node:events';
import { constants, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';
import type { Readable } from 'node:stream';

interface GrpcCall {
  readonly method: string;
  readonly authorization: string | undefined;
  /** The deadline as the client stated it. */
  readonly timeout: string | undefined;
}

export interface GrpcRecord {
  readonly calls: GrpcCall[];
  /** Calls that the client reset. */
  cancelled: number;
  /** Emits `cancelled` for each. */
  readonly events: EventEmitter;
}

/** One message with its prefix: not compressed, four bytes of length. */
export function frameGrpcMessage(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Calls back with each whole message of a stream of bytes. */
export function readGrpcMessages(stream: Readable, onMessage: (message: Buffer) => void): void {
  let held = Buffer.alloc(0) as Buffer;
  stream.on('data', (chunk: Buffer) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let at = 0;
    while (held.length - at >= 5 && held.length - at - 5 >= held.readUInt32BE(at + 1)) {
      const size = held.readUInt32BE(at + 1);
      onMessage(held.subarray(at + 5, at + 5 + size));
      at += 5 + size;
    }
    held = held.subarray(at);
  });
}

/** FAILED_PRECONDITION and DEADLINE_EXCEEDED; other methods end well. */
const STATUS: Readonly<Record<string, string>> = { Fail: '9', Deadline: '4' };

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** Milliseconds of a `grpc-timeout` (gRPC over HTTP/2, "Requests"); throws when it is none. */
function parseTimeout(text: string | undefined): number {
  const [, digits, unit = ''] = /^(\d{1,8})([HMSmun])$/.exec(text ?? '') ?? [];
  if (digits === undefined) throw new Error(`${String(text)} is no deadline.`);
  return Number(digits) * (UNIT_MS[unit] as number);
}

/**
 * `/keyveil.Test/Unary` and `/Bidi` send each message back, `/Upload` answers with the SHA-256 of all of them, `/Fail`
 * ends with status 9, `/Hold` sends back and never ends, `/Hang` never answers, and `/Deadline` sends back until
 * the client's deadline, and ends with status 4 then.
 */
export function serveGrpc(request: Http2ServerRequest, response: Http2ServerResponse, record: GrpcRecord): void {
  const method = request.url.replace('/keyveil.Test/', '');
  const timeout = request.headers['grpc-timeout'] as string | undefined;
  record.calls.push({ method, authorization: request.headers.authorization, timeout });
  request.on('error', () => undefined);
  request.stream.on('close', () => {
    if (request.stream.rstCode !== constants.NGHTTP2_CANCEL) return;
    record.cancelled += 1;
    record.events.emit('cancelled');
  });
  response.writeHead(200, { 'content-type': 'application/grpc', 'x-begin': 'kept' });
  response.addTrailers({
    'grpc-status': STATUS[method] ?? '0',
    'grpc-message': 'as%20it%20is',
    'x-end': 'kept',
  });
  const hash = createHash('sha256');
  if (method === 'Deadline') setTimeout(() => response.end(), parseTimeout(timeout));
  readGrpcMessages(request, (message) => {
    if (method === 'Upload') hash.update(message);
    else if (method !== 'Hang' && method !== 'Fail') response.write(frameGrpcMessage(message));
  });
  request.on('end', () => {
    if (method === 'Hang' || method === 'Hold' || method === 'Deadline') return;
    if (method === 'Upload') response.write(frameGrpcMessage(Buffer.from(hash.digest('hex'))));
    response.end();
  });
}
