// The benchmark: `npm run bench`, `npm run bench -- NAME…`, with --quick for short rounds, --check for the regression check.
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { runCheck } from './cases/check.ts';
import { COLD_START } from './cases/cold-start.ts';
import { NEW_CONNECTIONS, NEW_HOST } from './cases/connections.ts';
import { EVENT_STREAMS } from './cases/event-streams.ts';
import { HTTP2 } from './cases/http2.ts';
import { KEEP_ALIVE } from './cases/keep-alive.ts';
import { LATENCY } from './cases/latency.ts';
import { MICRO } from './cases/micro.ts';
import { SCALE } from './cases/scale.ts';
import { TRANSFER } from './cases/transfer.ts';
import { WORKERS } from './cases/workers.ts';
import type { BenchCase, BenchContext } from './support/case.ts';
import { installPeers } from './support/peers.ts';
import { stopAll } from './support/processes.ts';
import { formatResult, verdictOf, type CaseResult } from './support/report.ts';
import { openScene } from './support/scene.ts';

const RESULTS = join(import.meta.dirname, 'results');
const CASES: readonly BenchCase[] = [
  KEEP_ALIVE,
  LATENCY,
  NEW_HOST,
  NEW_CONNECTIONS,
  HTTP2,
  TRANSFER,
  SCALE,
  EVENT_STREAMS,
  WORKERS,
  COLD_START,
  MICRO,
];

const USAGE = `npm run bench                 every case (about 25 minutes on an idle machine)
npm run bench -- NAME…        some: ${CASES.map(({ name }) => name).join(', ')}
npm run bench -- --quick      fewer and shorter rounds: does everything work?
npm run bench -- --check      the regression check; exit code 1 when Keyveil has become slower
                 --plant=30   … with a slow-down of so many per cent planted, which it must find`;

function machine(): string {
  const [cpu] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${cpu?.model ?? 'unknown CPU'}, ${cpus().length} cores, ${memory} GiB, Linux ${release()}, Node.js ${process.version}`;
}

function keep(name: string, result: CaseResult): void {
  mkdirSync(RESULTS, { recursive: true });
  const record = { name, machine: machine(), at: new Date().toISOString(), ...result };
  writeFileSync(join(RESULTS, `${name}.json`), `${JSON.stringify(record, null, 2)}\n`);
}

async function runCase(bench: BenchCase, context: BenchContext): Promise<boolean> {
  context.say(bench.summary);
  try {
    const result = await bench.run(context);
    keep(bench.name, result);
    console.log(`\n${formatResult(bench.name, result)}`);
    return result.rows.every((row) => verdictOf(row) !== 'short');
  } catch (error) {
    console.error(`\n${bench.name} could not be measured: ${(error as Error).stack}`);
    return false;
  } finally {
    await stopAll();
  }
}

async function check(context: BenchContext, plantPercent: number): Promise<boolean> {
  const { result, isGood } = await runCheck(context, plantPercent);
  keep('check', result);
  console.log(`\n${formatResult('check', result)}`);
  return isGood;
}

async function withScene(
  isQuick: boolean,
  name: string,
  work: (context: BenchContext) => Promise<boolean>,
): Promise<boolean> {
  const scene = await openScene();
  const say = (text: string): void => void process.stderr.write(`${name}: ${text}\n`);
  try {
    return await work({ scene, isQuick, say });
  } finally {
    await stopAll();
    await scene.close();
  }
}

async function main(): Promise<boolean> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
      plant: { type: 'string', default: '0' },
      help: { type: 'boolean', default: false },
    },
  });
  const unknown = positionals.filter((name) => !CASES.some((bench) => bench.name === name));
  if (values.help || unknown.length > 0) {
    console.log(unknown.length > 0 ? `There is no case named ${unknown.join(', ')}.\n${USAGE}` : USAGE);
    return unknown.length === 0;
  }
  const peers = await installPeers();
  if (!peers.ok) console.error(`The peers could not be installed, so what needs them is left out: ${peers.reason}`);
  console.log(`${machine()}\n`);
  if (values.check) return withScene(values.quick, 'check', (context) => check(context, Number(values.plant)));
  let isGood = true;
  for (const bench of CASES.filter(({ name }) => positionals.length === 0 || positionals.includes(name))) {
    isGood = (await withScene(values.quick, bench.name, (context) => runCase(bench, context))) && isGood;
  }
  return isGood;
}

process.exitCode = (await main()) ? 0 : 1;
