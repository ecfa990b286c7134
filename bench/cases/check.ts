// The regression check: CPU per request against the bare sketch, in one run, held against what was recorded.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BenchContext } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { startPeer } from '../support/peers.ts';
import type { CaseResult } from '../support/report.ts';
import { percentile, ratios } from '../support/statistics.ts';
import { compareCosts, cpuMeasurement, valuesOf } from './keep-alive.ts';

const ROUNDS = 24;
const PLANTED_DELAY = join(import.meta.dirname, '../peers/planted-delay.mjs');
const BASELINE = join(import.meta.dirname, '../baseline.json');

interface Baseline {
  /** Keyveil's CPU per request, in units of the bare sketch's. */
  readonly ratio: number;
  /** The check fails above `ratio` times this. */
  readonly tolerance: number;
}

function readBaseline(): Baseline {
  return JSON.parse(readFileSync(BASELINE, 'utf8')) as Baseline;
}

/** The lower quartile: other work on the machine makes a round dearer, and never cheaper. */
function quietOf(values: readonly number[]): number {
  return percentile(values, 0.25);
}

async function measure(
  context: BenchContext,
  plantedUs: number,
): Promise<CaseResult & { ratio: number; costUs: number }> {
  const { scene } = context;
  const planted = plantedUs === 0 ? {} : { imports: [PLANTED_DELAY], env: { BENCH_PLANTED_US: plantedUs.toFixed(1) } };
  const proxies = [await startPeer('bare-sketch', scene), await startKeyveil(scene, planted)];
  const costs = await compareCosts(context, proxies, context.isQuick ? 8 : ROUNDS);
  for (const proxy of proxies) await proxy.stop();
  const own = valuesOf(costs, 'keyveil', 'cpuPerRequestUs');
  const theirs = valuesOf(costs, 'bare-sketch', 'cpuPerRequestUs');
  const values = ratios(own, theirs);
  return {
    ratio: quietOf(own) / quietOf(theirs),
    costUs: quietOf(own),
    measurements: [
      ...proxies.map((proxy) => cpuMeasurement(costs, proxy)),
      { subject: 'keyveil', figure: 'CPU per request against the bare sketch', unit: '×', values },
    ],
    rows: [],
    notes: [],
  };
}

/** With a plant, Keyveil is measured first, so that the delay is that many per cent of what a request costs here. */
export async function runCheck(
  context: BenchContext,
  plantPercent: number,
): Promise<{ result: CaseResult; isGood: boolean }> {
  const { ratio: expected, tolerance } = readBaseline();
  const plain = await measure(context, 0);
  const result = plantPercent === 0 ? plain : await measure(context, (plain.costUs * plantPercent) / 100);
  const limit = expected * tolerance;
  const isGood = result.ratio <= limit;
  const verdict = isGood ? 'no regression' : 'REGRESSION';
  const notes = [
    `${verdict}: ${result.ratio.toFixed(2)} × the bare sketch; recorded are ${expected.toFixed(2)} ×, the limit is ${limit.toFixed(2)} ×.`,
    ...(plantPercent === 0
      ? []
      : [`With a slow-down of ${plantPercent} % planted; without it ${plain.ratio.toFixed(2)} ×.`]),
  ];
  return { result: { ...result, notes }, isGood };
}
