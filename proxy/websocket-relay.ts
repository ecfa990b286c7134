// A WebSocket after its handshake: relayed unread, or rewritten message by message in both directions.
import type { Duplex } from 'node:stream';
import { WEBSOCKET_CLOSE_TIMEOUT_MS } from '../model/limits.ts';
import { relay, type RelayCounts } from './relay.ts';
import type { FrameRewriter } from './swap/websocket-steps.ts';
import { pumpFrames } from './websocket-pump.ts';

export interface WebSocketRelayOptions {
  readonly client: Duplex;
  readonly upstream: Duplex;
  /** Null relays that direction unread. */
  readonly toUpstream: FrameRewriter | null;
  readonly toClient: FrameRewriter | null;
  /** Tells the close code for an error of a rewriter. */
  readonly closeCodeOf: (error: unknown) => number;
  /** Whose share of the time it takes. */
  readonly sessionId: string;
}

const CLOSE_TO_CLIENT = 0x88;

function closeFrame(code: number): Buffer {
  return Buffer.from([CLOSE_TO_CLIENT, 2, code >>> 8, code & 255]);
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
  const { sessionId } = options;
  const up = pumpFrames({ source: client, target: upstream, rewriter: toUpstream, sessionId });
  const down = pumpFrames({ source: upstream, target: client, rewriter: toClient, sessionId });
  await Promise.all([
    up.then((count) => (requestBytes = count)).catch(fail),
    down.then((count) => (responseBytes = count)).catch(fail),
  ]);
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
