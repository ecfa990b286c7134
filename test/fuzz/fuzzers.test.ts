// A short round of every fuzzer, its kept inputs first; KEYVEIL_TEST_FUZZ_INPUTS makes it longer, run.ts runs by the clock.
import { test } from 'tap';
import { fuzz } from './target.ts';
import { TARGETS } from './targets.ts';

const INPUTS = Number(process.env['KEYVEIL_TEST_FUZZ_INPUTS'] ?? 25);
const SECONDS_MAX = 60;

for (const [name, open] of Object.entries(TARGETS)) {
  test(`${name}: kept inputs, and new ones`, async (t) => {
    const target = await open();
    t.teardown(() => target.close());
    const seed = Date.now() % 2 ** 32;
    const { count, faults } = await fuzz(target, {
      name,
      seed,
      inputsMax: INPUTS,
      secondsMax: SECONDS_MAX,
      keeps: false,
    });
    t.ok(count > 0, `seed ${seed}: ${count} new inputs`);
    t.strictSame(faults, [], `seed ${seed}`);
  });
}
