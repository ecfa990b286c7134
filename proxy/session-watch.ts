// Watches the database for ended sessions and narrowed environments, and the clock for idle tunnels, and cuts them.
import { SESSION_WATCH_INTERVAL_MS } from '../model/limits.ts';
import type { Clock, Logger, PolicyReader, SessionPolicy } from '../model/ports.ts';
import type { Upstream } from './exchange.ts';
import type { ProxySettings } from './settings.ts';
import type { Tunnel, TunnelRegistry } from './tunnels.ts';
import { sweepVeils } from './veil/compile.ts';

export interface SessionWatchOptions {
  readonly policies: PolicyReader;
  readonly registry: TunnelRegistry;
  readonly upstream: Pick<Upstream, 'closeSession' | 'keepAdmitted'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly settings: ProxySettings;
}

/** Cuts what may no longer be open, within a fraction of a second of the commit that says so, in every process. */
export class SessionWatch {
  readonly #options: SessionWatchOptions;
  readonly #timer: NodeJS.Timeout;
  #version: number;
  #running: Promise<void> | null = null;
  #failing = false;

  constructor(options: SessionWatchOptions) {
    this.#options = options;
    this.#version = options.policies.version();
    this.#timer = setInterval(() => this.tick(), SESSION_WATCH_INTERVAL_MS);
    this.#timer.unref();
  }

  /** One look; it never overlaps with itself. */
  tick(): void {
    this.#cutIdle();
    this.#running ??= this.#look().finally(() => (this.#running = null));
  }

  /** Looks at once, and resolves when all that had to be cut is cut. */
  async settle(): Promise<void> {
    await this.#running;
    await this.#look();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }

  async #look(): Promise<void> {
    const { policies, registry, logger, clock } = this.#options;
    try {
      const version = policies.version();
      const hasChanged = version !== this.#version;
      this.#version = version;
      for (const sessionId of registry.sessionIds()) await this.#lookAt(sessionId, hasChanged);
      policies.sweep();
      sweepVeils(clock.now());
      this.#failing = false;
    } catch (error) {
      // Requests are refused while the store can't be read; open tunnels wait until it can be read again.
      if (!this.#failing) logger.error({ error }, 'The store could not be read to look for ended sessions.');
      this.#failing = true;
    }
  }

  async #lookAt(sessionId: string, hasChanged: boolean): Promise<void> {
    const { policies, registry, upstream } = this.#options;
    const policy = await policies.read(sessionId);
    const isOver = policy === null || policy.status !== 'active';
    if (isOver) upstream.closeSession(sessionId);
    else if (!hasChanged) return;
    else upstream.keepAdmitted(sessionId, policy.allowedPrivateCidrs);
    for (const tunnel of registry.of(sessionId)) {
      if (isOver || !mayStay(policy, tunnel)) tunnel.cut('session_ended');
    }
  }

  #cutIdle(): void {
    const { registry, clock, settings } = this.#options;
    const now = clock.now();
    for (const tunnel of registry.all()) {
      // Here, and not when it opens: most connections are gone before.
      tunnel.watchPeer();
      if (tunnel.isRelay || tunnel.openRequests > 0) continue;
      const headSince = tunnel.intake?.headSince ?? null;
      // A head may have begun behind the request before.
      const since = headSince === null ? tunnel.idleSince : Math.max(headSince, tunnel.idleSince);
      const limitMs = headSince === null ? settings.tunnelIdleTimeoutMs : settings.requestHeadersTimeoutMs;
      // A clock that was set back must not keep a connection for longer.
      if (Math.abs(now - since) > limitMs) tunnel.cut('idle_timeout');
    }
  }
}

function mayStay(policy: SessionPolicy, tunnel: Tunnel): boolean {
  return tunnel.tokenHash.equals(policy.tokenHash) && policy.admission.covers(tunnel.authority.host);
}
