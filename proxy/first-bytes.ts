// The first bytes of a tunnel: read without taking them away from whoever handles the connection next.
import type { Duplex } from 'node:stream';
import { parseClientHello, type ClientHello } from './client-hello.ts';

/** How to go on with a connection. */
type Protocol = 'tls' | 'http1' | 'unsupported';

/** What the first bytes of a connection tell. */
export interface Opening {
  readonly protocol: Protocol;
  /** Of `tls`: its ClientHello, as far as it has come. */
  readonly hello: ClientHello | null;
}

const HTTP1: Opening = { protocol: 'http1', hello: null };
const UNSUPPORTED: Opening = { protocol: 'unsupported', hello: null };

const TLS_HANDSHAKE = 0x16;
// The longest beginning that tells an HTTP/1 request line from the HTTP/2 preface (RFC 9113 section 3.4).
const PREFACE = 'PRI * HTTP/2.0';
const METHOD_CHARACTER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Decides by what has arrived; null while it could still be either. */
export function readOpening(bytes: Buffer): Opening | null {
  if (bytes.length === 0) return null;
  if (bytes[0] === TLS_HANDSHAKE) return { protocol: 'tls', hello: parseClientHello(bytes) };
  // RFC 9112 section 2.2: empty lines before a request line are to be ignored.
  const text = bytes.toString('latin1', 0, 64).replace(/^[\r\n]+/, '');
  if (text === '') return bytes.length < 64 ? null : UNSUPPORTED;
  if (text.startsWith(PREFACE)) return UNSUPPORTED;
  if (PREFACE.startsWith(text)) return null;
  const space = text.indexOf(' ');
  const method = space < 0 ? text : text.slice(0, space);
  if (!METHOD_CHARACTER.test(method) || method.length > 32) return UNSUPPORTED;
  return space < 0 ? null : HTTP1;
}

/**
 * Resolves with what `decide` makes of the first bytes, which stay in the socket for the next reader; it is paused then.
 * Resolves with null when the time is over or the connection ends first.
 */
export function peek<Result>(
  socket: Duplex,
  timeoutMs: number,
  decide: (bytes: Buffer) => Result | null,
): Promise<Result | null> {
  return new Promise((resolve) => {
    let seen: Buffer | null = null;
    const finish = (result: Result | null): void => {
      clearTimeout(timer);
      socket.off('data', read);
      socket.off('end', stop);
      socket.off('close', stop);
      socket.pause();
      if (seen !== null && !socket.destroyed) socket.unshift(seen);
      resolve(result);
    };
    const stop = (): void => finish(null);
    const read = (chunk: Buffer): void => {
      seen = seen === null ? chunk : Buffer.concat([seen, chunk]);
      const result = decide(seen);
      if (result !== null) finish(result);
    };
    const timer = setTimeout(stop, timeoutMs);
    socket.on('data', read);
    socket.on('end', stop);
    socket.on('close', stop);
    socket.resume();
  });
}
