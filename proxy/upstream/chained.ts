// A proxy between Keyveil and its upstreams, reached by CONNECT (RFC 9110 section 9.3.6), with Basic login.
import type { Duplex } from 'node:stream';
import type { Authority } from '../../model/authority.ts';
import { formatAuthority, isAddressLiteral } from '../../model/authority.ts';
import { KeyveilError } from '../../model/errors.ts';
import { RESPONSE_HEADER_BLOCK_BYTES_MAX, UPSTREAM_CONNECT_TIMEOUT_MS } from '../../model/limits.ts';
import type { Secret } from '../../model/secret.ts';
import { ByteGather } from './byte-gather.ts';
import { addressDenied, ProxyRefusal } from './failures.ts';
import { parseResponseHead, ResponseSyntaxError } from './http1-head.ts';
import type { TlsConnector } from './tls.ts';
import type { Endpoint, Vetter } from './vet.ts';

/** Where the proxy is and how to log in. */
export interface ChainedProxy {
  readonly scheme: 'http' | 'https';
  readonly authority: Authority;
  /** Value of `Proxy-Authorization`; null when it wants no login. */
  readonly authorization: Secret | null;
}

/** Names that mean the proxy's own machine or network, wherever they are resolved. */
function isInsideName(host: string): boolean {
  return !host.includes('.') || /(?:^|\.)(?:localhost|local|internal)$/.test(host);
}

/**
 * Classifies what can be classified of a destination whose name the proxy resolves: literals, names that mean
 * something local, and names that resolve here as well, of whose addresses all must pass since the proxy may choose
 * any. Rejects with `address_denied`.
 */
export async function vetForProxy(vetter: Vetter, endpoint: Endpoint, signal: AbortSignal): Promise<void> {
  const { host } = endpoint.authority;
  if (!isAddressLiteral(host) && isInsideName(host)) throw addressDenied(endpoint.subject);
  try {
    await vetter.vetAll(endpoint, signal);
  } catch (error) {
    // A name that does not resolve here is the usual case behind a proxy.
    if (!(error instanceof KeyveilError) || error.code !== 'upstream_connect_failed' || signal.aborted) throw error;
  }
}

export interface ProxyConnectOptions {
  readonly proxy: ChainedProxy;
  readonly target: Authority;
  readonly tls: TlsConnector;
  readonly signal: AbortSignal;
}

function connectHead(proxy: ChainedProxy, target: Authority): Buffer {
  const authority = formatAuthority(target);
  const login =
    proxy.authorization === null ? '' : `Proxy-Authorization: ${proxy.authorization.reveal().toString('latin1')}\r\n`;
  return Buffer.from(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${login}\r\n`, 'latin1');
}

function refusedBy(status: number): ProxyRefusal {
  const hint = status === 407 ? 'check the login in KEYVEIL_UPSTREAM_PROXY' : 'ask who runs it to admit the host';
  return new ProxyRefusal(`it answered ${status}; ${hint}`);
}

/**
 * Asks the proxy, over a connected socket, for a tunnel to the target. Rejects with a ProxyRefusal or an error of the
 * socket's; the socket is closed then.
 */
export async function connectThroughProxy(socket: Duplex, options: ProxyConnectOptions): Promise<Duplex> {
  const { proxy, target, tls, signal } = options;
  const { authority } = proxy;
  const carrier =
    proxy.scheme === 'http'
      ? socket
      : await tls.connect(socket, { authority, ownerId: '', alpnProtocols: ['http/1.1'], signal });
  return new Promise((resolve, reject) => {
    const gather = new ByteGather();
    let isSettled = false;
    const settle = (error: Error | null): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      carrier.removeListener('data', onData);
      carrier.removeListener('close', onClose);
      if (isSettled) return;
      isSettled = true;
      // The `error` listener stays, so that the socket is never without one.
      if (error === null) {
        resolve(carrier);
        return;
      }
      carrier.destroy();
      socket.destroy();
      reject(error);
    };
    const onClose = (): void => {
      settle(new ProxyRefusal('it closed the connection'));
    };
    const onAbort = (): void => {
      settle(new Error('given up', { cause: signal.reason }));
    };
    const onData = (chunk: Buffer): void => {
      try {
        const next = gather.appendBlock(chunk, 0);
        if (gather.hasBrokenLine || gather.length > RESPONSE_HEADER_BLOCK_BYTES_MAX)
          throw new ProxyRefusal('it does not speak HTTP/1');
        if (next < 0) return;
        const { status } = parseResponseHead(gather.text());
        if (status < 200 || status > 299) throw refusedBy(status);
        carrier.pause();
        if (next < chunk.length) carrier.unshift(chunk.subarray(next));
        settle(null);
      } catch (error) {
        settle(error instanceof ResponseSyntaxError ? new ProxyRefusal(error.message) : (error as Error));
      }
    };
    const timer = setTimeout(() => {
      settle(new ProxyRefusal('it did not answer in time'));
    }, UPSTREAM_CONNECT_TIMEOUT_MS);
    carrier.on('error', settle);
    carrier.once('close', onClose);
    carrier.on('data', onData);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    else carrier.write(connectHead(proxy, target));
  });
}
