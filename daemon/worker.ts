// A worker process: a data plane of its own, on the shared port, told by the primary when to start and to stop.
import cluster from 'node:cluster';
import { hostname } from 'node:os';
import { createLeafCache } from '../ca/leaf-cache.ts';
import { openRoot } from '../ca/root.ts';
import { KeyveilError, StartError } from '../model/errors.ts';
import type { Logger, TunnelGate } from '../model/ports.ts';
import { Secret } from '../model/secret.ts';
import type { DenialSink } from '../proxy/denials.ts';
import { Closers } from './closers.ts';
import type { Config } from './config.ts';
import { createDataPlane, type DataPlane } from './data-plane.ts';
import { explainListenError } from './listen.ts';
import { createMetrics } from './metrics.ts';
import { openConfiguredStore } from './open-parts.ts';
import type { PrimaryMessage, WorkerMessage } from './worker-messages.ts';

type StartMessage = Extract<PrimaryMessage, { kind: 'start' }>;

function send(message: WorkerMessage): void {
  // A primary that has died can't be told anything; `disconnect` follows and ends this process.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

/** Asks the primary, which counts the tunnels of all workers. */
class PrimaryGate implements TunnelGate {
  readonly #waiting = new Map<number, (isAdmitted: boolean) => void>();
  #nextId = 1;

  async enter(sessionId: string): Promise<void> {
    const id = this.#nextId;
    this.#nextId += 1;
    const isAdmitted = await new Promise<boolean>((resolve) => {
      this.#waiting.set(id, resolve);
      send({ kind: 'enter', id, sessionId });
    });
    if (!isAdmitted) {
      throw new KeyveilError('overloaded', 'Too many tunnels are open. Close some, or try again in a moment.');
    }
  }

  leave(sessionId: string): void {
    send({ kind: 'leave', sessionId });
  }

  answer(id: number, isAdmitted: boolean): void {
    this.#waiting.get(id)?.(isAdmitted);
    this.#waiting.delete(id);
  }
}

/** Tells the primary of denials, and of the first success after one: all others change nothing there. */
class PrimaryDenials implements DenialSink {
  readonly #denied = new Set<string>();

  denied(sessionId: string): void {
    this.#denied.add(sessionId);
    send({ kind: 'denied', sessionId });
  }

  served(sessionId: string): void {
    if (this.#denied.size > 0 && this.#denied.delete(sessionId)) send({ kind: 'served', sessionId });
  }
}

interface RunningWorker {
  readonly plane: DataPlane;
  onMessage(message: PrimaryMessage): void;
}

function withKeys(config: Config, { masterKey, masterKeysPrevious }: StartMessage): Config {
  return {
    ...config,
    masterKey: masterKey === null ? null : Secret.fromBytes(masterKey),
    masterKeysPrevious: masterKeysPrevious?.map((key) => Secret.fromBytes(key)) ?? null,
  };
}

async function start(
  config: Config,
  logger: Logger,
  run: { message: StartMessage; closers: Closers },
): Promise<RunningWorker> {
  const clock = { now: () => Date.now() };
  const { closers } = run;
  const { store } = await openConfiguredStore(config, { clock, logger, role: 'member' });
  closers.add(() => store.close());
  const root = await openRoot(store.sealedItems, { clock, hostName: hostname() });
  const policies = store.openPolicies();
  closers.add(() => policies.close());
  const metrics = createMetrics();
  closers.add(() => metrics.close());
  const gate = new PrimaryGate();
  const leaves = createLeafCache(root, { clock, ticketKeys: run.message.ticketKeys });
  const { adminAddress } = run.message;
  const plane = createDataPlane(config, {
    clock,
    logger,
    metrics,
    audit: store.audit,
    policies,
    leaves,
    gate,
    denials: new PrimaryDenials(),
    adminAddress: () => adminAddress,
  });
  closers.add(() => plane.close());
  metrics.gauge('keyveil_audit_queue_events', 'Audit events that are not stored yet.', () => store.audit.depth());
  metrics.gauge('keyveil_leaf_cache_entries', 'Certificates at hand for hosts.', () => leaves.stats().entries);
  return {
    plane,
    onMessage(message) {
      if (message.kind === 'metrics') send({ kind: 'metrics', id: message.id, snapshot: metrics.snapshot() });
      else if (message.kind === 'entered') gate.answer(message.id, message.isAdmitted);
      else if (message.kind === 'ca-changed') {
        root.reload().catch((error: unknown) => logger.error({ error }, "The CA's new root could not be read."));
      }
    },
  };
}

/** Runs this process as a worker; resolves when it has stopped. */
export async function runWorker(config: Config, logger: Logger): Promise<void> {
  // A terminal's Ctrl-C reaches every process: the primary says when to stop.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
  const closers = new Closers();
  let worker: RunningWorker | null = null;
  await new Promise<void>((resolve, reject) => {
    const begin = async (message: StartMessage): Promise<void> => {
      try {
        worker = await start(withKeys(config, message), logger, { message, closers });
        const address = await worker.plane.listen().catch((error: unknown) => {
          throw explainListenError(error, config.proxyListen, 'KEYVEIL_PROXY_LISTEN');
        });
        send({ kind: 'listening', address });
      } catch (error) {
        send({ kind: 'failed', message: (error as Error).message, isStartError: error instanceof StartError });
        reject(error instanceof Error ? error : new Error('The worker could not start.'));
      }
    };
    const drain = async (): Promise<void> => {
      worker?.plane.proxy.drain();
      await worker?.plane.proxy.idle();
      send({ kind: 'idle' });
    };
    process.on('message', (message: PrimaryMessage) => {
      if (message.kind === 'start') void begin(message);
      else if (message.kind === 'drain') drain().catch(reject);
      else if (message.kind === 'stop') resolve();
      else worker?.onMessage(message);
    });
    // The primary has died: without it there is no admin API, and no other process will look after this one.
    process.once('disconnect', resolve);
    send({ kind: 'ready' });
  }).finally(() => closers.run());
}

/** Whether this process was started as a worker. */
export function isWorkerProcess(): boolean {
  return cluster.isWorker;
}
