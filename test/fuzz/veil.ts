// Fuzzes the veil against its plain reference: node --import ./scripts/ts-register.mjs test/fuzz/veil.ts [seconds] [seed]
import fc from 'fast-check';
import { responseProperty, scannerProperty, webSocketProperty } from '../proxy/veil/properties.ts';
import { CORPUS } from './veil-corpus.ts';

const seconds = Number(process.argv[2] ?? 60);
const seed = Number(process.argv[3] ?? Date.now() % 2 ** 31);
const until = performance.now() + seconds * 1000;
const NUM_RUNS = 200;
let round = 0;

/** Fails with the counterexample, shrunk, and with what is needed to run it again. */
async function tryAll(options: { seed: number; numRuns: number }): Promise<void> {
  const examples = options.seed === seed ? CORPUS : [];
  fc.assert(scannerProperty, {
    ...options,
    examples: examples.flatMap((echo) => [
      [echo, false],
      [echo, true],
    ]),
  });
  await fc.assert(responseProperty, { ...options, examples: examples.map((echo) => [echo, 'br', 0]) });
  await fc.assert(webSocketProperty, { ...options, examples: examples.map((echo) => [echo]) });
}

try {
  for (; round === 0 || performance.now() < until; round += 1) await tryAll({ seed: seed + round, numRuns: NUM_RUNS });
  process.stdout.write(`seed ${seed}: ${round * NUM_RUNS * 3} echoes, 0 faults\n`);
} catch (error) {
  process.stderr.write(`round ${round} of seed ${seed}: ${String(error)}\n`);
  process.exitCode = 1;
}
