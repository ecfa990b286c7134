// Large bodies: a chunked upload that is swapped and a download that is veiled, against the same bytes left alone.
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil, type Keyveil } from '../support/keyveil.ts';
import { generate, pause, targetOf, warmUp } from '../support/load.ts';
import type { Target } from '../support/client.ts';
import type { CaseResult, Row } from '../support/report.ts';
import { ratios } from '../support/statistics.ts';

const MIB = 1024 * 1024;
const SAMPLE_MS = 20;

interface Transfer {
  readonly mibPerSecond: number;
  readonly growthMib: number;
}

/** Growth is counted from an idle daemon that has had no large body yet. */
async function watchingMemory(keyveil: Keyveil, idleBytes: number, work: () => Promise<number>): Promise<Transfer> {
  let peak = idleBytes;
  const timer = setInterval(() => (peak = Math.max(peak, keyveil.residentBytes())), SAMPLE_MS);
  try {
    return { mibPerSecond: await work(), growthMib: (peak - idleBytes) / MIB };
  } finally {
    clearInterval(timer);
  }
}

/** Small requests first: the heap of a process that has done nothing yet grows with whatever comes. */
async function idleBytesOf(context: BenchContext, keyveil: Keyveil): Promise<number> {
  await warmUp(context, keyveil);
  await pause(1000);
  return keyveil.residentBytes();
}

function uploading(target: Target, bytes: number, isSwapped: boolean): () => Promise<number> {
  return async () => {
    const tail = target.authorization.replace('Bearer ', 'token=');
    const { seconds, answer } = await generate<{ seconds: number; answer: string }>('upload', {
      ...target,
      bytes,
      tail,
    });
    const { swapped } = JSON.parse(answer) as { swapped: boolean };
    if (swapped !== isSwapped) throw new Error(`The placeholder in the upload was ${swapped ? '' : 'not '}swapped.`);
    return bytes / MIB / seconds;
  };
}

function downloading(target: Target, bytes: number): () => Promise<number> {
  return async () => {
    const { seconds } = await generate<{ seconds: number }>('download', { ...target, bytes });
    return bytes / MIB / seconds;
  };
}

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const bytes = (isQuick ? 128 : 1024) * MIB;
  const rounds = roundsOf(context, 3);
  const keyveil = await startKeyveil(scene, { swapsBodies: true });
  const touched = targetOf(keyveil, scene.ports.streams);
  // A session without vaults has nothing to swap and nothing to veil.
  const untouched = { ...touched, login: await keyveil.openSession([]) };
  const works = {
    'upload, untouched': uploading(untouched, bytes, false),
    'upload, swapped': uploading(touched, bytes, true),
    'download, untouched': downloading(untouched, bytes),
    'download, veiled': downloading(touched, bytes),
  };
  const results = new Map<string, Transfer[]>(Object.keys(works).map((name) => [name, []]));
  const idleBytes = await idleBytesOf(context, keyveil);
  for (const [name, work] of Object.entries(works)) {
    say(`warming up: ${name}`);
    await work();
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, work] of Object.entries(works)) {
      say(`round ${round + 1} of ${rounds}: ${name}`);
      results.get(name)?.push(await watchingMemory(keyveil, idleBytes, work));
    }
  }
  await keyveil.stop();
  const figures = (name: string, figure: keyof Transfer): number[] =>
    (results.get(name) ?? []).map((one) => one[figure]);
  const rowsOf = (way: string, how: string): Row[] => [
    {
      work: `${way}, ${how}: throughput against the untouched one`,
      unit: '%',
      values: ratios(figures(`${way}, ${how}`, 'mibPerSecond'), figures(`${way}, untouched`, 'mibPerSecond')).map(
        (ratio) => ratio * 100,
      ),
      must: 60,
      aim: 85,
      better: 'higher',
    },
    {
      work: `${way}, ${how}: growth of resident memory`,
      unit: 'MiB',
      values: figures(`${way}, ${how}`, 'growthMib'),
      must: 64,
      aim: 64,
      better: 'lower',
    },
  ];
  return {
    measurements: [...results.keys()].flatMap((subject) => [
      { subject, figure: 'throughput', unit: 'MiB/s', values: figures(subject, 'mibPerSecond') },
      { subject, figure: 'growth of resident memory', unit: 'MiB', values: figures(subject, 'growthMib') },
    ]),
    rows: [...rowsOf('upload', 'swapped'), ...rowsOf('download', 'veiled')],
    notes: [`${bytes / MIB} MiB in chunks of 64 KiB.`],
  };
}

export const TRANSFER: BenchCase = {
  name: 'transfer',
  summary: '1 GiB up with a body swap, 1 GiB down with a veil',
  run,
};
