// What one request gets, from top to bottom: destination, policy, swap, upstream, veil, client, audit.
import { performance } from 'node:perf_hooks';
import type { Readable } from 'node:stream';
import { openRequestTrail } from './audit-trail.ts';
import type { ClientExchange, ClientRequest } from './client-exchange.ts';
import { requireSameDestination } from './destination-check.ts';
import { noHeaders, withoutHeaders, type Destination, type RawHeaders, type UpstreamRequest } from './exchange.ts';
import { Forward } from './forward.ts';
import { endToEndTrailers } from './hop-by-hop.ts';
import { swapHead, withHost, type Rules } from './request-head.ts';
import { createResponseMemory } from './response-memory.ts';
import { RequestPump } from './request-pump.ts';
import { readRules, requireOpen } from './request-rules.ts';
import type { ProxyPorts } from './settings.ts';
import { prepareBody } from './swap/body.ts';
import { swapHeaders, type HeaderSwap } from './swap/headers.ts';
import { createBodyObserver } from './swap/observer.ts';
import { SessionLimits } from './session-limits.ts';
import type { SwapPlan } from './swap/plan.ts';
import { atTurnEnd } from './turn.ts';
import type { Tunnel } from './tunnels.ts';
import { createResponseVeil } from './veil/response-veil.ts';
import { switchToWebSocket } from './websocket-switch.ts';
import { upgradeRequestHeaders, type UpgradeClient } from './websocket.ts';

const EXPECT = new Set(['expect']);

/** State of the daemon that every request regards. */
export interface PipelineState {
  isDraining: boolean;
}

/** A request that is ready to go upstream. */
interface Outgoing {
  readonly request: UpstreamRequest;
  readonly pump: RequestPump | null;
}

/** One request on its way through. */
interface Run {
  readonly tunnel: Tunnel;
  readonly exchange: ClientExchange;
  readonly forward: Forward;
  readonly startedAt: number;
  readonly upgrade: UpgradeClient | null;
  /** Whether it counts against the session's limits. */
  isCounted: boolean;
}

/** What the steps after the swap of the head go on with. */
interface Swapped {
  readonly target: string;
  readonly swapped: HeaderSwap;
  readonly rules: Rules;
  readonly forward: Forward;
  readonly destination: Destination;
}

export class Pipeline {
  readonly #ports: ProxyPorts;
  readonly state: PipelineState = { isDraining: false };
  readonly #limits: SessionLimits;
  /** Requests of this turn. */
  #due: Run[] = [];
  readonly #startDue = (): void => {
    const due = this.#due;
    this.#due = [];
    this.#ports.policies.together(() => {
      for (const run of due) this.#start(run);
    });
  };

  constructor(ports: ProxyPorts) {
    this.#ports = ports;
    const { sessionRequestsMax, sessionRequestsPerSecond } = ports.settings;
    this.#limits = new SessionLimits({
      clock: ports.clock,
      requestsInFlightMax: sessionRequestsMax,
      requestsPerSecondMax: sessionRequestsPerSecond,
    });
  }

  /**
   * Handles one request of a tunnel. Every end is an answer or a dead connection, and one audit row. It is begun at the
   * end of this turn of the event loop, with all that have arrived in it: the database is looked at once for them, after
   * the last has come.
   */
  run(tunnel: Tunnel, exchange: ClientExchange, upgrade: UpgradeClient | null = null): void {
    const { clock, metrics, logger } = this.#ports;
    const startedAt = performance.now();
    const before = tunnel.previous();
    const done = tunnel.begin();
    metrics.streams(1);
    const forward = new Forward({
      exchange,
      trail: openRequestTrail(this.#ports, tunnel, exchange.request),
      tunnel,
      onSettled: () => {
        if (run.isCounted) this.#limits.leave(tunnel.sessionId);
        metrics.streams(-1);
        done(clock.now());
      },
      onUnexpected: (error) => logger.error({ error, sessionId: tunnel.sessionId }, 'A request failed inside Keyveil.'),
    });
    const run: Run = { tunnel, exchange, forward, startedAt, upgrade, isCounted: false };
    if (before === undefined) this.#enqueue(run);
    else void before.then(() => this.#enqueue(run));
  }

  #enqueue(run: Run): void {
    if (this.#due.length === 0) atTurnEnd(this.#startDue);
    this.#due.push(run);
  }

  #start(run: Run): void {
    const { forward, tunnel, exchange } = run;
    if (forward.isSettled) return;
    try {
      this.#limits.enter(tunnel.sessionId);
      run.isCounted = true;
      const target = requireSameDestination(exchange.request, tunnel);
      const rules = this.#readRules(tunnel);
      // Most requests wait for nothing on their way, and go it in one step.
      const going =
        rules instanceof Promise ? rules.then((late) => this.#send(run, target, late)) : this.#send(run, target, rules);
      going?.catch((error: unknown) => forward.fail(error));
    } catch (error) {
      forward.fail(error);
    }
  }

  /** Undefined when the request is on its way already. */
  #send(run: Run, target: string, rules: Rules): Promise<void> | undefined {
    const { forward, tunnel, upgrade } = run;
    const { request } = run.exchange;
    const destination: Destination = {
      sessionId: tunnel.sessionId,
      scheme: tunnel.scheme,
      authority: tunnel.authority,
      allowedPrivateCidrs: rules.policy.allowedPrivateCidrs,
    };
    const swapped = swapHead(request, { target, rules, trail: forward.trail });
    forward.headSwaps = swapped.swaps;
    this.#drawVeil(request, rules, { forward, swapped, sessionId: tunnel.sessionId });
    const step: Swapped = { target, swapped, rules, forward, destination };
    const outgoing =
      upgrade === null
        ? this.#prepare(tunnel, run.exchange, step)
        : this.#prepareUpgrade(tunnel, run.exchange, { ...step, upgrade });
    if (outgoing instanceof Promise) return outgoing.then((late) => this.#handOver(run, destination, late));
    return this.#handOver(run, destination, outgoing);
  }

  #handOver(run: Run, destination: Destination, outgoing: Outgoing): Promise<void> | undefined {
    const { forward, exchange } = run;
    if (forward.isSettled) return undefined;
    forward.pump = outgoing.pump;
    this.#ports.metrics.overhead(performance.now() - run.startedAt);
    const options = forward.upstreamOptions(exchange.request.httpVersion, this.#ports.settings.responseTimeoutMs);
    const upstream = this.#ports.upstream.request(destination, outgoing.request, options);
    if (upstream instanceof Promise) return upstream.then((late) => forward.attach(late));
    forward.attach(upstream);
    return undefined;
  }

  /** The session, environment and credentials as the database has them now. */
  #readRules(tunnel: Tunnel): Rules | Promise<Rules> {
    requireOpen(this.state);
    return readRules(this.#ports, tunnel);
  }

  #drawVeil(
    request: ClientRequest,
    rules: Rules,
    run: { forward: Forward; swapped: HeaderSwap; sessionId: string },
  ): void {
    if (rules.veil === null) return;
    const { settings } = this.#ports;
    const veil = rules.veil.withBasicTokens(run.swapped.basicTokens);
    run.forward.veilWith((downstream, source) =>
      createResponseVeil({
        veil,
        method: request.method,
        downstream,
        source,
        bufferBytes: settings.bodyBufferBytes,
        idleMs: settings.veilIdleMs,
        memory: createResponseMemory(this.#ports.bodies, run.sessionId),
      }),
    );
  }

  #prepare(tunnel: Tunnel, exchange: ClientExchange, run: Swapped): Outgoing | Promise<Outgoing> {
    const { request } = exchange;
    const { plan } = run.rules;
    const { method, body } = request;
    const stream = body.kind === 'none' ? null : request.stream;
    const headers = withHost(run.swapped.headers, tunnel);
    if (stream !== null && plan?.swapsBody === true)
      return this.#prepareSwapped(plan, exchange, { run, headers, stream });
    const pump = stream === null ? null : this.#createPump(exchange, run, stream);
    return { request: { method, target: run.target, headers, body, sensitiveNames: run.swapped.sensitiveNames }, pump };
  }

  async #prepareSwapped(
    plan: SwapPlan,
    exchange: ClientExchange,
    { run, headers, stream }: { run: Swapped; headers: RawHeaders; stream: Readable },
  ): Promise<Outgoing> {
    const { request } = exchange;
    const { method, body } = request;
    const { target } = run;
    const { sensitiveNames } = run.swapped;
    // The body is read here before the upstream may see any of it, so the client's question is answered here.
    if (request.expectsContinue) exchange.reply.information(100, 'Continue', noHeaders());
    const prepared = await prepareBody(stream, {
      plan,
      headers: withoutHeaders(headers, EXPECT),
      framing: body,
      upstreamIsHttp2: await this.#goesByHttp2(request, run.destination, run.forward.signal),
      resources: this.#ports.bodies,
      sessionId: run.destination.sessionId,
      signal: run.forward.signal,
    });
    const { forward } = run;
    forward.bodyMisses = () => prepared.misses();
    forward.closeBody = () => {
      if (forward.isHandedOver) forward.trail.addSwaps(prepared.swaps());
      forward.trail.addMisses(prepared.misses());
      prepared.dispose();
    };
    const pump = this.#createPump(exchange, run, prepared.body);
    return { request: { method, target, headers: prepared.headers, body: prepared.framing, sensitiveNames }, pump };
  }

  /** An HTTP/1.1 upstream may want a length where HTTP/2 needs none, so a long body waits for the answer. */
  async #goesByHttp2(request: ClientRequest, destination: Destination, signal: AbortSignal): Promise<boolean> {
    if (request.httpVersion !== '2') return false;
    const isLong = request.body.kind === 'length' && request.body.bytes > this.#ports.settings.bodyBufferBytes;
    return isLong ? this.#ports.upstream.speaksHttp2(destination, signal) : true;
  }

  #prepareUpgrade(tunnel: Tunnel, exchange: ClientExchange, run: Swapped & { upgrade: UpgradeClient }): Outgoing {
    const { forward, rules, swapped, target, upgrade } = run;
    const swapsMessages = rules.plan !== null && rules.plan.swapsBody;
    // A value that is short now can be rotated to one that is veiled.
    const veilsMessages = rules.veil !== null || (swapsMessages && this.#ports.settings.veilOn);
    const isRewritten = swapsMessages || veilsMessages;
    const headers = upgradeRequestHeaders(withHost(swapped.headers, tunnel), upgrade, isRewritten);
    forward.takeUpgrade = (head, upstream, firstBytes) =>
      switchToWebSocket({
        forward,
        upgrade,
        head,
        upstream,
        firstBytes,
        rules,
        currentRules: () => this.#readRules(tunnel),
        veilsMessages,
        bodies: this.#ports.bodies,
        sessionId: tunnel.sessionId,
      });
    const { method } = exchange.request;
    const { sensitiveNames } = swapped;
    const body = { kind: 'none' } as const;
    return { request: { method, target, sensitiveNames, headers, body, upgrade: 'websocket' }, pump: null };
  }

  #createPump(
    exchange: ClientExchange,
    run: { rules: Rules; forward: Forward },
    body: RequestPump['body'],
  ): RequestPump {
    const { forward } = run;
    const { plan } = run.rules;
    const { trail } = forward;
    const observer = plan?.observesBody === true ? createBodyObserver(plan, exchange.request.headers) : null;
    if (observer !== null) {
      forward.bodyMisses = () => observer.misses();
      forward.closeBody = () => trail.addMisses(observer.misses());
    }
    return new RequestPump({
      body,
      onChunk: (chunk) => {
        trail.requestBytes += chunk.length;
        observer?.push(chunk);
      },
      trailers: () => this.#swapTrailers(endToEndTrailers(exchange.request.trailers()), plan, forward),
      onError: (error) => forward.fail(error),
    });
  }

  #swapTrailers(trailers: RawHeaders, plan: SwapPlan | null, forward: Forward): RawHeaders {
    if (plan === null || trailers.length === 0) return trailers;
    const swapped = swapHeaders(trailers, plan, 'trailer');
    forward.trail.addSwaps(swapped.swaps);
    forward.trail.addMisses(swapped.misses);
    return swapped.headers;
  }
}
