// The thread that writes the audit log, so that no batch holds up the event loop of the data plane.
import { parentPort, workerData } from 'node:worker_threads';
import { AUDIT_RETRY_MS_MAX } from '../model/limits.ts';
import { createAuditBatches, type Retention } from './audit-batches.ts';
import type { AuditWriterData, FromWriter, ToWriter } from './audit-messages.ts';
import type { AuditBatch } from './audit-rows.ts';
import { openConnection, faultCodeOf } from './database.ts';

const FIRST_RETRY_MS = 50;

/** What the thread needs of its port. */
export interface WriterPort {
  postMessage(message: FromWriter): void;
  on(event: 'message', listener: (message: ToWriter) => void): unknown;
  close(): void;
}

/** Serves a port until it is told to close. A batch that fails is kept and tried again until it is stored. */
export function serveAuditWriter(port: WriterPort, path: string): void {
  const database = openConnection(path, { readonly: false });
  const batches = createAuditBatches(database);
  const timers = new Set<NodeJS.Timeout>();

  function later(work: () => void, delayMs: number): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      work();
    }, delayMs);
    timers.add(timer);
  }

  function store(rows: AuditBatch, retryMs: number): void {
    try {
      batches.store(rows);
    } catch (error) {
      port.postMessage({ type: 'trouble', code: faultCodeOf(error) });
      later(() => {
        store(rows, Math.min(2 * retryMs, AUDIT_RETRY_MS_MAX));
      }, retryMs);
      return;
    }
    port.postMessage({ type: 'stored' });
  }

  // Between two steps the event loop takes batches.
  function prune(retention: Retention, removedBefore: number): void {
    let removed = 0;
    try {
      removed = batches.pruneStep(retention);
    } catch (error) {
      port.postMessage({ type: 'pruned', removed: removedBefore, code: faultCodeOf(error) });
      return;
    }
    const total = removedBefore + removed;
    if (removed === 0) port.postMessage({ type: 'pruned', removed: total, code: null });
    else {
      later(() => {
        prune(retention, total);
      }, 1);
    }
  }

  port.on('message', (message) => {
    switch (message.type) {
      case 'batch':
        store(message.rows, FIRST_RETRY_MS);
        break;
      case 'prune':
        prune(message.retention, 0);
        break;
      case 'close':
        for (const timer of timers) clearTimeout(timer);
        database.close();
        port.close();
    }
  });
  port.postMessage({ type: 'ready' });
}

if (parentPort !== null) serveAuditWriter(parentPort, (workerData as AuditWriterData).path);
