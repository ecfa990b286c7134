// Bytes relayed unread in both directions, with backpressure and half-close.
import type { Duplex } from 'node:stream';

export interface RelayCounts {
  /** Bytes from the client. */
  readonly requestBytes: number;
  /** Bytes from the upstream. */
  readonly responseBytes: number;
}

// A side that closed without an orderly end takes the other with it: what was cut must not look complete.
function closeWith(closed: Duplex, other: Duplex): void {
  if (!closed.readableEnded || !closed.writableFinished) other.destroy();
}

/** Resolves when both connections are closed. An orderly end of one direction leaves the other open (half-close). */
export function relay(client: Duplex, upstream: Duplex): Promise<RelayCounts> {
  let requestBytes = 0;
  let responseBytes = 0;
  client.on('data', (chunk: Buffer) => (requestBytes += chunk.length));
  upstream.on('data', (chunk: Buffer) => (responseBytes += chunk.length));
  // Else the runtime would end a side by itself as soon as its peer has sent all.
  client.allowHalfOpen = true;
  upstream.allowHalfOpen = true;
  client.pipe(upstream);
  upstream.pipe(client);
  return new Promise((resolve) => {
    let open = 2;
    const onClose = (closed: Duplex, other: Duplex): void => {
      closeWith(closed, other);
      open -= 1;
      if (open === 0) resolve({ requestBytes, responseBytes });
    };
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
    client.once('close', () => onClose(client, upstream));
    upstream.once('close', () => onClose(upstream, client));
    if (client.destroyed) upstream.destroy();
  });
}
