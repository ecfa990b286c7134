// Finds out that an HTTP/2 connection has died without a word while requests are under way on it.
import type { ClientHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { HTTP2_PROBE_ANSWER_MS, HTTP2_PROBE_INTERVAL_MS, HTTP2_PROBE_QUIET_MS } from '../../model/limits.ts';

export interface ProbeTimes {
  /** Milliseconds of quiet, with bytes that came to nothing, before the peer is asked. */
  readonly quietMs: number;
  /** Milliseconds that it has for its answer. */
  readonly answerMs: number;
  /** Milliseconds between two questions: some servers take frequent ones for a flood. */
  readonly intervalMs: number;
}

export interface ProbeOptions {
  readonly session: ClientHttp2Session;
  readonly socket: Socket;
  /** Whether any request is not sent whole yet. */
  readonly isSending: () => boolean;
  readonly times?: ProbeTimes | undefined;
}

const TIMES: ProbeTimes = {
  quietMs: HTTP2_PROBE_QUIET_MS,
  answerMs: HTTP2_PROBE_ANSWER_MS,
  intervalMs: HTTP2_PROBE_INTERVAL_MS,
};

/**
 * After a frame that breaks the protocol the runtime's HTTP/2 stops reading and tells nobody, not even when the peer
 * closes: every request of the connection would wait for its time-out. So, when bytes have come that nobody has heard
 * of, and then nothing, the peer is sent a PING; a connection that does not answer is closed. A peer that is silent
 * because it is busy sends no such bytes, and is left alone; so is one that is still taking a request.
 */
export class Http2Probe {
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #times: ProbeTimes;
  readonly #isSending: () => boolean;
  #requestCount = 0;
  #bytesHeard = 0;
  #wasHeard = false;
  #askedAt = -Infinity;
  #tick: NodeJS.Timeout | null = null;
  #answer: NodeJS.Timeout | null = null;

  constructor(options: ProbeOptions) {
    const { session } = options;
    this.#session = session;
    this.#socket = options.socket;
    this.#times = options.times ?? TIMES;
    this.#isSending = options.isSending;
    const heard = (): void => this.heard();
    for (const event of ['remoteSettings', 'localSettings', 'ping', 'goaway'] as const) session.on(event, heard);
  }

  /** A request is under way. */
  begin(): void {
    this.#requestCount += 1;
    this.heard();
    this.#tick ??= setInterval(this.#onTick, this.#times.quietMs).unref();
  }

  end(): void {
    this.#requestCount -= 1;
  }

  /** What came has reached somebody. */
  heard(): void {
    this.#bytesHeard = this.#socket.bytesRead;
    this.#wasHeard = true;
  }

  stop(): void {
    if (this.#tick !== null) clearInterval(this.#tick);
    if (this.#answer !== null) clearTimeout(this.#answer);
    this.#tick = null;
    this.#answer = null;
  }

  readonly #onTick = (): void => {
    if (this.#requestCount === 0) {
      this.stop();
      return;
    }
    const now = performance.now();
    const wasHeard = this.#wasHeard;
    this.#wasHeard = false;
    if (wasHeard || this.#answer !== null || this.#socket.bytesRead === this.#bytesHeard) return;
    if (now - this.#askedAt >= this.#times.intervalMs && !this.#isSending()) this.#ask(now);
  };

  #ask(now: number): void {
    this.#askedAt = now;
    this.#answer = setTimeout(() => this.#socket.destroy(), this.#times.answerMs).unref();
    this.#session.ping((error) => {
      if (error !== null) return; // the session is over, and its streams hear of that
      if (this.#answer !== null) clearTimeout(this.#answer);
      this.#answer = null;
      this.heard();
    });
  }
}
