// Time from the start of the process to its being ready, with data that is there already.
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import type { CaseResult } from '../support/report.ts';

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say } = context;
  const first = await startKeyveil(scene);
  const { dataDir } = first;
  await first.stop();
  const values: number[] = [];
  const cpu: number[] = [];
  const rounds = roundsOf(context, 9);
  for (let round = 0; round < rounds; round += 1) {
    say(`start ${round + 1} of ${rounds}`);
    const keyveil = await startKeyveil(scene, { dataDir });
    values.push(keyveil.startedInMs);
    cpu.push(keyveil.startedWithCpuMs);
    await keyveil.stop();
  }
  return {
    measurements: [{ subject: 'keyveil', figure: 'CPU time until it is ready', unit: 'ms', values: cpu }],
    rows: [{ work: 'cold start to ready, existing data', unit: 'ms', values, must: 1000, aim: 500, better: 'lower' }],
    notes: [],
  };
}

export const COLD_START: BenchCase = { name: 'cold-start', summary: 'start of the process to ready', run };
