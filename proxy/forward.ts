// One request under way: the upstream's answer on its way to the client, and the end of both, recorded once.
import type { Duplex } from 'node:stream';
import type { AuditReason, ConnectionReason, MissRecord, SwapRecord } from '../model/audit.ts';
import type { AuditTrail } from './audit-trail.ts';
import type { ClientExchange } from './client-exchange.ts';
import type {
  HttpVersion,
  RawHeaders,
  ResponseHead,
  ResponseSink,
  UpstreamExchange,
  UpstreamHandlers,
  UpstreamRequestOptions,
} from './exchange.ts';
import { endToEndResponseHeaders, endToEndTrailers } from './hop-by-hop.ts';
import { discard } from './linger.ts';
import { answerError, describeMisses, toKeyveilError, withProxyStatus } from './responses.ts';
import { BodyCutError, type RequestPump } from './request-pump.ts';
import type { Tunnel } from './tunnels.ts';
import type { ResponseVeil } from './veil/response-veil.ts';
import type { VeilableHead } from './veil/veil-headers.ts';

export interface ForwardOptions {
  readonly exchange: ClientExchange;
  readonly trail: AuditTrail;
  readonly tunnel: Tunnel;
  /** Runs once, when nothing of the request is left. */
  readonly onSettled: () => void;
  readonly onUnexpected: (error: unknown) => void;
}

/** Its signal is made when it is read, which is where something is waited for. */
class UpstreamOptions implements UpstreamRequestOptions {
  readonly handlers: Forward;
  readonly clientVersion: HttpVersion;
  readonly responseTimeoutMs: number;

  constructor(handlers: Forward, clientVersion: HttpVersion, responseTimeoutMs: number) {
    this.handlers = handlers;
    this.clientVersion = clientVersion;
    this.responseTimeoutMs = responseTimeoutMs;
  }

  get signal(): AbortSignal {
    return this.handlers.signal;
  }
}

/** Refusals with a status of a failure. */
const REFUSALS = new Set(['emergency_stop', 'mitm_disabled', 'shutting_down', 'overloaded']);
const SETTLED = new DOMException('The request has ended.', 'AbortError');

/** A 101 of the upstream: who takes the two connections over. */
export type UpgradeTaker = (head: ResponseHead, upstream: Duplex, firstBytes: Buffer) => void;

/** Glue between an upstream exchange and the client's reply. Everything that ends it passes through `#settle`. */
export class Forward implements UpstreamHandlers {
  readonly #options: ForwardOptions;
  readonly #toClient: ResponseSink;
  #upstream: UpstreamExchange | null = null;
  #veil: ResponseVeil | null = null;
  #sink: ResponseSink;
  #isSettled = false;
  /** The answer is an error of ours from now on; nothing of the upstream's follows. */
  #isFailed = false;
  #hasEnded = false;
  /** The client has not read its interim responses, so the upstream was paused. */
  #isHeldUp = false;
  #abortion: AbortController | null = null;
  pump: RequestPump | null = null;
  takeUpgrade: UpgradeTaker | null = null;
  /** Swaps in the head: recorded once an upstream has taken it, for nothing has left before. */
  headSwaps: readonly SwapRecord[] = [];
  /** What was found in the body so far and not swapped; recorded by `closeBody`. */
  bodyMisses: (() => readonly MissRecord[]) | null = null;
  /** Runs when the request is settled: adds what its body's swap has seen to the record, and releases what it holds. */
  closeBody: (() => void) | null = null;

  constructor(options: ForwardOptions) {
    this.#options = options;
    const { reply } = options.exchange;
    const { trail } = options;
    this.#toClient = {
      head: (head) => {
        if (this.#isFailed) return;
        trail.status = head.status;
        this.#guard(() => reply.head(this.#withMisses(head)));
      },
      data: (chunk) => {
        if (this.#isFailed) return true;
        trail.responseBytes += chunk.length;
        return this.#guardData(reply, chunk);
      },
      end: (trailers) => {
        if (this.#isFailed) return;
        this.#hasEnded = true;
        this.#guard(() => reply.end(trailers));
      },
      error: (error) => this.fail(error),
    };
    this.#sink = this.#toClient;
    reply.onDrain = () => {
      if (this.#veil === null || this.#isHeldUp) this.#upstream?.resume();
      else this.#veil.drain();
      this.#isHeldUp = false;
    };
    reply.onAbort = () => this.#abandon(options.tunnel.cutReason ?? 'client_aborted');
    reply.onFinish = () => this.#settle('forwarded', null);
  }

  get trail(): AuditTrail {
    return this.#options.trail;
  }

  /** Whether anything of the request has left the process. */
  get isHandedOver(): boolean {
    return this.#upstream !== null;
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /**
   * Aborts what is awaited on the way to the upstream. Made when somebody asks for it: most requests wait for nothing,
   * and a controller that is aborted costs several microseconds, most of it the stack of its reason.
   */
  get signal(): AbortSignal {
    if (this.#abortion === null) {
      this.#abortion = new AbortController();
      if (this.#isSettled) this.#abortion.abort(SETTLED);
    }
    return this.#abortion.signal;
  }

  /** What the upstream side is told of the request. */
  upstreamOptions(clientVersion: HttpVersion, responseTimeoutMs: number): UpstreamRequestOptions {
    return new UpstreamOptions(this, clientVersion, responseTimeoutMs);
  }

  /** A miss that is found later than this is in the audit alone. */
  #withMisses(head: ResponseHead): ResponseHead {
    const { misses } = this.#options.trail;
    const inBody = this.bodyMisses?.() ?? [];
    if (misses.length === 0 && inBody.length === 0) return head;
    return { ...head, headers: withProxyStatus(head.headers, describeMisses([...misses, ...inBody])) };
  }

  /** Puts a veil between the upstream and the client. */
  veilWith(create: (downstream: ResponseSink, source: { pause(): void; resume(): void }) => ResponseVeil): void {
    const source = { pause: () => this.#upstream?.pause(), resume: () => this.#upstream?.resume() };
    this.#veil = create(this.#toClient, source);
    this.#sink = this.#veil;
  }

  /** A head that does not go through the veil by itself, veiled. */
  veilHead<T extends VeilableHead>(head: T): T {
    return this.#veil?.veilHead(head) ?? head;
  }

  /** The upstream has taken the head: the body may follow. */
  attach(upstream: UpstreamExchange): void {
    this.#upstream = upstream;
    this.#options.trail.addSwaps(this.headSwaps);
    if (this.#isSettled) upstream.abort();
    else if (this.pump === null) upstream.end();
    else this.pump.start(upstream);
  }

  information(status: number, reason: string, headers: RawHeaders): void {
    this.#guard(() => {
      const head = this.veilHead({ reason, headers: endToEndResponseHeaders(headers) });
      if (this.#options.exchange.reply.information(status, head.reason, head.headers)) return;
      this.#isHeldUp = true;
      this.#upstream?.pause();
    });
  }

  head(head: ResponseHead): void {
    const headers = endToEndResponseHeaders(head.headers);
    this.#guard(() => this.#sink.head(headers === head.headers ? head : { ...head, headers }));
  }

  /** What the client's version can't carry ends this request, and nothing else. */
  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.fail(error);
    }
  }

  /** The same for the parts of a body, of which there are many. */
  #guardData(sink: Pick<ResponseSink, 'data'>, chunk: Buffer): boolean {
    try {
      return sink.data(chunk);
    } catch (error) {
      this.fail(error);
      return true;
    }
  }

  data(chunk: Buffer): boolean {
    return this.#guardData(this.#sink, chunk);
  }

  end(trailers: RawHeaders): void {
    this.#guard(() => this.#sink.end(endToEndTrailers(trailers)));
  }

  error(error: Error): void {
    // What the veil holds back of a dead response is not sent; what has come in this turn still is.
    this.#veil?.flush();
    this.fail(error);
  }

  drain(): void {
    this.pump?.resume();
  }

  upgrade(head: ResponseHead, socket: Duplex, firstBytes: Buffer): void {
    if (this.takeUpgrade === null) socket.destroy();
    else this.takeUpgrade(head, socket, firstBytes);
  }

  /** Ends the request with an error: told to the client while that is possible, else by killing its connection. */
  fail(error: unknown): void {
    if (this.#isSettled || this.#isFailed) return;
    this.#isFailed = true;
    const { reply } = this.#options.exchange;
    const { trail, tunnel } = this.#options;
    const known = toKeyveilError(error);
    if (this.#isClientsEnd(error)) {
      this.#abandon(tunnel.cutReason ?? 'client_aborted');
      reply.error(known);
      return;
    }
    if (known.code === 'internal_error') this.#options.onUnexpected(error);
    this.#upstream?.abort();
    this.#veil?.destroy();
    const outcome = known.status < 500 || REFUSALS.has(known.code) ? 'refused' : 'failed';
    if (reply.started || this.#hasEnded) {
      reply.onAbort = null;
      reply.error(known);
      this.#settle('failed', known.code === 'upstream_protocol_error' ? 'upstream_aborted' : known.code);
      return;
    }
    const answer = answerError(known, tunnel.authority.host);
    trail.status = answer.status;
    trail.responseBytes = answer.body.length;
    reply.onFinish = () => this.#settle(outcome, known.code);
    reply.head({ ...answer, httpVersion: '1.1', body: { kind: 'length', bytes: answer.body.length } });
    reply.data(answer.body);
    reply.end([]);
    this.pump?.stop();
  }

  /** Whether the client left in the middle of its request, which its reply may learn only a moment later. */
  #isClientsEnd(error: unknown): boolean {
    const { stream } = this.#options.exchange.request;
    return error instanceof BodyCutError || (error !== null && stream !== null && error === stream.errored);
  }

  /** The connections were handed over, and both are closed. */
  complete(outcome: 'forwarded' | 'failed', reason: AuditReason | null): void {
    this.#settle(outcome, reason);
  }

  #abandon(reason: ConnectionReason): void {
    if (this.#isSettled) return;
    this.#upstream?.abort();
    this.#veil?.destroy();
    this.#settle('failed', reason);
  }

  #settle(outcome: 'forwarded' | 'refused' | 'failed', reason: AuditReason | null): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { trail, onSettled } = this.#options;
    if (this.#veil !== null) {
      // A WebSocket has recorded those of its messages already.
      trail.veils = [...trail.veils, ...this.#veil.veils()];
      if (this.#veil.impossible()) trail.note = 'veil_not_possible';
    }
    this.pump?.stop();
    this.#abortion?.abort(SETTLED);
    this.closeBody?.();
    // Whoever was reading the body has left it paused, and behind it the connection.
    discard(this.#options.exchange.request.stream);
    trail.finish(outcome, reason);
    onSettled();
  }
}
