// Sends binary uploads through the swap: node --import ./scripts/ts-register.mjs test/fuzz/swap-binary.ts [count] [seed]
import { compileSwapPlan, type SwapPlan } from '../../proxy/swap/plan.ts';
import { createBench, cut, MODES, send } from '../proxy/swap/body-support.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { createRandom } from './http1-codec-corpus.ts';
import { binaryBody } from './swap-corpus.ts';

const uploads = Number(process.argv[2] ?? 10_000);
const seed = Number(process.argv[3] ?? Date.now() % 2 ** 32);
const random = createRandom(seed);
const bench = createBench();
const buffering = bench.resources();
const others = bench.resources({ bufferBytes: 0 });
const credentials = [{ placeholder: placeholderOf('One'), value: 'real' }];
const plan = compileSwapPlan(sessionPolicy(credentials), { host: 'api.test', scheme: 'https' }) as SwapPlan;
let faults = 0;
for (let count = 0; count < uploads; count += 1) {
  const { body, contentType } = binaryBody(random);
  const mode = MODES[count % MODES.length] as (typeof MODES)[number];
  const resources = mode === 'buffered' ? buffering : others;
  const sent = await send({ plan, headers: ['Content-Type', contentType], chunks: cut(body, 700), mode, resources });
  if (sent.body.equals(body)) continue;
  faults += 1;
  console.error(`${contentType}, ${mode}: ${body.toString('base64')}`);
}
await bench.close();
console.log(`seed ${seed}: ${uploads} uploads, ${faults} faults`);
process.exitCode = faults === 0 ? 0 : 1;
