// What one request gets, from top to bottom: destination, policy, swap, upstream, veil, client, audit.
import { performance } from 'node:perf_hooks';
import { KeyveilError } from '../model/errors.ts';
import { requireAdmitted, requireInterception, sessionInactive } from './admission.ts';
import { AuditTrail } from './audit-trail.ts';
import type { ClientExchange, ClientRequest } from './client-exchange.ts';
import { requireSameDestination } from './destination-check.ts';
import { regardEmergencyStop } from './emergency-stop.ts';
import { noHeaders, withoutHeaders, type Destination, type RawHeaders, type UpstreamRequest } from './exchange.ts';
import { Forward } from './forward.ts';
import { endToEndTrailers } from './hop-by-hop.ts';
import { swapHead, withHost, type Rules } from './request-head.ts';
import { createResponseMemory } from './response-memory.ts';
import { RequestPump } from './request-pump.ts';
import type { ProxyPorts } from './settings.ts';
import { prepareBody } from './swap/body.ts';
import { swapHeaders, type HeaderSwap } from './swap/headers.ts';
import { createBodyObserver } from './swap/observer.ts';
import { SessionLimits } from './session-limits.ts';
import { compileSwapPlan, type SwapPlan } from './swap/plan.ts';
import type { Tunnel } from './tunnels.ts';
import { compileVeil } from './veil/compile.ts';
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
  readonly forward: Forward;
  readonly startedAt: number;
  readonly upgrade: UpgradeClient | null;
}

/** What the steps after the swap of the head go on with. */
interface Swapped {
  readonly target: string;
  readonly swapped: HeaderSwap;
  readonly rules: Rules;
  readonly forward: Forward;
}

export class Pipeline {
  readonly #ports: ProxyPorts;
  readonly state: PipelineState = { isDraining: false };
  readonly #limits: SessionLimits;

  constructor(ports: ProxyPorts) {
    this.#ports = ports;
    const { sessionRequestsMax, sessionRequestsPerSecond } = ports.settings;
    this.#limits = new SessionLimits({
      clock: ports.clock,
      requestsInFlightMax: sessionRequestsMax,
      requestsPerSecondMax: sessionRequestsPerSecond,
    });
  }

  /** Handles one request of a tunnel. Never rejects: every end is an answer or a dead connection, and one audit row. */
  async run(tunnel: Tunnel, exchange: ClientExchange, upgrade: UpgradeClient | null = null): Promise<void> {
    const { clock, metrics, logger } = this.#ports;
    const startedAt = performance.now();
    const before = tunnel.previous();
    const done = tunnel.begin();
    metrics.streams(1);
    let isCounted = false;
    const forward = new Forward({
      exchange,
      trail: this.#openTrail(tunnel, exchange.request),
      tunnel,
      onSettled: () => {
        if (isCounted) this.#limits.leave(tunnel.sessionId);
        metrics.streams(-1);
        done(clock.now());
      },
      onUnexpected: (error) => logger.error({ error, sessionId: tunnel.sessionId }, 'A request failed inside Keyveil.'),
    });
    try {
      if (before !== undefined) await before;
      if (forward.isSettled) return;
      this.#limits.enter(tunnel.sessionId);
      isCounted = true;
      await this.#forward(tunnel, exchange, { forward, startedAt, upgrade });
    } catch (error) {
      forward.fail(error);
    }
  }

  #openTrail(tunnel: Tunnel, request: ClientRequest): AuditTrail {
    const { authority, sessionId, scheme } = tunnel;
    const { method, target, httpVersion } = request;
    return new AuditTrail(
      { sessionId, method, scheme, host: authority.host, port: authority.port, target, httpVersion },
      this.#ports,
    );
  }

  async #forward(tunnel: Tunnel, exchange: ClientExchange, run: Run): Promise<void> {
    const { forward, upgrade } = run;
    const { request } = exchange;
    const target = requireSameDestination(request, tunnel);
    const rules = await this.#readRules(tunnel);
    const destination: Destination = {
      sessionId: tunnel.sessionId,
      scheme: tunnel.scheme,
      authority: tunnel.authority,
      allowedPrivateCidrs: rules.policy.allowedPrivateCidrs,
    };
    const swapped = swapHead(request, { target, rules, trail: forward.trail });
    forward.headSwaps = swapped.swaps;
    this.#drawVeil(request, rules, { forward, swapped, sessionId: tunnel.sessionId });
    const outgoing =
      upgrade === null
        ? await this.#prepare(tunnel, exchange, { target, swapped, rules, forward, destination })
        : this.#prepareUpgrade(tunnel, exchange, { target, swapped, rules, forward, upgrade });
    if (forward.isSettled) return;
    forward.pump = outgoing.pump;
    this.#ports.metrics.overhead(performance.now() - run.startedAt);
    const options = forward.upstreamOptions(request.httpVersion, this.#ports.settings.responseTimeoutMs);
    const upstream = this.#ports.upstream.request(destination, outgoing.request, options);
    forward.attach(upstream instanceof Promise ? await upstream : upstream);
  }

  /** The session, environment and credentials as the database has them now. */
  async #readRules(tunnel: Tunnel): Promise<Rules> {
    const { policies, audit, settings } = this.#ports;
    if (this.state.isDraining) {
      throw new KeyveilError('shutting_down', 'Keyveil is shutting down. Try again in a moment.');
    }
    const room = audit.ready(tunnel.sessionId);
    if (room !== undefined) await room;
    const current = await policies.read(tunnel.sessionId);
    if (current === null) throw sessionInactive('archived');
    if (current.status !== 'active') throw sessionInactive(current.status);
    requireAdmitted(current, tunnel.authority, settings);
    requireInterception(current, settings);
    const policy = regardEmergencyStop(current);
    const { host } = tunnel.authority;
    const plan = compileSwapPlan(policy, { host, scheme: tunnel.scheme });
    const isVeiled = settings.veilOn && tunnel.scheme === 'https';
    return { policy, plan, veil: isVeiled && plan !== null ? compileVeil(current, host) : null };
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

  async #prepare(
    tunnel: Tunnel,
    exchange: ClientExchange,
    run: Swapped & { destination: Destination },
  ): Promise<Outgoing> {
    const { request } = exchange;
    const { plan } = run.rules;
    const { target } = run;
    const { method, body } = request;
    const { sensitiveNames } = run.swapped;
    const headers = withHost(run.swapped.headers, tunnel);
    if (body.kind === 'none' || plan === null || !plan.swapsBody) {
      const pump = body.kind === 'none' ? null : this.#createPump(exchange, run, request.stream);
      return { request: { method, target, headers, body, sensitiveNames }, pump };
    }
    // The body is read here before the upstream may see any of it, so the client's question is answered here.
    if (request.expectsContinue) exchange.reply.information(100, 'Continue', noHeaders());
    const prepared = await prepareBody(request.stream, {
      plan,
      headers: withoutHeaders(headers, EXPECT),
      framing: body,
      upstreamIsHttp2: await this.#goesByHttp2(request, run.destination, run.forward.signal),
      resources: this.#ports.bodies,
      sessionId: tunnel.sessionId,
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
