// Closes the connection of a client whose HTTP/2 session has died, which the runtime does not do by itself.
import type { ServerHttp2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import { HTTP2_DEAD_CHECK_MS, HTTP2_READ_CHECK_MS } from '../model/limits.ts';

const PING_FRAME_BYTES = 17;

/** A TLS socket, with what of its handle the runtime's types leave out. */
interface Connection extends Duplex {
  /** Bytes of HTTP/2, without TLS's own. */
  readonly bytesRead?: number;
  readonly bytesWritten?: number;
  readonly _handle?: { readStart?(): unknown; readonly writeQueueSize?: number } | null;
}

/**
 * After an error that ends the whole connection (RFC 9113 section 5.4.1) the runtime sends GOAWAY, reads and writes
 * nothing more, and mostly tells nobody: the requests that are open would wait, and the socket stay open, until a
 * time-out. A session in that state is told from all others in that it never sends what it has been given to send,
 * though the socket has room. So, after bytes have come and nothing shows that they were understood, it is given a PING.
 * Whether the client answers, or reads at all, does not matter; its answers are no bytes that ask for the next PING.
 */
export class DeadSessionWatch {
  readonly #session: ServerHttp2Session;
  readonly #socket: Connection;
  readonly #onDead: () => void;
  /** What had been read, less the answers to PING, when the session was last seen alive. */
  #bytesSeen = 0;
  #answerCount = 0;
  #bytesBefore = 0;
  #stateBefore = '';
  #isChecking = false;

  constructor(session: ServerHttp2Session, socket: Duplex, onDead: () => void) {
    this.#session = session;
    this.#socket = socket;
    this.#onDead = onDead;
    const timer = setInterval(() => this.#tick(), HTTP2_READ_CHECK_MS).unref();
    socket.once('close', () => clearInterval(timer));
    // What waits to be written to a client that does not read would keep the socket open.
    session.once('error', () => setTimeout(() => socket.destroy(), HTTP2_READ_CHECK_MS).unref());
  }

  #tick(): void {
    const { bytesRead = 0, _handle: handle, destroyed } = this.#socket;
    // A dead session reads no more, and would not hear that the client has left.
    if (bytesRead === this.#bytesBefore && !destroyed) handle?.readStart?.();
    this.#bytesBefore = bytesRead;
    const bytesAsking = bytesRead - PING_FRAME_BYTES * this.#answerCount;
    if (this.#session.destroyed || this.#isChecking || bytesAsking === this.#bytesSeen) return;
    // Windows and tables that change are a sign of life that costs nothing.
    const before = this.#stateBefore;
    this.#stateBefore = JSON.stringify({ ...this.#session.state, outboundQueueSize: 0 });
    if (before === this.#stateBefore) this.#check(bytesAsking);
  }

  #check(bytesAsking: number): void {
    const { bytesWritten } = this.#socket;
    const isAsked = this.#session.ping((error) => {
      if (error === null) this.#answerCount += 1;
    });
    if (!isAsked) return; // as many are unanswered as the runtime lets be
    this.#isChecking = true;
    // After the timer the loop takes what the system has to tell of writes, and only then is looked again.
    setTimeout(() => setImmediate(() => this.#conclude(bytesAsking, bytesWritten)), HTTP2_DEAD_CHECK_MS).unref();
  }

  #conclude(bytesAsking: number, bytesWrittenBefore: number | undefined): void {
    this.#isChecking = false;
    if (this.#session.destroyed || this.#socket.destroyed) return;
    const { bytesWritten, _handle: handle } = this.#socket;
    if (bytesWritten !== bytesWrittenBefore) {
      this.#bytesSeen = bytesAsking;
      return;
    }
    // What is still being written holds back all that comes after it, of a live session too.
    const isDead = handle?.writeQueueSize === 0 && (this.#session.state.outboundQueueSize ?? 0) > 0;
    if (isDead) this.#onDead();
  }
}
