// The way to a destination: override, chained proxy or direct; vetted, dialled and, for https, verified.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Authority } from '../../model/authority.ts';
import { bareHost, formatAuthority, isAddressLiteral } from '../../model/authority.ts';
import { KeyveilError } from '../../model/errors.ts';
import type { HostSet } from '../../model/host-pattern.ts';
import type { Destination } from '../exchange.ts';
import type { ChainedProxy } from './chained.ts';
import { connectThroughProxy, vetForProxy } from './chained.ts';
import { dialAddresses } from './dial.ts';
import { connectFailed, givenUp, proxyFailed, tlsFailed } from './failures.ts';
import type { AlpnProtocol, TlsConnector } from './tls.ts';
import type { Endpoint, Vetter } from './vet.ts';

export interface ConnectorOptions {
  readonly vetter: Vetter;
  readonly tls: TlsConnector;
  /** `host:port` of a destination to where it is sent instead. */
  readonly overrides: ReadonlyMap<string, Authority>;
  readonly chainedProxy: ChainedProxy | null;
  /** Hosts that are reached without the chained proxy. */
  readonly noProxyHosts: HostSet;
  readonly connectTimeoutMs: number;
}

export interface Connector {
  /** Resolves and classifies, and opens nothing. */
  vet(destination: Destination, signal: AbortSignal): Promise<void>;
  /** Rejects with `address_denied` or `upstream_connect_failed`. */
  openTcp(destination: Destination, signal: AbortSignal): Promise<Duplex>;
  /** A verified TLS connection. Rejects as `openTcp` does, or with `upstream_tls_failed`. */
  openTls(destination: Destination, alpnProtocols: readonly AlpnProtocol[], signal: AbortSignal): Promise<TLSSocket>;
  /** Whether another proxy is asked for it, which resolves its name. */
  isProxied(destination: Destination): boolean;
  /** Whether the peer of an open connection may still be reached; of a name that another proxy resolves nothing can be told. */
  admits(socket: Duplex, destination: Destination): boolean;
}

function endpointOfProxy({ authority }: ChainedProxy, { sessionId, subject }: Endpoint): Endpoint {
  return { sessionId, authority, subject, isOperatorsChoice: true, allowedPrivateCidrs: [] };
}

/** The failure in the words of the destination that the client asked for, whatever was dialled in its place. */
function inWordsOf(destination: Destination, error: unknown, signal: AbortSignal): KeyveilError {
  if (error instanceof KeyveilError) return error;
  return signal.aborted ? givenUp(destination.authority, error) : connectFailed(destination.authority, error);
}

export function createConnector(options: ConnectorOptions): Connector {
  const { vetter, tls, overrides, chainedProxy, noProxyHosts } = options;

  function endpointOf(destination: Destination): Endpoint {
    const override = overrides.get(formatAuthority(destination.authority));
    return {
      sessionId: destination.sessionId,
      authority: override ?? destination.authority,
      subject: destination.authority,
      isOperatorsChoice: override !== undefined,
      allowedPrivateCidrs: destination.allowedPrivateCidrs,
    };
  }

  function proxyFor(endpoint: Endpoint): ChainedProxy | null {
    if (chainedProxy === null || endpoint.isOperatorsChoice || noProxyHosts.covers(endpoint.authority.host))
      return null;
    return chainedProxy;
  }

  async function dialEndpoint(endpoint: Endpoint, signal: AbortSignal): Promise<Socket> {
    const addresses = await vetter.vet(endpoint, signal);
    const { port } = endpoint.authority;
    return dialAddresses(addresses, { port, signal, timeoutMs: options.connectTimeoutMs });
  }

  async function dialProxied(endpoint: Endpoint, proxy: ChainedProxy, signal: AbortSignal): Promise<Duplex> {
    await vetForProxy(vetter, endpoint, signal);
    try {
      const socket = await dialEndpoint(endpointOfProxy(proxy, endpoint), signal);
      return await connectThroughProxy(socket, { proxy, target: endpoint.authority, tls, signal });
    } catch (error) {
      throw signal.aborted ? error : proxyFailed(endpoint.subject, error);
    }
  }

  async function openTcp(destination: Destination, signal: AbortSignal): Promise<Duplex> {
    try {
      const endpoint = endpointOf(destination);
      const proxy = proxyFor(endpoint);
      return await (proxy === null ? dialEndpoint(endpoint, signal) : dialProxied(endpoint, proxy, signal));
    } catch (error) {
      throw inWordsOf(destination, error, signal);
    }
  }

  return {
    openTcp,
    async vet(destination, signal) {
      try {
        const endpoint = endpointOf(destination);
        if (proxyFor(endpoint) === null) await vetter.vet(endpoint, signal);
        else await vetForProxy(vetter, endpoint, signal);
      } catch (error) {
        throw inWordsOf(destination, error, signal);
      }
    },
    async openTls(destination, alpnProtocols, signal) {
      const { authority, sessionId: ownerId } = destination;
      const carrier = await openTcp(destination, signal);
      try {
        return await tls.connect(carrier, { authority, ownerId, alpnProtocols, signal });
      } catch (error) {
        throw signal.aborted ? givenUp(authority, error) : tlsFailed(authority, error);
      }
    },
    isProxied: (destination) => proxyFor(endpointOf(destination)) !== null,
    admits(socket, destination) {
      const endpoint = endpointOf(destination);
      const { host } = endpoint.authority;
      if (proxyFor(endpoint) !== null) return !isAddressLiteral(host) || vetter.admits(bareHost(host), endpoint);
      const address = (socket as Partial<Socket>).remoteAddress;
      return address !== undefined && vetter.admits(address, endpoint);
    },
  };
}
