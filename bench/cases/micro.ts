// The micro-benchmarks, in a process of their own.
import type { BenchCase } from '../support/case.ts';
import { runCommand } from '../support/processes.ts';
import type { CaseResult, Measurement } from '../support/report.ts';
import { typescriptCommand } from '../support/scene.ts';

async function run(): Promise<CaseResult> {
  const output = await runCommand(typescriptCommand('micro.ts'));
  const measurements = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Measurement);
  return { measurements, rows: [], notes: ['CPU time of the calling thread and its helpers; ten credentials.'] };
}

export const MICRO: BenchCase = { name: 'micro', summary: 'scanner, veil, policy read, leaf', run };
