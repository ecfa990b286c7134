// The audit log: a bounded queue, a writer thread that stores it in batches, and reads on a connection of their own.
import { StartError } from '../model/errors.ts';
import { AUDIT_BATCH_EVENTS_MAX, AUDIT_PRUNE_INTERVAL_MS } from '../model/limits.ts';
import type { AuditLog, Clock, Logger } from '../model/ports.ts';
import { createAuditQueries, type AuditQueries } from './audit-queries.ts';
import { createAuditQueue, type AuditQueue, type AuditQueueLimits } from './audit-queue.ts';
import { toAdminRow, toAuditRow, type AuditRow } from './audit-rows.ts';
import { AuditThread } from './audit-thread.ts';
import { openConnection } from './database.ts';
import { foreignNote } from './file-owner.ts';

/** How long entries are kept. */
export interface AuditRetention {
  readonly days: number;
  readonly bytesMax: number;
}

export interface AuditLogOptions {
  /** Path of `audit.db`, which has its schema already. */
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Null in processes that leave the pruning to another. */
  readonly retention: AuditRetention | null;
  /** How long `close` waits for a database that takes nothing, in milliseconds. */
  readonly closeTimeoutMs?: number;
  readonly queueLimits?: AuditQueueLimits;
}

/** The log, and what the store itself reads from it. */
export interface OpenedAuditLog extends AuditLog {
  lastUsedAt: AuditQueries['lastUsedAt'];
  /** Removes what is past its retention; resolves with the number of entries. Runs by itself each minute, too. */
  prune(): Promise<number>;
}

const DAY_MS = 24 * 3600 * 1000;
const CLOSE_TIMEOUT_MS = 10_000;

async function startThread(options: AuditLogOptions, queue: AuditQueue): Promise<AuditThread> {
  const thread = new AuditThread({ path: options.path, logger: options.logger, queue });
  try {
    await thread.untilReady();
    return thread;
  } catch (error) {
    await thread.close();
    throw new StartError(
      `The writer of the audit log ${options.path} did not start. Check that the file and its folder can be written.` +
        foreignNote([options.path, `${options.path}-wal`, `${options.path}-shm`]),
      {
        cause: error,
      },
    );
  }
}

/** Waits for the queue to be stored; tells after a while how many entries are lost with it. */
async function drain(thread: AuditThread, queue: AuditQueue, options: AuditLogOptions): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const isLate = await Promise.race([
    thread.flush().then(() => false),
    new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, options.closeTimeoutMs ?? CLOSE_TIMEOUT_MS, true);
    }),
  ]);
  clearTimeout(timer);
  if (isLate) options.logger.error({ count: queue.size() }, 'The audit log took nothing more; these entries are lost');
}

/** Opens the log of a database that has its schema; rejects with a StartError. */
export async function openAuditLog(options: AuditLogOptions): Promise<OpenedAuditLog> {
  const { retention, clock } = options;
  const queue = createAuditQueue(options.queueLimits);
  const thread = await startThread(options, queue);
  const database = openConnection(options.path, { readonly: true });
  const queries = createAuditQueries(database);

  function push(row: AuditRow): void {
    queue.push(row);
    if (queue.size() >= AUDIT_BATCH_EVENTS_MAX) thread.send();
    else thread.wake();
  }

  async function prune(): Promise<number> {
    if (retention === null) return 0;
    return thread.prune({ createdAtGte: clock.now() - retention.days * DAY_MS, bytesMax: retention.bytesMax });
  }

  const pruneTimer = retention === null ? undefined : setInterval(() => void prune(), AUDIT_PRUNE_INTERVAL_MS).unref();

  return {
    record: (event) => {
      push(toAuditRow(event));
    },
    recordAdmin: (event) => {
      push(toAdminRow(event));
    },
    ready: (sessionId) => queue.ready(sessionId),
    depth: () => queue.size(),
    list: (query) => queries.list(query),
    listSince: (sequence, query) => queries.listSince(sequence, query),
    lastSequence: () => queries.lastSequence(),
    lastUsedAt: (credentialId) => queries.lastUsedAt(credentialId),
    flush: () => thread.flush(),
    prune,
    async close() {
      clearInterval(pruneTimer);
      await drain(thread, queue, options);
      // First, so that the writer is the last connection: it moves the write-ahead log into the file.
      database.close();
      await thread.close();
      queue.release();
    },
  };
}
