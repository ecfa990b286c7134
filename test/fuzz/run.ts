// Fuzzes the daemon from outside: node --import ./scripts/ts-register.mjs test/fuzz/run.ts TARGET [seconds] [seed].
// Inputs that failed once are kept in corpus/TARGET.json and tried first, every time.
import { fuzz } from './target.ts';
import { TARGETS } from './targets.ts';

const [name = '', seconds = '60', seed = String(Date.now() % 2 ** 32)] = process.argv.slice(2);
const open = TARGETS[name];
if (open === undefined) {
  console.error(`Give one of ${Object.keys(TARGETS).join(', ')}.`);
  process.exit(2);
}
const target = await open();
const startedBytes = process.memoryUsage().rss;
const options = { name, seed: Number(seed), inputsMax: Number.POSITIVE_INFINITY, secondsMax: Number(seconds) };
const { kept, count, faults } = await fuzz(target, { ...options, keeps: true });
for (const fault of faults) console.error(fault);
const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
const memory = `${mib(startedBytes)} to ${mib(process.memoryUsage().rss)} MiB`;
console.log(
  `${name}, seed ${seed}: ${kept} kept, ${count} new inputs in ${seconds} s, ${faults.length} faults, ${memory}`,
);
process.exitCode = faults.length === 0 ? 0 : 1;
await target.close();
