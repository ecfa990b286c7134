// Metrics: what is counted, how it is told, and that workers add up.
import { test } from 'tap';
import { createMetrics } from '../../daemon/metrics.ts';

function valuesOf(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

void test('everything of the data plane is counted, and gauges are read when asked', async (t) => {
  const metrics = createMetrics();
  t.teardown(() => metrics.close());
  metrics.request('forwarded', null);
  metrics.request('forwarded', null);
  metrics.request('refused', 'port_denied');
  metrics.request('failed', 'upstream_timeout');
  metrics.swap('header', 2);
  metrics.swap('basic', 1);
  metrics.miss('body', 'host_not_covered');
  metrics.veil(3);
  metrics.tunnels(1);
  metrics.tunnels(1);
  metrics.tunnels(-1);
  metrics.streams(1);
  metrics.unauthenticated();
  let queued = 4;
  metrics.gauge('keyveil_test_depth', 'Words.', () => queued);
  queued = 5;
  const values = valuesOf(await metrics.text());
  const expected = {
    'keyveil_requests_total{outcome="forwarded"}': 2,
    'keyveil_requests_total{outcome="refused"}': 1,
    'keyveil_refusals_total{reason="port_denied"}': 1,
    'keyveil_failures_total{reason="upstream_timeout"}': 1,
    'keyveil_swaps_total{location="header"}': 2,
    'keyveil_swaps_total{location="basic"}': 1,
    'keyveil_swap_misses_total{location="body",reason="host_not_covered"}': 1,
    keyveil_veils_total: 3,
    keyveil_tunnels: 1,
    keyveil_streams: 1,
    keyveil_unauthenticated_total: 1,
    keyveil_test_depth: 5,
  };
  for (const [name, value] of Object.entries(expected)) t.equal(values.get(name), value, name);
  t.ok((values.get('process_resident_memory_bytes') ?? 0) > 1e7);
  t.match(metrics.contentType, 'text/plain');
  t.same(valuesOf(await metrics.text()).get('keyveil_veils_total'), 3, 'reading changes nothing');
});

void test('the histogram of the overhead is cumulative, bounds included', async (t) => {
  const metrics = createMetrics();
  t.teardown(() => metrics.close());
  for (const ms of [-1, 0.1, 0.2, 1, 5000]) metrics.overhead(ms);
  const values = valuesOf(await metrics.text());
  const bucket = (bound: string) => values.get(`keyveil_request_overhead_seconds_bucket{le="${bound}"}`);
  t.same([bucket('0.0001'), bucket('0.00025'), bucket('0.001'), bucket('1'), bucket('+Inf')], [2, 3, 4, 4, 5]);
  t.equal(values.get('keyveil_request_overhead_seconds_count'), 5);
  t.ok(Math.abs((values.get('keyveil_request_overhead_seconds_sum') ?? 0) - 5.0013) < 1e-9);
});

void test('snapshots of workers are plain data and add up; of delays the worst counts', async (t) => {
  const worker = createMetrics();
  const primary = createMetrics({ peers: async () => [JSON.parse(JSON.stringify(worker.snapshot()))] });
  t.teardown(() => Promise.all([worker.close(), primary.close()]));
  worker.request('forwarded', null);
  worker.overhead(1);
  worker.tunnels(1);
  primary.request('forwarded', null);
  primary.overhead(3);
  primary.tunnels(1);
  const values = valuesOf(await primary.text());
  t.equal(values.get('keyveil_requests_total{outcome="forwarded"}'), 2);
  t.equal(values.get('keyveil_tunnels'), 2);
  t.equal(values.get('keyveil_request_overhead_seconds_count'), 2);
});

void test('series have an upper bound, whatever reasons come', async (t) => {
  const metrics = createMetrics();
  t.teardown(() => metrics.close());
  for (let index = 0; index < 1000; index += 1) metrics.request('refused', `reason_${index}`);
  const series = [...valuesOf(await metrics.text()).keys()].filter((name) => name.startsWith('keyveil_refusals_total'));
  t.equal(series.length, 200);
});
