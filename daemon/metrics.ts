// Prometheus metrics: plain numbers on the hot path, put into a registry only when somebody asks for them.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type * as prometheus from 'prom-client';
import type { ProxyMetrics } from '../model/ports.ts';

/** The numbers of one process, as plain data, so that worker processes can send theirs. */
export interface MetricsSnapshot {
  /** Counter name to label values (joined by a space) to count. */
  readonly counters: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly gauges: Readonly<Record<string, number>>;
  /** Count per bucket of the overhead histogram, the last one beyond all bounds; then the sum in seconds. */
  readonly overhead: { readonly buckets: readonly number[]; readonly sumSeconds: number };
}

export interface Metrics extends ProxyMetrics {
  readonly contentType: string;
  /** Adds a gauge that is read when the metrics are asked for. */
  gauge(name: string, help: string, read: () => number): void;
  /** Text of the exposition format, this process and its peers added up. */
  text(): Promise<string>;
  snapshot(): MetricsSnapshot;
  /** A session was suspended for its denials. */
  suspension(): void;
  /** Where `text` gets the snapshots of other processes from. */
  addPeers(peers: () => Promise<readonly MetricsSnapshot[]>): void;
  close(): Promise<void>;
}

export interface MetricsOptions {
  /** Snapshots of the other worker processes. */
  readonly peers?: () => Promise<readonly MetricsSnapshot[]>;
}

interface CounterDefinition {
  readonly help: string;
  readonly labels: readonly string[];
}

const COUNTERS: Readonly<Record<string, CounterDefinition>> = {
  keyveil_requests_total: { help: 'Proxied requests by outcome.', labels: ['outcome'] },
  keyveil_refusals_total: { help: 'Refused requests by reason.', labels: ['reason'] },
  keyveil_failures_total: { help: 'Failed requests by reason.', labels: ['reason'] },
  keyveil_swaps_total: { help: 'Placeholders that were swapped, by location.', labels: ['location'] },
  keyveil_swap_misses_total: { help: 'Placeholders that were seen and not swapped.', labels: ['location', 'reason'] },
  keyveil_veils_total: { help: 'Secret values that were replaced in responses.', labels: [] },
  keyveil_sessions_suspended_total: { help: 'Sessions that were suspended after too many refusals.', labels: [] },
  keyveil_unauthenticated_total: { help: 'CONNECTs without a valid session.', labels: [] },
};

const OVERHEAD_NAME = 'keyveil_request_overhead_seconds';
const OVERHEAD_BOUNDS_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1,
] as const;
const EVENT_LOOP_DELAY_NAME = 'nodejs_eventloop_delay_p99_seconds';
// Reasons are words of ours; the bound only keeps a mistake elsewhere from making series without end.
const SERIES_PER_COUNTER_MAX = 200;

type Table = Map<string, number>;

function add(table: Table, key: string, count: number): void {
  const before = table.get(key);
  if (before === undefined && table.size >= SERIES_PER_COUNTER_MAX) return;
  table.set(key, (before ?? 0) + count);
}

function createTables(): Record<string, Table> {
  return Object.fromEntries(
    Object.entries(COUNTERS).map(([name, { labels }]) => [name, new Map(labels.length === 0 ? [['', 0]] : [])]),
  );
}

// Delays of several processes do not add up: the worst one counts.
function joinGauges(name: string, gauges: Table, value: number): number {
  const before = gauges.get(name) ?? 0;
  return name === EVENT_LOOP_DELAY_NAME ? Math.max(before, value) : before + value;
}

function sumSnapshots(snapshots: readonly MetricsSnapshot[]): MetricsSnapshot {
  const counters = createTables();
  const gauges: Table = new Map();
  const buckets = new Array<number>(OVERHEAD_BOUNDS_SECONDS.length + 1).fill(0);
  let sumSeconds = 0;
  for (const snapshot of snapshots) {
    for (const [name, table] of Object.entries(counters)) {
      for (const [key, count] of Object.entries(snapshot.counters[name] ?? {})) add(table, key, count);
    }
    for (const [name, value] of Object.entries(snapshot.gauges)) gauges.set(name, joinGauges(name, gauges, value));
    for (const [index, count] of snapshot.overhead.buckets.entries()) buckets[index] = (buckets[index] ?? 0) + count;
    sumSeconds += snapshot.overhead.sumSeconds;
  }
  return {
    counters: Object.fromEntries(Object.entries(counters).map(([name, table]) => [name, Object.fromEntries(table)])),
    gauges: Object.fromEntries(gauges),
    overhead: { buckets, sumSeconds },
  };
}

function renderCounters(
  snapshot: MetricsSnapshot,
  registry: prometheus.Registry,
  Counter: typeof prometheus.Counter,
): void {
  for (const [name, { help, labels }] of Object.entries(COUNTERS)) {
    const counter = new Counter({ name, help, labelNames: [...labels], registers: [registry] });
    for (const [key, count] of Object.entries(snapshot.counters[name] ?? {})) {
      const values = labels.length === 0 ? [] : key.split(' ');
      counter.inc(Object.fromEntries(labels.map((label, index) => [label, values[index] ?? ''])), count);
    }
  }
}

// Written by hand: a registry's histogram can only be observed, one value at a time.
function renderOverhead({ buckets, sumSeconds }: MetricsSnapshot['overhead']): string {
  const lines = [
    `# HELP ${OVERHEAD_NAME} Time inside Keyveil per request, without the upstream.`,
    `# TYPE ${OVERHEAD_NAME} histogram`,
  ];
  let count = 0;
  for (const [index, inBucket] of buckets.entries()) {
    count += inBucket;
    lines.push(`${OVERHEAD_NAME}_bucket{le="${OVERHEAD_BOUNDS_SECONDS[index] ?? '+Inf'}"} ${count}`);
  }
  lines.push(`${OVERHEAD_NAME}_sum ${sumSeconds}`, `${OVERHEAD_NAME}_count ${count}`);
  return lines.join('\n') + '\n';
}

function bucketOf(seconds: number): number {
  let index = 0;
  while (index < OVERHEAD_BOUNDS_SECONDS.length && seconds > (OVERHEAD_BOUNDS_SECONDS[index] as number)) index += 1;
  return index;
}

/** Prometheus' text format. */
const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Creates the metrics of this process. */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  const tables = createTables();
  const count = (name: string, key: string, times: number): void => add(tables[name] as Table, key, times);
  const buckets = new Array<number>(OVERHEAD_BOUNDS_SECONDS.length + 1).fill(0);
  let sumSeconds = 0;
  let { peers } = options;
  const active = { tunnels: 0, streams: 0 };
  const gauges = new Map<string, { help: string; read: () => number }>();
  const eventLoop = monitorEventLoopDelay({ resolution: 20 });
  eventLoop.enable();
  const metrics: Metrics = {
    contentType: CONTENT_TYPE,
    request(outcome, reason) {
      count('keyveil_requests_total', outcome, 1);
      if (outcome === 'refused') count('keyveil_refusals_total', reason ?? 'none', 1);
      else if (outcome === 'failed') count('keyveil_failures_total', reason ?? 'none', 1);
    },
    swap: (location, times) => count('keyveil_swaps_total', location, times),
    miss: (location, reason) => count('keyveil_swap_misses_total', `${location} ${reason}`, 1),
    veil: (times) => count('keyveil_veils_total', '', times),
    tunnels: (delta) => void (active.tunnels += delta),
    streams: (delta) => void (active.streams += delta),
    unauthenticated: () => count('keyveil_unauthenticated_total', '', 1),
    overhead(ms) {
      const seconds = Math.max(0, ms) / 1000;
      const index = bucketOf(seconds);
      buckets[index] = (buckets[index] ?? 0) + 1;
      sumSeconds += seconds;
    },
    gauge: (name, help, read) => void gauges.set(name, { help, read }),
    suspension: () => count('keyveil_sessions_suspended_total', '', 1),
    addPeers: (source) => void (peers = source),
    snapshot: () => ({
      counters: Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, Object.fromEntries(table)])),
      gauges: Object.fromEntries([...gauges].map(([name, { read }]) => [name, read()])),
      overhead: { buckets: [...buckets], sumSeconds },
    }),
    async text() {
      const total = sumSnapshots([metrics.snapshot(), ...((await peers?.()) ?? [])]);
      // Loaded here: most daemons are never asked, and it is a tenth of all that a start would load.
      const { Counter, Gauge, Registry } = await import('prom-client');
      const registry = new Registry();
      renderCounters(total, registry, Counter);
      for (const [name, value] of Object.entries(total.gauges)) {
        new Gauge({ name, help: gauges.get(name)?.help ?? name, registers: [registry] }).set(value);
      }
      return (await registry.metrics()) + '\n' + renderOverhead(total.overhead);
    },
    close() {
      eventLoop.disable();
      return Promise.resolve();
    },
  };
  metrics.gauge('keyveil_tunnels', 'Tunnels that are open.', () => active.tunnels);
  metrics.gauge('keyveil_streams', 'Requests that are under way.', () => active.streams);
  metrics.gauge('process_resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss());
  metrics.gauge('process_cpu_user_seconds', 'User CPU time.', () => process.cpuUsage().user / 1e6);
  metrics.gauge('process_cpu_system_seconds', 'System CPU time.', () => process.cpuUsage().system / 1e6);
  metrics.gauge(
    EVENT_LOOP_DELAY_NAME,
    'Delay of the event loop, 99th percentile since the start.',
    () => eventLoop.percentile(99) / 1e9,
  );
  return metrics;
}
