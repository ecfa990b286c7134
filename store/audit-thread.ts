// Keeps the audit writer's thread busy with the queue's head, one batch at a time, and starts it again when it dies.
import { Worker } from 'node:worker_threads';
import { AUDIT_BATCH_EVENTS_MAX, AUDIT_BATCH_INTERVAL_MS } from '../model/limits.ts';
import type { Logger } from '../model/ports.ts';
import type { Retention } from './audit-batches.ts';
import type { AuditWriterData, FromWriter, ToWriter } from './audit-messages.ts';
import type { AuditQueue } from './audit-queue.ts';
import { toBatch, type AuditRow } from './audit-rows.ts';

const RESTART_MS = 500;

// Sources are .ts, which need a loader, and .js in the compiled program. Nothing else of the process's own arguments
// (a debugger, other loaders) belongs into the thread.
const EXTENSION = import.meta.url.slice(import.meta.url.lastIndexOf('.'));
const WRITER_URL = new URL(`./audit-writer${EXTENSION}`, import.meta.url);
const LOADER = `--import=${new URL('../scripts/ts-register.mjs', import.meta.url).href}`;
const WRITER_ARGUMENTS = [LOADER].filter(() => EXTENSION === '.ts');

export interface AuditThreadOptions {
  /** Path of `audit.db`. */
  readonly path: string;
  readonly logger: Logger;
  readonly queue: AuditQueue;
}

interface Flusher {
  /** Rows that must have been stored, counted from the start. */
  readonly target: number;
  readonly resolve: () => void;
}

/** Holds the thread; it starts at once. */
export class AuditThread {
  readonly #options: AuditThreadOptions;
  #worker: Worker | null = null;
  /** The batch under way; empty when there is none. */
  #inFlight: readonly AuditRow[] = [];
  #isReady = false;
  #isClosing = false;
  #isTroubled = false;
  #batchTimer: NodeJS.Timeout | null = null;
  #restartTimer: NodeJS.Timeout | null = null;
  #storedCount = 0;
  #flushers: Flusher[] = [];
  #pruners: ((removed: number) => void)[] = [];
  #exitListeners: (() => void)[] = [];
  #readyListeners: (() => void)[] = [];

  constructor(options: AuditThreadOptions) {
    this.#options = options;
    this.#spawn();
  }

  /** Resolves when the thread has opened the database; rejects when it ends before. */
  untilReady(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#readyListeners.push(resolve);
      this.#exitListeners.push(() => {
        reject(new Error('The audit writer ended before it was ready.'));
      });
    });
  }

  /** Has the queue stored at most a batch interval from now. */
  wake(): void {
    this.#batchTimer ??= setTimeout(() => {
      this.#batchTimer = null;
      this.send();
    }, AUDIT_BATCH_INTERVAL_MS);
  }

  /** Has a batch stored now, unless one is under way. */
  send(): void {
    if (this.#inFlight.length > 0 || !this.#isReady || this.#options.queue.size() === 0) return;
    this.#inFlight = this.#options.queue.peek(AUDIT_BATCH_EVENTS_MAX);
    this.#post({ type: 'batch', rows: toBatch(this.#inFlight) });
  }

  /** Resolves when all that is queued now is stored. */
  flush(): Promise<void> {
    const { queue } = this.#options;
    if (queue.size() === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#flushers.push({ target: this.#storedCount + queue.size(), resolve });
      this.send();
    });
  }

  /** Resolves with the number of entries removed. */
  prune(retention: Retention): Promise<number> {
    if (!this.#isReady) return Promise.resolve(0);
    return new Promise((resolve) => {
      this.#pruners.push(resolve);
      this.#post({ type: 'prune', retention });
    });
  }

  /** Ends the thread as a crash would; it is started again after a moment. */
  async terminate(): Promise<void> {
    await this.#worker?.terminate();
  }

  /** Ends the thread; what it has not stored by then stays unstored. */
  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#batchTimer !== null) clearTimeout(this.#batchTimer);
    if (this.#restartTimer !== null) clearTimeout(this.#restartTimer);
    if (this.#worker === null) return;
    await new Promise<void>((resolve) => {
      this.#exitListeners.push(resolve);
      this.#post({ type: 'close' });
    });
  }

  #spawn(): void {
    const data: AuditWriterData = { path: this.#options.path };
    const worker = new Worker(WRITER_URL, {
      workerData: data,
      execArgv: WRITER_ARGUMENTS,
      name: 'keyveil-audit',
    });
    worker.on('message', (message: FromWriter) => {
      this.#receive(message);
    });
    worker.on('error', (error) => {
      this.#options.logger.error({ error }, 'The audit writer failed');
    });
    worker.on('exit', () => {
      this.#onExit();
    });
    this.#worker = worker;
  }

  #post(message: ToWriter): void {
    this.#worker?.postMessage(message);
  }

  #onExit(): void {
    const { logger, queue } = this.#options;
    this.#isReady = false;
    this.#worker = null;
    this.#settlePruners(0);
    const listeners = this.#exitListeners;
    this.#exitListeners = [];
    for (const listener of listeners) listener();
    if (this.#isClosing) return;
    logger.error({ count: queue.size() }, 'The audit writer ended; it is started again');
    this.#restartTimer = setTimeout(() => {
      this.#spawn();
    }, RESTART_MS);
  }

  #receive(message: FromWriter): void {
    const { logger, queue } = this.#options;
    switch (message.type) {
      case 'ready':
        this.#onReady();
        break;
      case 'stored':
        this.#onStored();
        break;
      case 'trouble':
        if (!this.#isTroubled) {
          logger.warn({ code: message.code, count: queue.size() }, 'Audit events can not be stored; trying again');
        }
        this.#isTroubled = true;
        break;
      case 'pruned':
        if (message.code !== null) logger.warn({ code: message.code }, 'Old audit events could not be removed');
        this.#settlePruners(message.removed);
    }
  }

  #onReady(): void {
    this.#isReady = true;
    for (const listener of this.#readyListeners) listener();
    this.#readyListeners = [];
    // A thread that died may have stored its batch: storing it again changes nothing.
    if (this.#inFlight.length === 0) this.send();
    else this.#post({ type: 'batch', rows: toBatch(this.#inFlight) });
  }

  #onStored(): void {
    const { logger, queue } = this.#options;
    const count = this.#inFlight.length;
    this.#inFlight = [];
    this.#storedCount += count;
    if (this.#isTroubled) logger.info({ count }, 'Audit events are stored again');
    this.#isTroubled = false;
    queue.settle(count);
    const waiting = this.#flushers;
    this.#flushers = waiting.filter(({ target }) => target > this.#storedCount);
    for (const { target, resolve } of waiting) if (target <= this.#storedCount) resolve();
    if (queue.size() >= AUDIT_BATCH_EVENTS_MAX || this.#flushers.length > 0) this.send();
    else if (queue.size() > 0) this.wake();
  }

  #settlePruners(removed: number): void {
    for (const resolve of this.#pruners) resolve(removed);
    this.#pruners = [];
  }
}
