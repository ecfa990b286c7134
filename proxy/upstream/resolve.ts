// Names to addresses, the way the machine's own programs see them (/etc/hosts, search domains, nsswitch).
import type { LookupAddress } from 'node:dns';
import { lookup as systemLookup } from 'node:dns';
import { RESOLVE_IN_FLIGHT_MAX, RESOLVE_QUEUE_MAX, RESOLVE_TIMEOUT_MS } from '../../model/limits.ts';

/**
 * Addresses of a name, in the order in which they should be tried. Rejects with an error whose `code` is one of
 * getaddrinfo's (`ENOTFOUND`, `EAI_AGAIN`) or `ETIMEDOUT`, and with the signal's reason when it fires.
 */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

type Lookup = (
  host: string,
  options: { all: true; verbatim: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface SystemResolverOptions {
  readonly lookup?: Lookup;
  readonly timeoutMs?: number;
  readonly inFlightMax?: number;
  readonly queueMax?: number;
}

interface Question {
  readonly host: string;
  readonly settle: (error: Error | null, addresses: readonly string[]) => void;
}

function failure(code: string, text: string): Error {
  return Object.assign(new Error(text), { code });
}

/**
 * A resolver over getaddrinfo. Each call holds a thread of the runtime until the operating system answers, so only so
 * many are under way at once, a name that is being asked for is asked once, and nobody waits longer than the time-out.
 */
export function createSystemResolver(options: SystemResolverOptions = {}): Resolve {
  const lookup: Lookup = options.lookup ?? systemLookup;
  const timeoutMs = options.timeoutMs ?? RESOLVE_TIMEOUT_MS;
  const inFlightMax = options.inFlightMax ?? RESOLVE_IN_FLIGHT_MAX;
  const queueMax = options.queueMax ?? RESOLVE_QUEUE_MAX;
  const shared = new Map<string, Promise<readonly string[]>>();
  const queue: Question[] = [];
  let inFlightCount = 0;

  function start(question: Question): void {
    inFlightCount += 1;
    lookup(question.host, { all: true, verbatim: true }, (error, addresses) => {
      inFlightCount -= 1;
      question.settle(error, error === null ? addresses.map((entry) => entry.address) : []);
      const next = queue.shift();
      if (next !== undefined) start(next);
    });
  }

  function ask(host: string): Promise<readonly string[]> {
    const asked = shared.get(host);
    if (asked !== undefined) return asked;
    if (queue.length >= queueMax) return Promise.reject(failure('EAI_AGAIN', 'too many names wait to be resolved'));
    const { promise, resolve, reject } = withResolvers<readonly string[]>();
    shared.set(host, promise);
    const question: Question = {
      host,
      settle(error, addresses) {
        shared.delete(host);
        if (error === null) resolve(addresses);
        else reject(error);
      },
    };
    if (inFlightCount < inFlightMax) start(question);
    else queue.push(question);
    return promise;
  }

  return (host, signal) => within(ask(host), timeoutMs, signal);
}

interface Resolvers<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

function withResolvers<T>(): Resolvers<T> {
  let resolve: Resolvers<T>['resolve'] | undefined;
  let reject: Resolvers<T>['reject'] | undefined;
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve: resolve as Resolvers<T>['resolve'], reject: reject as Resolvers<T>['reject'] };
}

function within<T>(promise: Promise<T>, timeoutMs: number, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      leave();
      reject(signal.reason instanceof Error ? signal.reason : new Error('given up', { cause: signal.reason }));
    };
    const timer = setTimeout(() => {
      leave();
      reject(failure('ETIMEDOUT', 'the name was not resolved in time'));
    }, timeoutMs);
    function leave(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    }
    signal.addEventListener('abort', abort);
    promise.then(
      (value) => {
        leave();
        resolve(value);
      },
      (error: Error) => {
        leave();
        reject(error);
      },
    );
    if (signal.aborted) abort();
  });
}
