// Interim responses over HTTP/2: node:http2 takes header blocks without end for a client that reads none of them.
import type { Http2Session } from 'node:http2';
import { INTERIM_POLL_MS, INTERIM_UNSENT_BYTES_MAX } from '../model/limits.ts';
import { Attachment } from './attachment.ts';

/** What a connection has been given of them and may not have sent. */
class InterimBacklog {
  readonly #session: Http2Session;
  #bytes = 0;
  #waiting: (() => void)[] = [];

  constructor(session: Http2Session) {
    this.#session = session;
  }

  /** False when there is more than enough; `onRoom` is called then once it has left, or the connection is closed. */
  add(bytes: number, onRoom: () => void): boolean {
    // A block that was just handed over is in the queue until the end of the turn, so what comes in one adds up.
    if (this.#isEmpty()) this.#bytes = 0;
    this.#bytes += bytes;
    if (this.#bytes <= INTERIM_UNSENT_BYTES_MAX) return true;
    this.#waiting.push(onRoom);
    if (this.#waiting.length === 1) this.#poll();
    return false;
  }

  /** The runtime tells of the queue's length, and not of its end. */
  #poll(): void {
    setTimeout(() => {
      if (!this.#isEmpty()) return this.#poll();
      this.#bytes = 0;
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const onRoom of waiting) onRoom();
    }, INTERIM_POLL_MS).unref();
  }

  #isEmpty(): boolean {
    return (this.#session.state.outboundQueueSize ?? 0) === 0;
  }
}

const backlogs = new Attachment<Http2Session, InterimBacklog>('keyveil.interim');

/** The one of a connection. */
export function interimBacklogOf(session: Http2Session): InterimBacklog {
  const known = backlogs.get(session);
  if (known !== undefined) return known;
  const backlog = new InterimBacklog(session);
  backlogs.set(session, backlog);
  return backlog;
}
