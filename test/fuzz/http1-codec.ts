// Fuzzes the HTTP/1.1 codec against Node's client: node --import ./scripts/ts-register.mjs test/fuzz/http1-codec.ts [seconds] [seed]
import { BAD, compareReaders, createRandom, GOOD, mutate } from './http1-codec-corpus.ts';

const seconds = Number(process.argv[2] ?? 60);
const seed = Number(process.argv[3] ?? Date.now() % 2 ** 32);
const random = createRandom(seed);
const corpus = [...GOOD, ...BAD];
const until = performance.now() + seconds * 1000;
let count = 0;
let faults = 0;

while (performance.now() < until && faults < 10) {
  const base = corpus[Math.floor(random() * corpus.length)] as (typeof corpus)[number];
  const mutated = mutate(base, random);
  const cuts = Array.from({ length: Math.floor(random() * 6) }, () =>
    Math.floor(random() * (mutated.bytes.length + 1)),
  );
  const fault = await compareReaders(
    mutated,
    cuts.sort((a, b) => a - b),
  ).catch((error: unknown) => String(error));
  count += 1;
  if (fault === null) continue;
  faults += 1;
  process.stderr.write(
    `${fault}\n  ${mutated.method} ${JSON.stringify(mutated.bytes.toString('latin1'))} cut at ${cuts.join()}\n`,
  );
}
process.stdout.write(`seed ${seed}: ${count} responses, ${faults} faults\n`);
process.exitCode = faults === 0 ? 0 : 1;
