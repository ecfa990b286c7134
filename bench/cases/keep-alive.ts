// Keep-alive GETs with one header swap over 16 connections: CPU per request and throughput against all peers.
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { GENERATOR, load, measureCost, warmUp, type Cost } from '../support/load.ts';
import { isPeerInstalled, startPeer, type PeerName } from '../support/peers.ts';
import type { ProxyUnderTest } from '../support/proxy.ts';
import type { CaseResult, Measurement, Row } from '../support/report.ts';
import type { Scene } from '../support/scene.ts';
import { ratios } from '../support/statistics.ts';

const PEERS: readonly PeerName[] = ['bare-sketch', 'http-mitm-proxy', 'mockttp', 'mitmproxy'];
const CONNECTIONS = 16;
const ROUNDS = 12;
const ROUND_SECONDS = 2;
const ATTEMPTS_MAX = 3;

type Costs = ReadonlyMap<string, readonly Cost[]>;

/** A slow peer on a busy machine can have served nothing when a round is over; then the round is made again. */
async function measureRound(scene: Scene, proxy: ProxyUnderTest): Promise<Cost> {
  const run = () => load(scene, proxy, { connections: CONNECTIONS, seconds: ROUND_SECONDS });
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await measureCost(scene, { proxy, seconds: ROUND_SECONDS, run });
    } catch (error) {
      if (attempt === ATTEMPTS_MAX) throw error;
    }
  }
}

/** Loads the proxies in turn, round by round. */
export async function compareCosts(
  context: BenchContext,
  proxies: readonly ProxyUnderTest[],
  rounds: number,
): Promise<Costs> {
  const { scene, say } = context;
  for (const proxy of proxies) await warmUp(context, proxy);
  const costs = new Map<string, Cost[]>(proxies.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    for (const proxy of proxies) {
      costs.get(proxy.name)?.push(await measureRound(scene, proxy));
    }
  }
  return costs;
}

export function valuesOf(costs: Costs, name: string, figure: keyof Cost): number[] {
  return (costs.get(name) ?? []).map((cost) => cost[figure]);
}

export function cpuMeasurement(costs: Costs, { name, version }: ProxyUnderTest): Measurement {
  return {
    subject: `${name} ${version}`,
    figure: 'CPU per request',
    unit: 'µs',
    values: valuesOf(costs, name, 'cpuPerRequestUs'),
  };
}

const CPU_GOALS: readonly (readonly [PeerName, number, number])[] = [
  ['http-mitm-proxy', 1 / 2, 1 / 3],
  ['mockttp', 1 / 3, 1 / 5],
  ['mitmproxy', 1 / 10, 1 / 15],
  ['bare-sketch', 1.5, 1.15],
];

function rowsOf(costs: Costs): Row[] {
  const rows: Row[] = [];
  for (const [peer, must, aim] of CPU_GOALS) {
    if (!costs.has(peer)) continue;
    const values = ratios(valuesOf(costs, 'keyveil', 'cpuPerRequestUs'), valuesOf(costs, peer, 'cpuPerRequestUs'));
    const [mustRounded, aimRounded] = [must, aim].map((goal) => Number(goal.toFixed(3))) as [number, number];
    rows.push({
      work: `CPU per request against ${peer}`,
      unit: '×',
      values,
      must: mustRounded,
      aim: aimRounded,
      better: 'lower',
    });
  }
  if (!costs.has('http-mitm-proxy')) return rows;
  const [own, theirs] = ['keyveil', 'http-mitm-proxy'].map((name) => valuesOf(costs, name, 'requestsPerSecond'));
  const values = ratios(own as number[], theirs as number[]);
  return [
    ...rows,
    { work: 'throughput against http-mitm-proxy', unit: '×', values, must: 2, aim: 3, better: 'higher' },
  ];
}

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene } = context;
  const missing = PEERS.filter((name) => !isPeerInstalled(name));
  const proxies: ProxyUnderTest[] = [await startKeyveil(scene)];
  for (const name of PEERS) if (!missing.includes(name)) proxies.push(await startPeer(name, scene));
  const costs = await compareCosts(context, proxies, roundsOf(context, ROUNDS));
  const measurements = proxies.flatMap((proxy): Measurement[] => [
    cpuMeasurement(costs, proxy),
    {
      subject: proxy.name,
      figure: 'throughput',
      unit: 'requests/s',
      values: valuesOf(costs, proxy.name, 'requestsPerSecond'),
    },
  ]);
  for (const proxy of proxies) await proxy.stop();
  const loadText =
    GENERATOR === 'wrk' ? 'wrk through proxychains4' : 'a Node.js generator: wrk or proxychains4 is missing';
  const notes = [`Load: ${loadText}.`, ...missing.map((name) => `${name} is not installed, so it is left out.`)];
  return { measurements, rows: rowsOf(costs), notes };
}

export const KEEP_ALIVE: BenchCase = {
  name: 'keep-alive',
  summary: 'GET over 16 kept-alive HTTP/1.1 connections, one header swap',
  run,
};
