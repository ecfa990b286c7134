// Whether a request costs the same with 100,000 credentials and 10,000 sessions in the database as with ten.
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { runCommand } from '../support/processes.ts';
import type { CaseResult } from '../support/report.ts';
import { typescriptCommand } from '../support/scene.ts';
import { ratios } from '../support/statistics.ts';
import { compareCosts, cpuMeasurement, valuesOf } from './keep-alive.ts';

/** Filled in memory where that is possible, since each row is a durable commit, and moved to where it is served from. */
async function fill(context: BenchContext, credentials: number, sessions: number): Promise<string> {
  const { scene, say } = context;
  const draft = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'keyveil-fill-'));
  const dataDir = join(scene.folder, `data-${credentials}`);
  say(`filling a database with ${credentials} credentials and ${sessions} sessions`);
  try {
    await runCommand([...typescriptCommand('programs/fill.ts'), draft, String(credentials), String(sessions)]);
    cpSync(draft, dataDir, { recursive: true });
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return dataDir;
}

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, isQuick } = context;
  const [credentials, sessions] = isQuick ? [5_000, 500] : [100_000, 10_000];
  const dataDir = await fill(context, credentials, sessions);
  const small = await startKeyveil(scene, { name: 'ten credentials' });
  const large = await startKeyveil(scene, { name: `${credentials} credentials`, dataDir });
  const costs = await compareCosts(context, [small, large], roundsOf(context, 12));
  await small.stop();
  await large.stop();
  const [few, many] = [small, large].map(({ name }) => valuesOf(costs, name, 'cpuPerRequestUs'));
  const values = ratios(many as number[], few as number[]);
  return {
    measurements: [small, large].map((proxy) => cpuMeasurement(costs, proxy)),
    rows: [
      {
        work: `${credentials} credentials, ${sessions} sessions: CPU against ten`,
        unit: '×',
        values,
        must: 1.1,
        aim: 1,
        better: 'lower',
      },
    ],
    notes: [],
  };
}

export const SCALE: BenchCase = { name: 'scale', summary: '100,000 credentials and 10,000 sessions against ten', run };
