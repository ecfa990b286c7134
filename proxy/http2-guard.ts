// What a client may do on one HTTP/2 connection beside asking: take requests back, ping, and change settings.
import { constants, type ServerHttp2Session } from 'node:http2';
import {
  HTTP2_CONTROL_FRAMES_BURST_MAX,
  HTTP2_CONTROL_FRAMES_PER_SECOND_MAX,
  HTTP2_RESETS_BURST_MAX,
  HTTP2_RESETS_PER_SECOND_MAX,
} from '../model/limits.ts';
import type { Clock } from '../model/ports.ts';

/** A bucket that holds `burst` tokens and gets `perSecond` of them back. */
class Allowance {
  readonly #burst: number;
  readonly #perSecond: number;
  #tokens: number;
  #refilledAt: number;

  constructor(burst: number, perSecond: number, nowMs: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#tokens = burst;
    this.#refilledAt = nowMs;
  }

  /** Takes a token; false when there is none. */
  take(nowMs: number): boolean {
    // A clock that was set back refills nothing, and starts anew from there.
    const elapsedMs = Math.max(0, nowMs - this.#refilledAt);
    this.#tokens = Math.min(this.#burst, this.#tokens + (elapsedMs * this.#perSecond) / 1000);
    this.#refilledAt = nowMs;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}

export interface Http2GuardOptions {
  readonly clock: Clock;
  /** The connection is about to be closed for a flood; what is open on it ends after this call. */
  readonly onFlood: () => void;
  /** The connection is closed for frames that break the protocol. */
  readonly onMalformed: () => void;
}

// How the runtime names what nghttp2 refused, and its own counts of such frames and of refused streams.
const MALFORMED = new Set(['ERR_HTTP2_ERROR', 'ERR_HTTP2_TOO_MANY_INVALID_FRAMES']);

/**
 * Watches one connection. A request that is taken back costs a connection to its upstream, and a PING or SETTINGS frame
 * an answer: whoever sends more of them than a client in earnest gets GOAWAY(ENHANCE_YOUR_CALM), RFC 9113 section 10.5.
 * Bounds of single frames, of header blocks and of unread answers are the runtime's.
 */
export class Http2Guard {
  readonly #session: ServerHttp2Session;
  readonly #options: Http2GuardOptions;
  readonly #resets: Allowance;
  readonly #controlFrames: Allowance;

  constructor(session: ServerHttp2Session, options: Http2GuardOptions) {
    this.#session = session;
    this.#options = options;
    const now = options.clock.now();
    this.#resets = new Allowance(HTTP2_RESETS_BURST_MAX, HTTP2_RESETS_PER_SECOND_MAX, now);
    this.#controlFrames = new Allowance(HTTP2_CONTROL_FRAMES_BURST_MAX, HTTP2_CONTROL_FRAMES_PER_SECOND_MAX, now);
    const onControlFrame = (): void => this.#count(this.#controlFrames);
    session.on('ping', onControlFrame);
    session.on('remoteSettings', onControlFrame);
    session.on('error', (error: NodeJS.ErrnoException) => {
      if (MALFORMED.has(error.code ?? '')) options.onMalformed();
    });
  }

  /** The client has reset a stream before its answer was complete. */
  noteReset(): void {
    this.#count(this.#resets);
  }

  /** The client has broken the protocol, and the runtime, which has sent GOAWAY for it, leaves the connection open. */
  endMalformed(): void {
    if (this.#session.destroyed) return;
    this.#options.onMalformed();
    this.#session.destroy(new Error('The client breaks the protocol.'), constants.NGHTTP2_PROTOCOL_ERROR);
  }

  #count(allowance: Allowance): void {
    const { clock, onFlood } = this.#options;
    if (this.#session.destroyed || allowance.take(clock.now())) return;
    onFlood();
    this.#session.destroy(new Error('The client floods its connection.'), constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
