// The open tunnels of this process: counted against the limits, watched for their session's end, and cut.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Authority } from '../model/authority.ts';
import type { ConnectionReason } from '../model/audit.ts';
import { KeyveilError } from '../model/errors.ts';
import type { SessionPolicy } from '../model/ports.ts';
import { Roster, type Seat } from '../model/roster.ts';
import type { ProxySettings } from './settings.ts';

const KEEP_ALIVE_MS = 60_000;

export interface TunnelOptions {
  readonly policy: Pick<SessionPolicy, 'sessionId' | 'tokenHash'>;
  readonly authority: Authority;
  readonly socket: Duplex;
  readonly nowMs: number;
}

/** One client connection with an admitted destination: a CONNECT tunnel, or one that plain requests come by. */
export class Tunnel {
  readonly sessionId: string;
  authority: Authority;
  /** SHA-256 of the token that it was opened with: after a rotation of the token it is cut. */
  tokenHash: Buffer;
  /** `https` once TLS was terminated here. */
  scheme: 'https' | 'http' = 'http';
  verifiedHost: string | null = null;
  /** Requests under way; the idle time-out runs while there is none. */
  openRequests = 0;
  /** When the last request ended, or the tunnel opened; milliseconds of the clock. */
  idleSince: number;
  /** Tells whether a head is arriving; null where nothing can be told of it. */
  intake: { readonly headSince: number | null } | null = null;
  /** True where one connection carries many requests at once. */
  isMultiplexed = false;
  /** True for bytes relayed unread: neither idle nor head times apply. */
  isRelay = false;
  /** Its place in the registry. */
  seat: Seat<Tunnel> | null = null;
  /** Why it was closed by us, for the audit rows of what was open on it. */
  cutReason: ConnectionReason | null = null;
  readonly #socket: Duplex;
  #isPeerWatched = false;
  #last: Promise<void> | null = null;

  constructor(options: TunnelOptions) {
    this.sessionId = options.policy.sessionId;
    this.tokenHash = options.policy.tokenHash;
    this.authority = options.authority;
    this.#socket = options.socket;
    this.idleSince = options.nowMs;
  }

  /** The next plain request of the connection, which may name another host. */
  moveTo(next: Pick<TunnelOptions, 'policy' | 'authority' | 'nowMs'>): void {
    this.tokenHash = next.policy.tokenHash;
    this.authority = next.authority;
    // What was true of the host before tells nothing of this one.
    this.verifiedHost = null;
    this.idleSince = next.nowMs;
  }

  /** Has the system ask whether the peer is still there: one that has vanished without a word would hold it for ever. */
  watchPeer(): void {
    if (this.#isPeerWatched) return;
    this.#isPeerWatched = true;
    (this.#socket as Partial<Socket>).setKeepAlive?.(true, KEEP_ALIVE_MS);
  }

  /** Bytes that the client has sent on the connection. */
  get bytesRead(): number {
    return (this.#socket as { bytesRead?: number }).bytesRead ?? 0;
  }

  /** Closes the connection at once, so that what was under way can't be taken for complete. */
  cut(reason: ConnectionReason): void {
    this.cutReason ??= reason;
    const socket = this.#socket as Duplex & { resetAndDestroy?: () => void };
    if (socket.resetAndDestroy === undefined) socket.destroy();
    else socket.resetAndDestroy();
  }

  /**
   * Runs pipelined requests one after the other (RFC 9112 section 9.3.2): undefined when nothing is under way, so
   * that the usual request waits for nothing.
   */
  previous(): Promise<void> | undefined {
    return this.#last ?? undefined;
  }

  /** Says that a request is under way; the returned function says that it has ended. */
  begin(): (nowMs: number) => void {
    this.openRequests += 1;
    let settle: () => void = () => undefined;
    const done = this.isMultiplexed ? null : new Promise<void>((resolve) => (settle = resolve));
    this.#last = done;
    return (nowMs) => {
      this.openRequests -= 1;
      this.idleSince = nowMs;
      if (this.#last === done) this.#last = null;
      settle();
    };
  }
}

/** The tunnels of this process by session. */
export class TunnelRegistry {
  readonly #bySession = new Map<string, Roster<Tunnel>>();
  readonly #settings: Pick<ProxySettings, 'tunnelsMax' | 'tunnelsPerSessionMax'>;
  #count = 0;

  constructor(settings: Pick<ProxySettings, 'tunnelsMax' | 'tunnelsPerSessionMax'>) {
    this.#settings = settings;
  }

  get count(): number {
    return this.#count;
  }

  /** Throws `overloaded` at the limit of all tunnels or of the session's. */
  add(tunnel: Tunnel): void {
    let own = this.#bySession.get(tunnel.sessionId);
    if (own === undefined) this.#bySession.set(tunnel.sessionId, (own = new Roster()));
    if (this.#count >= this.#settings.tunnelsMax || own.size >= this.#settings.tunnelsPerSessionMax) {
      throw new KeyveilError('overloaded', 'Too many tunnels are open. Close some, or try again in a moment.');
    }
    tunnel.seat = own.add(tunnel);
    this.#count += 1;
  }

  remove(tunnel: Tunnel): void {
    if (tunnel.seat !== null && this.#bySession.get(tunnel.sessionId)?.remove(tunnel.seat) === true) this.#count -= 1;
  }

  /** Sessions that have tunnels; those that have none any more are forgotten. */
  sessionIds(): string[] {
    for (const [sessionId, own] of this.#bySession) if (own.size === 0) this.#bySession.delete(sessionId);
    return [...this.#bySession.keys()];
  }

  of(sessionId: string): Tunnel[] {
    return this.#bySession.get(sessionId)?.items() ?? [];
  }

  all(): Tunnel[] {
    return [...this.#bySession.values()].flatMap((own) => own.items());
  }
}
