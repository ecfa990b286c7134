// What comes first on a new connection: a CONNECT is read at once, anything else is left to an HTTP server.
import type { Socket } from 'node:net';
import type { RawHeaders } from './exchange.ts';
import { readPlainHead } from './plain-head.ts';

/** What is looked at of a request that asks for a tunnel; Node's request is one too. */
export interface ConnectRequest {
  readonly method?: string | undefined;
  /** Target in authority form (RFC 9112 section 3.2.3). */
  readonly url?: string | undefined;
  readonly rawHeaders: RawHeaders;
}

// Of these Node's parser thinks as we do; what else could be meant for an authority is left to it.
const AUTHORITY = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$/;

/** A CONNECT, with nothing behind it; null for anything that is not plainly one. */
export function readConnect(chunk: Buffer): ConnectRequest | null {
  const head = readPlainHead(chunk);
  if (head?.method !== 'CONNECT' || !AUTHORITY.test(head.target)) return null;
  return { method: head.method, url: head.target, rawHeaders: head.rawHeaders };
}

/** Who goes on with a connection, by what has come first on it. It is paused. */
export interface FirstRequestHandlers {
  /** A CONNECT, which has been read. */
  onConnect(request: ConnectRequest, socket: Socket): void;
  /** Anything else, which was put back. */
  onOther(socket: Socket): void;
}

/** Reads the first bytes of a new connection, which must not allow half of it to stay open: one that sends nothing ends. */
export function awaitConnect(socket: Socket, handlers: FirstRequestHandlers): void {
  const onData = (chunk: Buffer): void => {
    // One that was turned away has got its answer; what it still sends is thrown away.
    if (!socket.writable) return;
    socket.off('data', onData);
    socket.allowHalfOpen = true;
    socket.pause();
    const request = readConnect(chunk);
    if (request !== null) return handlers.onConnect(request, socket);
    socket.unshift(chunk);
    handlers.onOther(socket);
  };
  socket.on('data', onData);
}
