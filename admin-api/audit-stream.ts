// The live audit stream: new rows as server-sent events (WHATWG HTML section 9.2), for as long as the client's token is good.
import { setTimeout as delay } from 'node:timers/promises';
import type { AuditQuery, StoredAuditEntry } from '../model/audit.ts';
import { PAGE_LIMIT_MAX } from '../model/limits.ts';
import type { AuditLog } from '../model/ports.ts';
import { auditEntryToWire } from './schemas/audit.ts';

export interface AuditStreamOptions {
  readonly audit: Pick<AuditLog, 'listSince'>;
  /** Rows after this sequence number are sent. */
  readonly after: number;
  readonly filters: Omit<AuditQuery, 'after' | 'limit'>;
  readonly pollMs: number;
  readonly heartbeatMs: number;
  /** Aborts when the client or the server goes away. */
  readonly signal: AbortSignal;
  /** Whether the client may still read; asked of each page that was read before it is sent, and at each heartbeat. */
  isAdmitted(): Promise<boolean>;
}

// JSON has no raw line breaks, so one `data` line holds the whole event.
function format({ sequence, entry }: StoredAuditEntry): string {
  return `id: ${sequence}\nevent: ${entry.kind}\ndata: ${JSON.stringify(auditEntryToWire(entry))}\n\n`;
}

/** Resolves false when the signal aborted the wait. */
async function wait(ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await delay(ms, undefined, { signal });
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  }
}

/**
 * The text of the stream, piece by piece; whoever reads it slowly slows it down, since the next rows are read from the
 * log only once the last ones were taken.
 */
export async function* streamAudit(options: AuditStreamOptions): AsyncGenerator<string, void, void> {
  const { audit, filters, signal } = options;
  let { after } = options;
  let quietMs = 0;
  // The comment makes the header go out at once, so that the client knows that it is connected.
  yield 'retry: 2000\n: connected\n\n';
  while (!signal.aborted) {
    const rows = await audit.listSince(after, { ...filters, limit: PAGE_LIMIT_MAX });
    if (rows.length > 0) {
      // After they were read: whoever may read now may read what was written before.
      if (!(await options.isAdmitted())) return;
      yield rows.map(format).join('');
    }
    after = rows.at(-1)?.sequence ?? after;
    if (rows.length === PAGE_LIMIT_MAX) continue;
    if (!(await wait(options.pollMs, signal))) return;
    quietMs += options.pollMs;
    if (quietMs < options.heartbeatMs) continue;
    quietMs = 0;
    if (!(await options.isAdmitted())) return;
    yield ': keep-alive\n\n';
  }
}

/**
 * Calls `end` when the client may read no more, or when that can't be told: a client that takes nothing off its connection
 * holds the stream where it is, so that the stream itself does not look again. Looks half as often, so that a stream which
 * moves ends by itself, as a complete answer. The returned function ends the watch.
 */
export function watchAdmission(
  { heartbeatMs, isAdmitted }: Pick<AuditStreamOptions, 'heartbeatMs' | 'isAdmitted'>,
  end: () => void,
): () => void {
  const timer = setInterval(() => {
    isAdmitted().then((isGood) => {
      if (!isGood) end();
    }, end);
  }, 2 * heartbeatMs);
  timer.unref();
  return () => clearInterval(timer);
}
