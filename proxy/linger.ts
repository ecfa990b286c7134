// The end of a connection whose client may still be sending: a reset must not overtake the answer (RFC 9112 section 9.6).
import type { Duplex, Readable } from 'node:stream';
import { LINGER_IDLE_TIMEOUT_MS, LINGER_TIMEOUT_MS } from '../model/limits.ts';

/** Reads what still comes of a request's body, whoever has read of it before, and throws it away. */
export function discard(body: Readable | null): void {
  // Takes effect even where a listener for `readable` leaves only later.
  body?.on('data', () => undefined);
  body?.resume();
}

/**
 * Closes a connection on which the last answer has been written or ended: reads and throws away what the client still
 * sends, until it closes its side too, sends nothing for a moment, or takes too long.
 */
export function lingerAndClose(socket: Duplex): void {
  if (socket.destroyed) return;
  const close = (): void => void socket.destroy();
  const total = setTimeout(close, LINGER_TIMEOUT_MS).unref();
  // A listener for `data` would take the connection away from Node's parser in the middle of a body.
  const bytesRead = (): number | undefined => (socket as { bytesRead?: number }).bytesRead;
  let seen = bytesRead();
  const idle = setInterval(() => {
    if (bytesRead() === seen) close();
    seen = bytesRead();
  }, LINGER_IDLE_TIMEOUT_MS).unref();
  socket.once('close', () => {
    clearTimeout(total);
    clearInterval(idle);
  });
  socket.once('end', () => {
    if (socket.writableFinished) close();
    else socket.once('finish', close);
  });
  socket.resume();
}

/** Makes Node's HTTP/1.x server, which would close the connection at once after its last answer, close it in that way. */
export function lingerAfterAnswer(socket: Duplex): void {
  const destroySoon = (): void => {
    if (socket.writable) socket.end();
    lingerAndClose(socket);
  };
  Object.assign(socket, { destroySoon });
}
