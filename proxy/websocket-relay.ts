// A WebSocket after its handshake: relayed unread, or rewritten message by message in both directions.
import type { Duplex } from 'node:stream';
import { WEBSOCKET_CLOSE_TIMEOUT_MS } from '../model/limits.ts';
import { relay, type RelayCounts } from './relay.ts';

/** Rewrites one direction: takes bytes as they came, gives bytes to send on. */
interface FrameRewriter {
  /** Rejects when a frame is malformed or a value can't be opened. */
  push(bytes: Buffer): Promise<readonly Buffer[]> | readonly Buffer[];
}

export interface WebSocketRelayOptions {
  readonly client: Duplex;
  readonly upstream: Duplex;
  /** Null relays that direction unread. */
  readonly toUpstream: FrameRewriter | null;
  readonly toClient: FrameRewriter | null;
  /** Tells the close code for an error of a rewriter. */
  readonly closeCodeOf: (error: unknown) => number;
}

const CLOSE_TO_CLIENT = 0x88;

function closeFrame(code: number): Buffer {
  return Buffer.from([CLOSE_TO_CLIENT, 2, code >>> 8, code & 255]);
}

async function pump(source: Duplex, target: Duplex, rewriter: FrameRewriter): Promise<number> {
  let bytes = 0;
  // After a fault the source, which may be the client, is still to be told why.
  for await (const chunk of source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    for (const piece of await rewriter.push(chunk)) {
      if (target.destroyed) return bytes;
      if (!target.write(piece)) await drained(target);
    }
  }
  target.end();
  return bytes;
}

/** Resolves when more can be written, or nothing any more. */
function drained(target: Duplex): Promise<void> {
  if (target.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      target.off('drain', done);
      target.off('close', done);
      resolve();
    };
    target.on('drain', done);
    target.on('close', done);
  });
}

/**
 * Closes a connection whose last bytes have been given to it once the other side has closed its own, or after a while:
 * a reset, which is what unread bytes would make of a close, could overtake them (RFC 6455 section 7.1.1).
 */
async function closeGently(connection: Duplex): Promise<void> {
  if (connection.destroyed) return;
  if (connection.writableEnded) {
    const closed = new Promise((resolve) => connection.once('close', resolve));
    const timer = setTimeout(() => connection.destroy(), WEBSOCKET_CLOSE_TIMEOUT_MS);
    connection.resume();
    await closed;
    clearTimeout(timer);
  } else connection.destroy();
}

const IDENTITY: FrameRewriter = { push: (bytes) => [bytes] };

/** Resolves when both connections are closed; rejects with the error of a rewriter, after both were closed. */
export async function relayWebSocket(options: WebSocketRelayOptions): Promise<RelayCounts> {
  const { client, upstream, toUpstream, toClient } = options;
  if (toUpstream === null && toClient === null) return relay(client, upstream);
  let requestBytes = 0;
  let responseBytes = 0;
  const failures: Error[] = [];
  const fail = (error: Error): void => {
    upstream.destroy();
    failures.push(error);
    if (failures.length > 1) return;
    if (client.destroyed) return;
    client.end(closeFrame(options.closeCodeOf(error)));
    void closeGently(client);
  };
  client.on('error', () => upstream.destroy());
  upstream.on('error', () => client.destroy());
  const up = pump(client, upstream, toUpstream ?? IDENTITY).then((count) => (requestBytes = count));
  const down = pump(upstream, client, toClient ?? IDENTITY).then((count) => (responseBytes = count));
  await Promise.all([up.catch(fail), down.catch(fail)]);
  await Promise.all([closeGently(client), closeGently(upstream)]);
  // A connection that broke off is an end of the WebSocket, not a fault of its frames.
  const [failure] = failures;
  if (failure !== undefined && !isDisconnect(failure)) throw failure;
  return { requestBytes, responseBytes };
}

/** Whether an error only says that one of the two connections has gone. */
function isDisconnect(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return (
    code === 'ERR_STREAM_PREMATURE_CLOSE' ||
    code === 'ECONNRESET' ||
    code === 'EPIPE' ||
    code === 'ERR_STREAM_DESTROYED'
  );
}
