// The data plane in worker processes: started, watched, replaced when one dies, and asked for their metrics.
import cluster, { type Worker } from 'node:cluster';
import { randomBytes } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { TICKET_KEY_BYTES } from '../ca/leaf-cache.ts';
import { StartError } from '../model/errors.ts';
import { THREAD_POOL_SIZE_OF_WORKERS } from '../model/limits.ts';
import type { Logger } from '../model/ports.ts';
import type { DenialSink } from '../proxy/denials.ts';
import type { Config } from './config.ts';
import type { MetricsSnapshot } from './metrics.ts';
import type { PlaneHost } from './plane-host.ts';
import { TunnelCounts } from './tunnel-counts.ts';
import type { PrimaryMessage, WorkerMessage } from './worker-messages.ts';

const METRICS_TIMEOUT_MS = 2000;
// A worker that dies at once, again and again, must not keep a core busy with starting it.
const RESTART_DELAY_MS = 500;

export interface WorkerHostOptions {
  readonly count: number;
  /** As it was set for this process; null where it was not. */
  readonly threadPoolSize: number | null;
  readonly keys: Pick<Config, 'masterKey' | 'masterKeysPrevious'>;
  readonly logger: Logger;
  readonly adminAddress: () => AddressInfo;
  readonly denials: DenialSink;
}

interface Pending {
  readonly resolve: (snapshot: MetricsSnapshot | null) => void;
}

class WorkerHost implements PlaneHost {
  readonly #options: WorkerHostOptions;
  readonly #ticketKeys = randomBytes(TICKET_KEY_BYTES);
  readonly #workers = new Set<Worker>();
  readonly #counts = new TunnelCounts();
  readonly #pending = new Map<number, Pending>();
  readonly #idle = new Set<Worker>();
  #isStopping = false;
  #nextId = 1;
  #onListening: ((worker: Worker, address: AddressInfo) => void) | null = null;
  #onFailed: ((error: Error) => void) | null = null;
  #onIdle: (() => void) | null = null;

  constructor(options: WorkerHostOptions) {
    this.#options = options;
    cluster.setupPrimary({ serialization: 'advanced' });
  }

  listen(): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      const listening = new Set<Worker>();
      this.#onListening = (worker, address) => {
        listening.add(worker);
        if (listening.size >= this.#options.count) resolve(address);
      };
      this.#onFailed = reject;
      for (let index = 0; index < this.#options.count; index += 1) this.#fork();
    });
  }

  #fork(): void {
    // Look-ups share the runtime's threads, of which it has few unless it is told otherwise before it starts.
    const worker = cluster.fork(
      this.#options.threadPoolSize === null ? { UV_THREADPOOL_SIZE: THREAD_POOL_SIZE_OF_WORKERS } : {},
    );
    this.#workers.add(worker);
    this.#counts.join(worker.id);
    worker.on('message', (message: WorkerMessage) => this.#onMessage(worker, message));
    worker.on('error', (error) => this.#options.logger.error({ error }, 'A worker could not be spoken to.'));
    worker.once('exit', (code, signal) => this.#onExit(worker, signal ?? String(code)));
  }

  #send(worker: Worker, message: PrimaryMessage): void {
    if (worker.isConnected()) worker.send(message);
  }

  #startMessage(): PrimaryMessage {
    const { adminAddress, keys } = this.#options;
    return {
      kind: 'start',
      adminAddress: adminAddress(),
      ticketKeys: this.#ticketKeys,
      masterKey: keys.masterKey?.reveal() ?? null,
      masterKeysPrevious: keys.masterKeysPrevious?.map((key) => key.reveal()) ?? null,
    };
  }

  #onMessage(worker: Worker, message: WorkerMessage): void {
    switch (message.kind) {
      case 'ready':
        this.#send(worker, this.#startMessage());
        return;
      case 'listening':
        this.#onListening?.(worker, message.address);
        return;
      case 'failed':
        this.#onFailed?.(message.isStartError ? new StartError(message.message) : new Error(message.message));
        return;
      case 'metrics':
        this.#pending.get(message.id)?.resolve(message.snapshot);
        return;
      case 'enter':
        this.#send(worker, {
          kind: 'entered',
          id: message.id,
          isAdmitted: this.#counts.enter(worker.id, message.sessionId),
        });
        return;
      case 'leave':
        this.#counts.leave(worker.id, message.sessionId);
        return;
      case 'denied':
        this.#options.denials.denied(message.sessionId);
        return;
      case 'served':
        this.#options.denials.served(message.sessionId);
        return;
      case 'idle':
        this.#onWorkerIdle(worker);
    }
  }

  #onWorkerIdle(worker: Worker): void {
    // Of one that has ended it comes too late, and would never be taken away again.
    if (this.#workers.has(worker)) this.#idle.add(worker);
    this.#onIdle?.();
  }

  #onExit(worker: Worker, how: string): void {
    this.#workers.delete(worker);
    this.#idle.delete(worker);
    this.#counts.forget(worker.id);
    this.#onIdle?.();
    if (this.#isStopping) return;
    this.#options.logger.error({ reason: how }, 'A worker ended; its tunnels are lost, and another takes its place.');
    setTimeout(() => this.#isStopping || this.#fork(), RESTART_DELAY_MS).unref();
  }

  drain(): void {
    this.#isStopping = true;
    for (const worker of this.#workers) this.#send(worker, { kind: 'drain' });
  }

  idle(): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if ([...this.#workers].every((worker) => this.#idle.has(worker))) resolve();
      };
      this.#onIdle = check;
      check();
    });
  }

  async peers(): Promise<readonly MetricsSnapshot[]> {
    const answers = await Promise.all([...this.#workers].map((worker) => this.#ask(worker)));
    return answers.filter((snapshot) => snapshot !== null);
  }

  #ask(worker: Worker): Promise<MetricsSnapshot | null> {
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve) => {
      const settle = (snapshot: MetricsSnapshot | null): void => {
        clearTimeout(timer);
        this.#pending.delete(id);
        resolve(snapshot);
      };
      const timer = setTimeout(() => settle(null), METRICS_TIMEOUT_MS);
      this.#pending.set(id, { resolve: settle });
      this.#send(worker, { kind: 'metrics', id });
    });
  }

  caChanged(): void {
    for (const worker of this.#workers) this.#send(worker, { kind: 'ca-changed' });
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    const gone = [...this.#workers].map((worker) => new Promise((resolve) => worker.once('exit', resolve)));
    for (const worker of this.#workers) this.#send(worker, { kind: 'stop' });
    await Promise.all(gone);
  }
}

/** Starts the workers when `listen` is called. Only the primary process of a cluster may use it. */
export function createWorkerHost(options: WorkerHostOptions): PlaneHost {
  return new WorkerHost(options);
}
