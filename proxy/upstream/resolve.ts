// Names to addresses, the way the machine's own programs see them (/etc/hosts, search domains, nsswitch).
import type { LookupAddress } from 'node:dns';
import { lookup as systemLookup } from 'node:dns';
import {
  RESOLVE_IN_FLIGHT_MAX,
  RESOLVE_QUEUE_PER_SESSION_MAX,
  RESOLVE_SESSION_SHARE_PERCENT,
  RESOLVE_TIMEOUT_MS,
  THREAD_POOL_SIZE_DEFAULT,
} from '../../model/limits.ts';

/**
 * Addresses of a name, in the order in which they should be tried, for a session. Rejects with an error whose `code` is
 * one of getaddrinfo's (`ENOTFOUND`, `EAI_AGAIN`) or `ETIMEOUT`, and with the signal's reason when it fires.
 */
export type Resolve = (host: string, signal: AbortSignal, sessionId: string) => Promise<readonly string[]>;

type Lookup = (
  host: string,
  options: { all: true; verbatim: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface SystemResolverOptions {
  readonly lookup?: Lookup;
  readonly timeoutMs?: number;
  /** Threads of the runtime's pool. */
  readonly threadPoolSize?: number;
  readonly inFlightMax?: number;
  readonly inFlightPerSessionMax?: number;
  readonly queuePerSessionMax?: number;
}

/** A name that is asked for once for all that want it. */
interface Question {
  readonly host: string;
  readonly answer: Promise<readonly string[]>;
  readonly settle: (error: Error | null, addresses: readonly string[]) => void;
  isStarted: boolean;
  /** Callers that have not given up. */
  waitingCount: number;
}

/** What one session has under way and waiting. */
interface Asker {
  inFlightCount: number;
  readonly queue: Question[];
}

function failure(code: string, text: string): Error {
  return Object.assign(new Error(text), { code });
}

/**
 * A resolver over getaddrinfo. Each call holds a thread of the runtime until the operating system answers, which a name
 * server of somebody's own can put off for long. So only so many are under way at once, of one session a part of them,
 * and sessions take turns. A name that is asked for is asked once, and nobody waits longer than the time-out.
 */
export function createSystemResolver(options: SystemResolverOptions = {}): Resolve {
  const resolver = new FairResolver(options);
  return (host, signal, sessionId) => resolver.resolve(host, signal, sessionId);
}

// The runtime gives look-ups half of its threads, rounded up: what it was asked beyond that would wait in no fair order.
function lookupsOf(threadPoolSize: number): number {
  return Math.min(RESOLVE_IN_FLIGHT_MAX, Math.ceil(threadPoolSize / 2));
}

class FairResolver {
  readonly #lookup: Lookup;
  readonly #limits: Required<Omit<SystemResolverOptions, 'lookup' | 'threadPoolSize'>>;
  readonly #questions = new Map<string, Question>();
  /** In the order of their turns. */
  readonly #askers = new Map<string, Asker>();
  #inFlightCount = 0;

  constructor({
    lookup = systemLookup,
    threadPoolSize = THREAD_POOL_SIZE_DEFAULT,
    inFlightMax = lookupsOf(threadPoolSize),
    ...limits
  }: SystemResolverOptions) {
    this.#lookup = lookup;
    this.#limits = {
      timeoutMs: RESOLVE_TIMEOUT_MS,
      inFlightMax,
      inFlightPerSessionMax: Math.max(1, Math.floor((inFlightMax * RESOLVE_SESSION_SHARE_PERCENT) / 100)),
      queuePerSessionMax: RESOLVE_QUEUE_PER_SESSION_MAX,
      ...limits,
    };
  }

  async resolve(host: string, signal: AbortSignal, sessionId: string): Promise<readonly string[]> {
    const question = this.#ask(host, sessionId);
    question.waitingCount += 1;
    try {
      return await within(question.answer, this.#limits.timeoutMs, signal);
    } finally {
      question.waitingCount -= 1;
    }
  }

  #ask(host: string, sessionId: string): Question {
    let question = this.#questions.get(host);
    if (question?.isStarted === true) return question;
    const asker = this.#askers.get(sessionId) ?? { inFlightCount: 0, queue: [] };
    if (question === undefined || !asker.queue.includes(question)) {
      if (asker.queue.length >= this.#limits.queuePerSessionMax) this.#dropAbandoned(asker);
      if (asker.queue.length >= this.#limits.queuePerSessionMax)
        throw failure('EAI_AGAIN', 'too many names of the session wait to be resolved');
      // A name that waits in another's queue waits in this one too: whichever has its turn first asks.
      question ??= this.#createQuestion(host);
      asker.queue.push(question);
    }
    this.#askers.set(sessionId, asker);
    question.waitingCount += 1; // until it is known whether it is this one's turn
    this.#startNext();
    question.waitingCount -= 1;
    return question;
  }

  #createQuestion(host: string): Question {
    const { promise, resolve, reject } = withResolvers<readonly string[]>();
    promise.catch(() => undefined); // all that wait may have given up
    const question: Question = {
      host,
      answer: promise,
      settle: (error, addresses) => {
        if (error === null) resolve(addresses);
        else reject(error);
      },
      isStarted: false,
      waitingCount: 0,
    };
    this.#questions.set(host, question);
    return question;
  }

  #startNext(): void {
    // One that has had its turn is put behind all others, where this loop comes by once more.
    for (const [sessionId, asker] of this.#askers) {
      if (this.#inFlightCount >= this.#limits.inFlightMax) return;
      const question = this.#takeFrom(asker);
      if (question === null && !isIdle(asker)) continue;
      this.#askers.delete(sessionId);
      if (question === null) continue;
      this.#askers.set(sessionId, asker);
      this.#start(question, asker);
    }
  }

  #takeFrom(asker: Asker): Question | null {
    if (asker.inFlightCount >= this.#limits.inFlightPerSessionMax) return null;
    for (let question = asker.queue.shift(); question !== undefined; question = asker.queue.shift()) {
      if (question.isStarted) continue;
      if (question.waitingCount > 0) return question;
      this.#forget(question);
    }
    return null;
  }

  #dropAbandoned(asker: Asker): void {
    const { queue } = asker;
    const kept = queue.filter((question) => !question.isStarted && question.waitingCount > 0);
    for (const question of queue) if (!question.isStarted && question.waitingCount === 0) this.#forget(question);
    queue.splice(0, queue.length, ...kept);
  }

  #forget(question: Question): void {
    if (this.#questions.get(question.host) === question) this.#questions.delete(question.host);
  }

  #start(question: Question, asker: Asker): void {
    question.isStarted = true;
    this.#inFlightCount += 1;
    asker.inFlightCount += 1;
    this.#lookup(question.host, { all: true, verbatim: true }, (error, addresses) => {
      this.#inFlightCount -= 1;
      asker.inFlightCount -= 1;
      this.#forget(question);
      question.settle(error, error === null ? addresses.map((entry) => entry.address) : []);
      this.#startNext();
    });
  }
}

function isIdle({ inFlightCount, queue }: Asker): boolean {
  return inFlightCount === 0 && queue.length === 0;
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
      reject(failure('ETIMEOUT', 'the name was not resolved in time'));
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
