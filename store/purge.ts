// Removes what was overwritten from the write-ahead log too, where SQLite keeps earlier pages until the log is cut.
import type { Logger } from '../model/ports.ts';
import type { Database } from './database.ts';

const RETRY_MS = 500;
// The event loop stands still while SQLite waits for readers; a reader that takes longer is met again by the retry.
const WAIT_FOR_READERS_MS = 20;

export interface Purger {
  /** Moves the log into the database, where `secure_delete` has zeroed the old bytes, and cuts it to nothing. */
  purge(): void;
  close(): void;
}

/** Makes a purger that tries again by itself while readers of other connections are in the way. */
export function createPurger(database: Database, logger: Logger): Purger {
  let timer: NodeJS.Timeout | null = null;

  function truncateLog(): boolean {
    const before = Number(database.pragma('busy_timeout', { simple: true }));
    database.pragma(`busy_timeout = ${WAIT_FOR_READERS_MS}`);
    let isDone = false;
    try {
      const [row] = database.pragma('wal_checkpoint(TRUNCATE)') as { busy: number }[];
      isDone = row?.busy === 0;
    } catch (error) {
      logger.warn({ error }, 'The write-ahead log could not be cut after a purge; trying again');
    }
    database.pragma(`busy_timeout = ${before}`);
    return isDone;
  }

  function purge(): void {
    if (timer !== null) clearTimeout(timer);
    timer = truncateLog() ? null : setTimeout(purge, RETRY_MS).unref();
  }

  return {
    purge,
    close() {
      if (timer !== null) clearTimeout(timer);
      timer = null;
    },
  };
}
