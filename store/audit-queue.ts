// The queue between requests and the audit writer: bounded as a whole and per session, by making callers wait.
import { AUDIT_QUEUE_EVENTS_MAX, AUDIT_QUEUE_PER_SESSION_MAX } from '../model/limits.ts';
import type { AuditRow } from './audit-rows.ts';

export interface AuditQueueLimits {
  readonly eventsMax: number;
  readonly perSessionMax: number;
}

export interface AuditQueue {
  push(row: AuditRow): void;
  /** The oldest rows; they count as queued until `settle`. */
  peek(count: number): readonly AuditRow[];
  /** Forgets the oldest rows, which are stored now, and lets waiting callers go on. */
  settle(count: number): void;
  /** Undefined while there is room; else a promise of it. */
  ready(sessionId: string | null): Promise<void> | undefined;
  size(): number;
  /** Lets everybody go on, since nothing will be stored any more. */
  release(): void;
}

interface Waiter {
  readonly sessionId: string | null;
  readonly resolve: () => void;
}

const DEFAULT_LIMITS: AuditQueueLimits = {
  eventsMax: AUDIT_QUEUE_EVENTS_MAX,
  perSessionMax: AUDIT_QUEUE_PER_SESSION_MAX,
};

export function createAuditQueue(limits: AuditQueueLimits = DEFAULT_LIMITS): AuditQueue {
  let rows: AuditRow[] = [];
  let waiters: Waiter[] = [];
  const bySession = new Map<string, number>();

  function countOf(sessionId: string | null): number {
    return sessionId === null ? 0 : (bySession.get(sessionId) ?? 0);
  }

  function hasRoom(sessionId: string | null): boolean {
    return rows.length < limits.eventsMax && countOf(sessionId) < limits.perSessionMax;
  }

  function add(sessionId: string | null, delta: 1 | -1): void {
    if (sessionId === null) return;
    const count = countOf(sessionId) + delta;
    if (count === 0) bySession.delete(sessionId);
    else bySession.set(sessionId, count);
  }

  return {
    push(row) {
      rows.push(row);
      add(row.sessionId, 1);
    },
    peek: (count) => rows.slice(0, count),
    settle(count) {
      for (const row of rows.slice(0, count)) add(row.sessionId, -1);
      rows = rows.slice(count);
      const waiting = waiters;
      waiters = waiting.filter(({ sessionId }) => !hasRoom(sessionId));
      for (const waiter of waiting) if (hasRoom(waiter.sessionId)) waiter.resolve();
    },
    ready(sessionId) {
      if (hasRoom(sessionId)) return undefined;
      return new Promise((resolve) => waiters.push({ sessionId, resolve }));
    },
    size: () => rows.length,
    release() {
      for (const { resolve } of waiters) resolve();
      waiters = [];
    },
  };
}
