// Random bodies against a search of the whole; binary uploads; and what the size of a swapped body tells.
import fc from 'fast-check';
import { test } from 'tap';
import zlib from 'node:zlib';
import { compileSwapPlan, type SwapPlan } from '../../../proxy/swap/plan.ts';
import { binaryBody, checkCase, CODINGS, CONTENT_TYPES, PLACEHOLDERS } from '../../fuzz/swap-corpus.ts';
import { placeholderOf, sessionPolicy } from '../../support/policies.ts';
import { createBench, cut, MODES, send } from './body-support.ts';

const bench = createBench();
const buffering = bench.resources();
const others = bench.resources({ bufferBytes: 0 });

const value = fc.oneof(
  fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }),
  fc.constantFrom(
    'a"b\\c',
    'line\r\nline',
    'a b&c=d+e%f',
    '\u{10ffff}\u{1f600}é',
    ...PLACEHOLDERS.map((each) => `<${each}>`),
  ),
);

const part = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...PLACEHOLDERS) },
  { weight: 2, arbitrary: fc.constantFrom('{"k":"', '"}', ' ', 'k=', '&', 'kvph_', 'sk-', 'sk-kvph_', 'kvph_kvph_') },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(...PLACEHOLDERS), fc.nat(40)).map(([text, end]) => text.slice(0, end)),
  },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 30 }).map((bytes) => Buffer.from(bytes).toString('latin1')) },
);

const swapCase = fc.record({
  values: fc.array(value, { minLength: 3, maxLength: 3 }),
  body: fc.array(part, { maxLength: 12 }).map((parts) => Buffer.from(parts.join(''), 'latin1')),
  contentType: fc.constantFrom(...CONTENT_TYPES),
  coding: fc.constantFrom(...CODINGS),
  mode: fc.constantFrom(...MODES),
  chunkBytes: fc.oneof(fc.integer({ min: 1, max: 50 }), fc.constant(100_000)),
});

test('a body in any chunks, coding and framing becomes what a search of the whole makes of it', async (t) => {
  await fc.assert(
    fc.asyncProperty(swapCase, (each) => checkCase(each, each.mode === 'buffered' ? buffering : others)),
    { numRuns: 400 },
  );
  t.pass();
});

test('binary uploads arrive byte for byte, with their length', async (t) => {
  const credentials = [{ placeholder: placeholderOf('One'), value: 'real' }];
  const plan = compileSwapPlan(sessionPolicy(credentials), { host: 'api.test', scheme: 'https' }) as SwapPlan;
  for (let count = 0; count < 300; count += 1) {
    const { body, contentType } = binaryBody(Math.random);
    const mode = MODES[count % MODES.length] as (typeof MODES)[number];
    const resources = mode === 'buffered' ? buffering : others;
    const sent = await send({ plan, headers: ['Content-Type', contentType], chunks: cut(body, 700), mode, resources });
    if (!sent.body.equals(body)) t.fail(`${contentType} ${body.toString('base64')}`);
  }
  t.pass();
});

test('the size of a swapped body does not tell how much of the value the text around it repeats', async (t) => {
  const secret = 'correct-horse-battery-staple-0123456789';
  const placeholder = placeholderOf('One');
  const credentials = [{ placeholder, value: secret }];
  const plan = compileSwapPlan(sessionPolicy(credentials), { host: 'api.test', scheme: 'https' }) as SwapPlan;
  const encoders: readonly [string, (text: string) => Buffer][] = [
    ['gzip', (text) => zlib.gzipSync(text)],
    ['deflate', (text) => zlib.deflateSync(text)],
    ['br', (text) => zlib.brotliCompressSync(text)],
  ];
  for (const [coding, encode] of encoders) {
    for (const mode of MODES) {
      const sizes = new Set<number>();
      for (let known = 0; known <= secret.length; known += 13) {
        const guess = secret.slice(0, known).padEnd(secret.length, '~');
        const chunks = [encode(`${guess} ${placeholder} ${guess}`)];
        const headers = ['Content-Encoding', coding];
        const resources = mode === 'buffered' ? buffering : others;
        sizes.add((await send({ plan, headers, chunks, mode, resources })).body.length);
      }
      t.equal(sizes.size, 1, `${coding}, ${mode}`);
    }
  }
});

test('nothing stays open', async (t) => {
  await bench.close();
  t.same([buffering.usage(), others.usage()], Array(2).fill({ memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 }));
});
