// What new connections cost: the first request to a host, and a TLS connection for each request.
import { readFileSync } from 'node:fs';
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { generate, measureCost, pause, targetOf, type LoadResult } from '../support/load.ts';
import { isPeerInstalled, startPeer } from '../support/peers.ts';
import type { ProxyUnderTest } from '../support/proxy.ts';
import type { CaseResult } from '../support/report.ts';
import { ratios } from '../support/statistics.ts';

const HOSTS_PER_ROUND = 40;

/** Time that the main thread has run, in milliseconds (nanoseconds in the kernel's words). */
function mainThreadMs(proxy: ProxyUnderTest): number {
  const pid = proxy.pids()[0] as number;
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
}

async function runNewHosts(context: BenchContext): Promise<CaseResult> {
  const { scene, say } = context;
  const keyveil = await startKeyveil(scene);
  const rounds = roundsOf(context, 6);
  const visit = async (hosts: readonly string[]): Promise<number> => {
    // A session of its own each time, so that no connection to the upstream is there already.
    const login = await keyveil.openSession();
    await pause(500);
    const before = mainThreadMs(keyveil);
    await generate('new-hosts', { ...targetOf(keyveil, scene.ports.canned), login, hosts });
    return (mainThreadMs(keyveil) - before) / hosts.length;
  };
  const hostsOf = (round: number): string[] =>
    Array.from({ length: HOSTS_PER_ROUND }, (_, index) => `host-${round}-${index}.bench.test`);
  for (let round = 0; round < 3; round += 1) await visit(hostsOf(-1 - round));
  const first: number[] = [];
  const added: number[] = [];
  const second: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    first.push(await visit(hostsOf(round)));
    second.push(await visit(hostsOf(round)));
    added.push((first.at(-1) as number) - (second.at(-1) as number));
  }
  await keyveil.stop();
  return {
    measurements: [
      { subject: 'keyveil', figure: 'first request to a host', unit: 'ms', values: first },
      { subject: 'keyveil', figure: 'the same to a known host', unit: 'ms', values: second },
    ],
    rows: [
      {
        work: 'first request to a new host: event-loop time added',
        unit: 'ms',
        values: added,
        must: 5,
        aim: 2,
        better: 'lower',
      },
    ],
    notes: [
      `CPU time of the main thread: tunnel, leaf, both TLS handshakes, policy and request; ${HOSTS_PER_ROUND} hosts a round.`,
      'Added is what a host costs that has no leaf yet, over one that has; the rest is paid for every new tunnel.',
    ],
  };
}

async function runNewConnections(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const seconds = isQuick ? 2 : 4;
  const rounds = roundsOf(context, 12);
  const proxies: ProxyUnderTest[] = [await startKeyveil(scene)];
  // The last two are the floor: TLS without any of the work, and no TLS at all.
  for (const name of ['http-mitm-proxy', 'bare-sketch', 'plain-tunnel'] as const) {
    if (isPeerInstalled(name)) proxies.push(await startPeer(name, scene));
  }
  const values = new Map<string, number[]>(proxies.map(({ name }) => [name, []]));
  const connect = (proxy: ProxyUnderTest) =>
    generate<LoadResult>('new-connections', { ...targetOf(proxy, scene.ports.canned), connections: 8, seconds });
  for (const proxy of proxies) for (let times = 0; times < 3; times += 1) await connect(proxy);
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    for (const proxy of proxies) {
      // The generator takes a moment to load, so that its time begins later than the measurement's.
      const cost = await measureCost(scene, { proxy, seconds: seconds + 0.5, run: () => connect(proxy) });
      values.get(proxy.name)?.push(cost.cpuPerRequestUs);
    }
  }
  for (const proxy of proxies) await proxy.stop();
  const [own = [], theirs] = ['keyveil', 'http-mitm-proxy'].map((name) => values.get(name));
  return {
    measurements: proxies.map(({ name, version }) => ({
      subject: `${name} ${version}`,
      figure: 'CPU per connection and request',
      unit: 'µs',
      values: values.get(name) ?? [],
    })),
    rows: [
      {
        work: 'new TLS connection per request: CPU against http-mitm-proxy',
        unit: '×',
        values: theirs === undefined ? [Number.NaN] : ratios(own, theirs),
        must: 0.5,
        aim: 0.333,
        better: 'lower',
      },
    ],
    notes: ['Warm host, 8 at once, full handshakes, by the Node.js generator.'],
  };
}

export const NEW_HOST: BenchCase = { name: 'new-host', summary: 'first request to a new host', run: runNewHosts };
export const NEW_CONNECTIONS: BenchCase = {
  name: 'new-connections',
  summary: 'a new TLS connection for each request',
  run: runNewConnections,
};
