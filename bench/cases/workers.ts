// Two worker processes against one: what sharing costs, and whether both take part.
import { availableParallelism } from 'node:os';
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { load, measureCost, warmUp, type Cost } from '../support/load.ts';
import { cpuSecondsOf } from '../support/processes.ts';
import type { CaseResult, Row } from '../support/report.ts';
import { ratios } from '../support/statistics.ts';

const CONNECTIONS = 64;
const MANY_CORES = 4;

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const seconds = isQuick ? 2 : 4;
  const rounds = roundsOf(context, 8);
  const one = await startKeyveil(scene, { name: 'one process' });
  const two = await startKeyveil(scene, { name: 'KEYVEIL_WORKERS=2', workers: 2 });
  for (const proxy of [one, two, two]) await warmUp(context, proxy);
  const costs: readonly [Cost[], Cost[]] = [[], []];
  const leastShares: number[] = [];
  const workerPids = two.pids().slice(1);
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    for (const [index, proxy] of [one, two].entries()) {
      const before = workerPids.map((pid) => cpuSecondsOf([pid]));
      const run = () => load(scene, proxy, { connections: CONNECTIONS, seconds });
      costs[index]?.push(await measureCost(scene, { proxy, seconds, run }));
      if (proxy !== two) continue;
      const used = workerPids.map((pid, worker) => cpuSecondsOf([pid]) - (before[worker] as number));
      leastShares.push((Math.min(...used) / used.reduce((sum, value) => sum + value, 0)) * 100);
    }
  }
  await one.stop();
  await two.stop();
  const [single, shared] = costs;
  const cpu = (list: readonly Cost[]): number[] => list.map(({ cpuPerRequestUs }) => cpuPerRequestUs);
  const rate = (list: readonly Cost[]): number[] => list.map(({ requestsPerSecond }) => requestsPerSecond);
  const rows: Row[] =
    availableParallelism() >= MANY_CORES
      ? [
          {
            work: 'two workers: throughput against one',
            unit: '×',
            values: ratios(rate(shared), rate(single)),
            must: 1.6,
            aim: 1.9,
            better: 'higher',
          },
        ]
      : [
          {
            work: 'two workers: CPU per request against one',
            unit: '×',
            values: ratios(cpu(shared), cpu(single)),
            must: 1.3,
            aim: 1.1,
            better: 'lower',
          },
          {
            work: "two workers: the lesser one's share of the work",
            unit: '%',
            values: leastShares,
            must: 35,
            aim: 45,
            better: 'higher',
          },
        ];
  return {
    measurements: [one, two].flatMap(({ name }, index) => [
      { subject: name, figure: 'CPU per request', unit: 'µs', values: cpu(costs[index] ?? []) },
      { subject: name, figure: 'throughput', unit: 'requests/s', values: rate(costs[index] ?? []) },
    ]),
    rows,
    notes: [`${CONNECTIONS} connections. The share is that of the workers' CPU time.`],
  };
}

export const WORKERS: BenchCase = { name: 'workers', summary: 'KEYVEIL_WORKERS=2 against one process', run };
