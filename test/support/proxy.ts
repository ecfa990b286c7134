// The data plane alone, over real sockets, with policies that a test makes by hand.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { createLeafCache } from '../../ca/leaf-cache.ts';
import { openRoot } from '../../ca/root.ts';
import type { AuditEvent } from '../../model/audit.ts';
import { createId } from '../../model/ids.ts';
import { VEIL_IDLE_DEFAULT_MS } from '../../model/limits.ts';
import { createHostSet } from '../../model/host-pattern.ts';
import type { LogFields, ProxyMetrics, SessionPolicy } from '../../model/ports.ts';
import { createProxy, type Proxy } from '../../proxy/listener.ts';
import type { ProxySettings } from '../../proxy/settings.ts';
import { createBodyResources, type BodyResources } from '../../proxy/swap/body-resources.ts';
import { createUpstream, type UpstreamOptions } from '../../proxy/upstream/upstream.ts';
import { basicLogin, readHead } from './daemon.ts';
import { createMemorySealedItems } from './memory-sealed-items.ts';
import type { TestAuthority } from './test-authority.ts';

const TOKEN = 'test-token';

const TOKEN_HASH = createHash('sha256').update(TOKEN).digest();
const SESSION_ID = createId('session', 0);

// Whatever policy a test hands in is that of the one session whose login this support uses.
function adopt(policy: SessionPolicy): SessionPolicy {
  return { ...policy, sessionId: SESSION_ID, tokenHash: TOKEN_HASH };
}

export interface TestProxy {
  readonly proxy: Proxy;
  readonly port: number;
  readonly caPem: string;
  /** Value of `Proxy-Authorization` of the one session. */
  readonly login: string;
  readonly events: AuditEvent[];
  readonly log: string[];
  readonly bodies: BodyResources;
  readonly spoolDirectory: string;
  /** What is open now, as the metrics have it. */
  readonly gauges: { tunnels: number; streams: number };
  /** Resolves with the next audit event. */
  nextEvent(): Promise<AuditEvent>;
  /** What the next reads give. */
  setPolicy(policy: SessionPolicy): void;
  connect(authority: string): Promise<{ socket: Socket; head: string }>;
  tunnel(authority: string, options?: ConnectionOptions): Promise<TLSSocket>;
  close(): Promise<void>;
}

export interface TestProxyOptions {
  readonly authority: TestAuthority;
  /** `host:port` to a port of 127.0.0.1. */
  readonly overrides: Readonly<Record<string, number>>;
  readonly policy: SessionPolicy;
  readonly settings?: Partial<ProxySettings>;
  readonly upstream?: Partial<UpstreamOptions>;
  readonly bodies?: { readonly bufferBytes?: number; readonly spoolBytes?: number; readonly growthBytes?: number };
}

const MIB = 1024 * 1024;
const SETTINGS: ProxySettings = {
  interceptionOn: true,
  veilOn: true,
  veilIdleMs: VEIL_IDLE_DEFAULT_MS,
  passthroughHosts: createHostSet([]),
  allowedPorts: null,
  bodyBufferBytes: MIB,
  responseTimeoutMs: 10_000,
  tunnelIdleTimeoutMs: 60_000,
  requestHeadersTimeoutMs: 30_000,
  handshakeTimeoutMs: 5000,
  firstBytesTimeoutMs: 5000,
  connectRequestTimeoutMs: 5000,
  tunnelsPerSessionMax: 4096,
  tunnelsMax: 10_000,
  unauthenticatedSocketsMax: 1024,
  sessionRequestsMax: 4096,
  sessionRequestsPerSecond: null,
  tls: null,
};

function createGauges(gauges: TestProxy['gauges']): ProxyMetrics {
  return {
    request: () => undefined,
    swap: () => undefined,
    miss: () => undefined,
    veil: () => undefined,
    tunnels: (delta) => void (gauges.tunnels += delta),
    streams: (delta) => void (gauges.streams += delta),
    overhead: () => undefined,
    unauthenticated: () => undefined,
  };
}

/** Starts the data plane on a free port. */
export async function startTestProxy(options: TestProxyOptions): Promise<TestProxy> {
  const clock = { now: () => Date.now() };
  const directory = mkdtempSync(join(tmpdir(), 'kvp-'));
  const log: string[] = [];
  const note = (fields: LogFields, message: string): void => {
    log.push(`${message} ${fields.error instanceof Error ? String(fields.error.stack) : ''}`);
  };
  const root = await openRoot(createMemorySealedItems(), { clock, hostName: 'test' });
  const gauges = { tunnels: 0, streams: 0 };
  const events: AuditEvent[] = [];
  const waiting: ((event: AuditEvent) => void)[] = [];
  let policy = adopt(options.policy);
  let version = 0;
  const bodyOptions = { bufferBytes: MIB, spoolBytes: 4096 * MIB, growthBytes: 16 * MIB, ...options.bodies };
  const spoolDirectory = join(directory, 'spool');
  const bodies = createBodyResources({ spoolDirectory, memoryBytes: 64 * MIB, ...bodyOptions });
  const upstream = createUpstream({
    allowedCidrs: [],
    ownListeners: () => [],
    extraCaPem: options.authority.caPem,
    overrides: new Map(Object.entries(options.overrides).map(([from, port]) => [from, { host: '127.0.0.1', port }])),
    ...options.upstream,
  });
  const proxy = createProxy({
    clock,
    logger: { debug: note, info: note, warn: note, error: note },
    metrics: createGauges(gauges),
    audit: {
      record(event) {
        events.push(event);
        waiting.shift()?.(event);
      },
      ready: () => undefined,
      depth: () => 0,
    },
    policies: {
      read: (id) => Promise.resolve(id === policy.sessionId ? policy : null),
      findSessionId: () => Promise.resolve(policy.sessionId),
      together: (work) => work(),
      version: () => version,
      sweep: () => undefined,
      close: () => Promise.resolve(),
    },
    leaves: createLeafCache(root, { clock }),
    gate: null,
    denials: null,
    upstream,
    bodies,
    settings: { ...SETTINGS, ...options.settings },
  });
  const { port } = await proxy.listen({ host: '127.0.0.1', port: 0 });
  const caPem = root.certificates().join('\n');
  const login = basicLogin(SESSION_ID, TOKEN);
  const connect: TestProxy['connect'] = async (target) => {
    const socket = connectTcp(port, '127.0.0.1');
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\nProxy-Authorization: ${login}\r\n\r\n`, 'latin1');
    return { socket, head: await readHead(socket) };
  };
  return {
    proxy,
    port,
    caPem,
    login,
    events,
    log,
    bodies,
    spoolDirectory,
    gauges,
    nextEvent: () => new Promise((resolve) => waiting.push(resolve)),
    setPolicy(next) {
      policy = adopt(next);
      version += 1;
    },
    connect,
    async tunnel(target, tlsOptions = {}) {
      const { socket, head } = await connect(target);
      if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
      const servername = target.replace(/:\d+$/, '');
      const tls = connectTls({ socket, servername, ca: caPem, ALPNProtocols: ['http/1.1'], ...tlsOptions });
      tls.on('error', () => undefined);
      await new Promise<void>((resolve, reject) => {
        tls.once('secureConnect', resolve);
        tls.once('close', () => reject(new Error('The TLS handshake failed.')));
      });
      return tls;
    },
    async close() {
      await proxy.close();
      await upstream.close();
      await bodies.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
