// Knows every socket that is open or being opened for a session, so that all of them can be closed and awaited.
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../../model/errors.ts';
import type { Destination } from '../exchange.ts';

interface Entry {
  readonly opening: Set<AbortController>;
  readonly open: Map<Duplex, Destination>;
}

/** All sockets towards upstreams, by session. */
export class SessionSockets {
  readonly #entries = new Map<string, Entry>();
  readonly #closedByUs = new WeakSet<Duplex>();
  #onIdle: (() => void) | null = null;

  /**
   * Runs work that opens a socket, with a signal that also fires when the session is closed, and keeps the socket
   * until it closes by itself. Rejects as the work does.
   */
  async open<T extends Duplex>(
    destination: Destination,
    signal: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { sessionId } = destination;
    const entry = this.#entry(sessionId);
    const controller = new AbortController();
    const onAbort = (): void => {
      controller.abort(signal.reason);
    };
    entry.opening.add(controller);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      const socket = await work(controller.signal);
      if (controller.signal.aborted) {
        socket.destroy();
        throw new KeyveilError('upstream_connect_failed', 'The connection was given up before it was used.');
      }
      this.#keep(destination, entry, socket);
      return socket;
    } finally {
      signal.removeEventListener('abort', onAbort);
      entry.opening.delete(controller);
      this.#forget(sessionId, entry);
    }
  }

  /** Destroys everything that a session has open and gives up what it is opening. */
  closeSession(sessionId: string): void {
    const entry = this.#entries.get(sessionId);
    if (entry === undefined) return;
    for (const controller of entry.opening) controller.abort(new Error('the session was closed'));
    for (const socket of entry.open.keys()) this.#close(socket);
  }

  /** Destroys those of a session that may not be open any more. */
  closeUnless(sessionId: string, mayStay: (socket: Duplex, destination: Destination) => boolean): void {
    for (const [socket, destination] of this.#entries.get(sessionId)?.open ?? []) {
      if (!mayStay(socket, destination)) this.#close(socket);
    }
  }

  #close(socket: Duplex): void {
    this.#closedByUs.add(socket);
    socket.destroy();
  }

  /** The same for all sessions; resolves when the last socket has closed. */
  async closeAll(): Promise<void> {
    for (const sessionId of [...this.#entries.keys()]) this.closeSession(sessionId);
    if (this.#entries.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Whether a socket was closed here: what was under way on it must not be tried again. */
  wasClosed(socket: Duplex): boolean {
    return this.#closedByUs.has(socket);
  }

  #entry(sessionId: string): Entry {
    let entry = this.#entries.get(sessionId);
    if (entry === undefined) {
      entry = { opening: new Set(), open: new Map() };
      this.#entries.set(sessionId, entry);
    }
    return entry;
  }

  #keep(destination: Destination, entry: Entry, socket: Duplex): void {
    if (socket.closed) return;
    entry.open.set(socket, destination);
    socket.once('close', () => {
      entry.open.delete(socket);
      this.#forget(destination.sessionId, entry);
    });
  }

  #forget(sessionId: string, entry: Entry): void {
    if (entry.opening.size > 0 || entry.open.size > 0) return;
    if (this.#entries.get(sessionId) === entry) this.#entries.delete(sessionId);
    if (this.#entries.size === 0) this.#onIdle?.();
  }
}
