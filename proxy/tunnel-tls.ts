// Terminates TLS inside a tunnel with a leaf for its host, and refuses a server name that names another host.
import { TLSSocket } from 'node:tls';
import type { SecureContext } from 'node:tls';
import type { Socket } from 'node:net';
import { normaliseHost } from '../model/authority.ts';
import type { ClientHello } from './client-hello.ts';
import { forgetListenersWhenClosed } from './closed.ts';

/** Why a handshake did not end in a session. */
type HandshakeFailure = 'sni_mismatch' | 'tls_handshake_failed';

export type HandshakeResult =
  | { readonly ok: true; readonly socket: TLSSocket; readonly protocol: 'h2' | 'http/1.1' }
  | { readonly ok: false; readonly reason: HandshakeFailure };

export interface TerminateOptions {
  /** Normalised host of the CONNECT authority. */
  readonly host: string;
  /** What of the ClientHello has come; null where it was not looked at. */
  readonly hello: ClientHello | null;
  readonly context: SecureContext;
  readonly timeoutMs: number;
  /** As the extension holds them (RFC 7301 section 3.1), in order of preference. */
  readonly protocols: Buffer;
}

// RFC 6066 section 3: no name for IP literals; a name that is sent must be the tunnel's.
function isNamed({ hello, host }: TerminateOptions): boolean {
  if (hello?.kind !== 'hello') return false;
  const { serverName } = hello;
  return serverName === null || serverName === host || normaliseHost(serverName) === host;
}

/**
 * Runs the server's side of the handshake. The socket may hold unread bytes of the ClientHello. Resolves in every
 * case; on failure the connection is destroyed.
 */
export function terminateTls(raw: Socket, options: TerminateOptions): Promise<HandshakeResult> {
  return new Promise((resolve) => {
    let reason: HandshakeFailure = 'tls_handshake_failed';
    const askName = (name: string, done: (error: Error | null, context?: SecureContext) => void): void => {
      if (normaliseHost(name) === options.host) return done(null, options.context);
      reason = 'sni_mismatch';
      return done(new Error('The server name is not the host of the tunnel.'));
    };
    const { context: secureContext, protocols: ALPNProtocols } = options;
    // To be asked in the middle of a handshake costs some 50 µs, so only who could not be told before is asked.
    const socket = isNamed(options)
      ? new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols })
      : new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols, SNICallback: askName });
    // It waits for one who wants to log keys, and every listener that is added would be told to it first.
    socket.removeAllListeners('newListener');
    const timer = setTimeout(() => socket.destroy(), options.timeoutMs);
    const fail = (): void => {
      clearTimeout(timer);
      raw.destroy();
      resolve({ ok: false, reason });
    };
    // From here on every error of this socket has a listener; who takes the socket over adds its own.
    socket.on('error', fail);
    socket.once('close', fail);
    socket.once('secure', () => {
      clearTimeout(timer);
      socket.off('close', fail);
      socket.off('error', fail);
      socket.on('error', () => raw.destroy());
      forgetListenersWhenClosed(socket);
      forgetListenersWhenClosed(raw);
      // Only tls.Server clears this; until it is cleared, http2 waits for a handshake that is long over.
      (socket as TLSSocket & { secureConnecting: boolean }).secureConnecting = false;
      resolve({ ok: true, socket, protocol: socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1' });
    });
  });
}
