// Decides which addresses of a destination may be dialled; what it returns is dialled as it is, with no second look-up.
import { networkInterfaces } from 'node:os';
import type { Authority } from '../../model/authority.ts';
import { bareHost, isAddressLiteral } from '../../model/authority.ts';
import type { Cidr } from '../../model/ip-class.ts';
import { decideAddress, isAddressInside, parseAddress } from '../../model/ip-class.ts';
import { addressDenied, connectFailed } from './failures.ts';
import type { Resolve } from './resolve.ts';

/** Where one of the daemon's own sockets listens. */
export interface Listener {
  readonly address: string;
  readonly port: number;
}

export interface VetterOptions {
  readonly resolve: Resolve;
  /** Ranges that the operator allowed for every session. */
  readonly allowedCidrs: readonly Cidr[];
  readonly ownListeners: () => readonly Listener[];
  /** Addresses of this machine; for tests. */
  readonly localAddresses?: () => readonly string[];
}

/** What is to be dialled, and on whose word. */
export interface Endpoint {
  /** Whose look-up it is. */
  readonly sessionId: string;
  /** Normalised host and port that are resolved and dialled. */
  readonly authority: Authority;
  /** What errors speak of: the destination that the client asked for, whatever is dialled in its place. */
  readonly subject: Authority;
  /** Chosen by the operator (an override): every class of address is allowed, the daemon's own listeners are not. */
  readonly isOperatorsChoice: boolean;
  /** Ranges allowed by the session's environment. */
  readonly allowedPrivateCidrs: readonly Cidr[];
}

export interface Vetter {
  /**
   * Addresses that passed, in the resolver's order: refused ones among good ones are dropped. Rejects with
   * `address_denied` when none passes, and with `upstream_connect_failed` when the name does not resolve.
   */
  vet(endpoint: Endpoint, signal: AbortSignal): Promise<readonly string[]>;
  /** The same where one refused address refuses all: for a name of which another chooses the address. */
  vetAll(endpoint: Endpoint, signal: AbortSignal): Promise<void>;
  /** Whether one address may still be reached, for connections that wait in a pool. */
  admits(address: string, endpoint: Endpoint): boolean;
}

// Reaching the unspecified address reaches this machine, and the whole of 127/8 is loopback (RFC 1122 section 3.2.1.3).
const ALWAYS_LOCAL: readonly Cidr[] = [
  { bytes: Uint8Array.of(127, 0, 0, 0), prefixBits: 8 },
  { bytes: Uint8Array.of(0, 0, 0, 0), prefixBits: 8 },
  { bytes: new Uint8Array(16), prefixBits: 127 }, // :: and ::1
];

function systemAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
}

function exactRange(address: string): Cidr[] {
  // An IPv6 link-local address may carry its zone here.
  const bytes = parseAddress(address.split('%')[0] as string);
  return bytes === null ? [] : [{ bytes, prefixBits: bytes.length * 8 }];
}

export function createVetter(options: VetterOptions): Vetter {
  const localAddresses = options.localAddresses ?? systemAddresses;

  function isOwn(address: string, port: number): boolean {
    const listeners = options.ownListeners().filter((listener) => listener.port === port);
    if (listeners.length === 0) return false;
    // Whatever address a listener is bound to, its port on any address of this machine counts as its own.
    const bound = listeners.map((listener) => listener.address);
    return isAddressInside(address, [...ALWAYS_LOCAL, ...[...bound, ...localAddresses()].flatMap(exactRange)]);
  }

  function admits(address: string, endpoint: Endpoint): boolean {
    if (parseAddress(address) === null || isOwn(address, endpoint.authority.port)) return false;
    if (endpoint.isOperatorsChoice) return true;
    return (
      decideAddress(address, options.allowedCidrs) === 'admit' ||
      decideAddress(address, endpoint.allowedPrivateCidrs) === 'admit'
    );
  }

  async function addressesOf(endpoint: Endpoint, signal: AbortSignal): Promise<readonly string[]> {
    const host = bareHost(endpoint.authority.host);
    if (isAddressLiteral(endpoint.authority.host)) return [host];
    try {
      const addresses = await options.resolve(host, signal, endpoint.sessionId);
      if (addresses.length > 0) return addresses;
    } catch (error) {
      throw connectFailed(endpoint.subject, error);
    }
    throw connectFailed(endpoint.subject, Object.assign(new Error('no address'), { code: 'ENODATA' }));
  }

  return {
    admits,
    async vet(endpoint, signal) {
      const addresses = await addressesOf(endpoint, signal);
      const admitted = addresses.filter((address) => admits(address, endpoint));
      if (admitted.length === 0) throw addressDenied(endpoint.subject);
      return admitted;
    },
    async vetAll(endpoint, signal) {
      const addresses = await addressesOf(endpoint, signal);
      if (!addresses.every((address) => admits(address, endpoint))) throw addressDenied(endpoint.subject);
    },
  };
}
