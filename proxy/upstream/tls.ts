// TLS to upstreams: always verified, for the original name, with one shared set of roots.
import type { Duplex } from 'node:stream';
import type { ConnectionOptions, SecureContext, TLSSocket } from 'node:tls';
import { checkServerIdentity, connect, createSecureContext, rootCertificates } from 'node:tls';
import type { Authority } from '../../model/authority.ts';
import { bareHost, isAddressLiteral } from '../../model/authority.ts';
import { TLS_HANDSHAKE_TIMEOUT_MS, TLS_RESUMPTION_ENTRIES_MAX } from '../../model/limits.ts';

export type AlpnProtocol = 'h2' | 'http/1.1';

interface TlsConnectOptions {
  /** The name that the certificate must be for, whatever was dialled. */
  readonly authority: Authority;
  /** TLS sessions are resumed within one owner (a sandbox session) only. */
  readonly ownerId: string;
  readonly alpnProtocols: readonly AlpnProtocol[];
  readonly signal: AbortSignal;
}

export interface TlsConnector {
  /**
   * Shakes hands over a connected socket, which it owns from then on. Rejects with Node's or OpenSSL's own error,
   * one with `code: 'ETIMEDOUT'`, or the signal's reason; the connection is closed then.
   */
  connect(socket: Duplex, options: TlsConnectOptions): Promise<TLSSocket>;
  /** Reads the public roots, which costs 10 ms and more; else the first connection does. */
  prepare(): void;
  /** Forgets the TLS sessions of an owner. */
  forget(ownerId: string): void;
}

export interface TlsConnectorOptions {
  /** PEM certificates trusted besides the public roots; null for none. */
  readonly extraCaPem: string | null;
  readonly timeoutMs?: number;
}

/** The context that every upstream shares. */
function createUpstreamContext(extraCaPem: string | null): SecureContext {
  const ca = extraCaPem === null ? [...rootCertificates] : [...rootCertificates, extraCaPem];
  return createSecureContext({ ca, minVersion: 'TLSv1.2' });
}

export function createTlsConnector(options: TlsConnectorOptions): TlsConnector {
  let context: SecureContext | null = null;
  const secureContextOf = (): SecureContext => (context ??= createUpstreamContext(options.extraCaPem));
  const timeoutMs = options.timeoutMs ?? TLS_HANDSHAKE_TIMEOUT_MS;
  // Insertion order is order of use: the first entry is the one that was not used for the longest time.
  const resumable = new Map<string, Buffer>();

  function remember(key: string, session: Buffer): void {
    resumable.delete(key);
    resumable.set(key, session);
    if (resumable.size > TLS_RESUMPTION_ENTRIES_MAX) resumable.delete(resumable.keys().next().value as string);
  }

  return {
    connect(socket, { authority, ownerId, alpnProtocols, signal }) {
      const host = bareHost(authority.host);
      const key = `${ownerId} ${authority.host}:${authority.port} ${alpnProtocols.join()}`;
      const session = resumable.get(key);
      const tlsOptions: ConnectionOptions = {
        socket,
        secureContext: secureContextOf(),
        host,
        rejectUnauthorized: true,
        ALPNProtocols: [...alpnProtocols],
        checkServerIdentity: (_name, certificate) => checkServerIdentity(host, certificate),
      };
      // RFC 6066 section 3: an address is never a server name.
      if (!isAddressLiteral(authority.host)) tlsOptions.servername = host;
      if (session !== undefined) tlsOptions.session = session;
      const tlsSocket = connect(tlsOptions);
      tlsSocket.on('session', (ticket: Buffer) => {
        remember(key, ticket);
      });
      return secured(tlsSocket, { carrier: socket, signal, timeoutMs }).catch((error: unknown) => {
        resumable.delete(key);
        throw error;
      });
    },
    prepare: () => void secureContextOf(),
    forget(ownerId) {
      for (const key of resumable.keys()) if (key.startsWith(`${ownerId} `)) resumable.delete(key);
    },
  };
}

interface Handshake {
  readonly carrier: Duplex;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
}

function secured(tlsSocket: TLSSocket, { carrier, signal, timeoutMs }: Handshake): Promise<TLSSocket> {
  carrier.on('error', (error) => {
    tlsSocket.destroy(error);
  });
  return new Promise((resolve, reject) => {
    let isSettled = false;
    const settle = (error: Error | null): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      tlsSocket.removeListener('secureConnect', onSecure);
      tlsSocket.removeListener('close', onClose);
      if (isSettled) return;
      isSettled = true;
      // The `error` listener stays, so that the socket is never without one.
      if (error === null) {
        resolve(tlsSocket);
        return;
      }
      tlsSocket.destroy();
      carrier.destroy();
      reject(error);
    };
    const onSecure = (): void => {
      settle(null);
    };
    const onClose = (): void => {
      settle(Object.assign(new Error('closed during the handshake'), { code: 'ECONNRESET' }));
    };
    const onAbort = (): void => {
      settle(signal.reason instanceof Error ? signal.reason : new Error('given up', { cause: signal.reason }));
    };
    const timer = setTimeout(() => {
      settle(Object.assign(new Error('the handshake took too long'), { code: 'ETIMEDOUT' }));
    }, timeoutMs);
    tlsSocket.once('secureConnect', onSecure);
    tlsSocket.on('error', settle);
    tlsSocket.once('close', onClose);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
  });
}
