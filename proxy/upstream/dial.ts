// Connects to the first of several vetted addresses that answers (RFC 8305, "happy eyeballs").
import type { Socket } from 'node:net';
import { connect, isIPv6 } from 'node:net';
import { parseAddress } from '../../model/ip-class.ts';
import { DIAL_ADDRESSES_MAX, DIAL_STAGGER_MS, UPSTREAM_CONNECT_TIMEOUT_MS } from '../../model/limits.ts';

const KEEP_ALIVE_PROBE_DELAY_MS = 60_000;

export interface DialOptions {
  readonly port: number;
  readonly signal: AbortSignal;
  /** Milliseconds until the whole attempt is given up. */
  readonly timeoutMs?: number;
  /** Milliseconds before the next address is tried while the ones before have not answered. */
  readonly staggerMs?: number;
}

/** Families alternate, the resolver's first one leads, order within a family is kept (RFC 8305 section 4). */
export function interleaveFamilies(addresses: readonly string[]): string[] {
  const leads = isIPv6(addresses[0] ?? '');
  const first = addresses.filter((address) => isIPv6(address) === leads);
  const second = addresses.filter((address) => isIPv6(address) !== leads);
  const mixed: string[] = [];
  for (let index = 0; index < Math.max(first.length, second.length); index += 1) {
    mixed.push(...first.slice(index, index + 1), ...second.slice(index, index + 1));
  }
  return mixed;
}

function isSameAddress(one: string | undefined, other: string): boolean {
  const left = parseAddress(one ?? '');
  const right = parseAddress(other);
  return left !== null && right !== null && Buffer.compare(left, right) === 0;
}

function failure(code: string, text: string): Error {
  return Object.assign(new Error(text), { code });
}

/**
 * Connects to the addresses, which must have been vetted: they are dialled as they are, and the socket's peer is
 * compared with the one that was meant. Rejects with the last attempt's system error, one with `code: 'ETIMEDOUT'`, or
 * the signal's reason. The socket keeps an `error` listener, so that it is never without; it tells of its end by `close`.
 */
export function dialAddresses(addresses: readonly string[], options: DialOptions): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const race = new Race(interleaveFamilies(addresses).slice(0, DIAL_ADDRESSES_MAX), options, (error, socket) => {
      if (socket === null) reject(error);
      else resolve(socket);
    });
    race.start();
  });
}

type Settle = (error: Error, socket: Socket | null) => void;

class Race {
  readonly #waiting: string[];
  readonly #options: DialOptions;
  readonly #settle: Settle;
  readonly #attempts = new Set<Socket>();
  readonly #deadline: NodeJS.Timeout;
  #stagger: NodeJS.Timeout | undefined;
  #lastError: Error = failure('ENODATA', 'no address to dial');
  #isOver = false;

  constructor(addresses: readonly string[], options: DialOptions, settle: Settle) {
    this.#waiting = [...addresses];
    this.#options = options;
    this.#settle = settle;
    this.#deadline = setTimeout(() => {
      this.#finish(failure('ETIMEDOUT', 'no address answered in time'), null);
    }, options.timeoutMs ?? UPSTREAM_CONNECT_TIMEOUT_MS);
  }

  start(): void {
    this.#options.signal.addEventListener('abort', this.#onAbort);
    if (this.#options.signal.aborted) this.#onAbort();
    else this.#next();
  }

  readonly #onAbort = (): void => {
    const { reason } = this.#options.signal as { reason: unknown };
    this.#finish(reason instanceof Error ? reason : failure('ECANCELED', 'given up'), null);
  };

  readonly #next = (): void => {
    clearTimeout(this.#stagger);
    const address = this.#waiting.shift();
    if (address === undefined) {
      if (this.#attempts.size === 0) this.#finish(this.#lastError, null);
      return;
    }
    if (this.#waiting.length > 0) this.#stagger = setTimeout(this.#next, this.#options.staggerMs ?? DIAL_STAGGER_MS);
    this.#attempt(address);
  };

  #attempt(address: string): void {
    const socket = connect({
      host: address,
      port: this.#options.port,
      autoSelectFamily: false,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_DELAY_MS,
    });
    this.#attempts.add(socket);
    const fail = (error: Error): void => {
      if (this.#isOver) return; // a late reset of an attempt that lost concerns nobody
      this.#lastError = error;
      this.#attempts.delete(socket);
      socket.destroy();
      this.#next();
    };
    socket.on('error', fail);
    socket.once('connect', () => {
      if (!isSameAddress(socket.remoteAddress, address)) {
        fail(failure('EADDRNOTAVAIL', 'the peer is not the address that was vetted'));
        return;
      }
      this.#attempts.delete(socket);
      this.#finish(this.#lastError, socket);
    });
  }

  #finish(error: Error, socket: Socket | null): void {
    this.#isOver = true;
    clearTimeout(this.#deadline);
    clearTimeout(this.#stagger);
    this.#options.signal.removeEventListener('abort', this.#onAbort);
    this.#waiting.length = 0;
    for (const attempt of this.#attempts) {
      attempt.removeAllListeners('connect');
      attempt.destroy();
    }
    this.#attempts.clear();
    this.#settle(error, socket);
  }
}
