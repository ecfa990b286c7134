// WebSocket frames: strict reading, writing, and the swap of a client's messages.
import fc from 'fast-check';
import { test } from 'tap';
import type { MissRecord } from '../../../model/audit.ts';
import { compileSwapPlan, type SwapPlan } from '../../../proxy/swap/plan.ts';
import { FrameParser, OPCODE, writeFrame } from '../../../proxy/swap/websocket-frames.ts';
import { WEBSOCKET_STEP_FRAMES } from '../../../model/limits.ts';
import { rewriteFrames } from '../../support/frames.ts';
import { createWebSocketSwap } from '../../../proxy/swap/websocket-swap.ts';
import { placeholderOf, sessionPolicy, type CredentialInput } from '../../support/policies.ts';
import { createBench, cut } from './body-support.ts';

const ONE = placeholderOf('One');
const TARGET = { host: 'api.test', scheme: 'https' } as const;
const { continuation, text, binary, close, ping, pong } = OPCODE;

function planOf(...credentials: CredentialInput[]): SwapPlan {
  return compileSwapPlan(sessionPolicy(credentials), TARGET) as SwapPlan;
}

function frame(opcode: number, payload: string | Buffer, fin = true): Buffer {
  return writeFrame({ opcode, fin, isMasked: true, payload: [Buffer.from(payload)] });
}

type Read = [opcode: number, fin: boolean, payload: string];

/** Whole frames, as text in Latin-1. */
function readFrames(bytes: Buffer, isMasked = true): Read[] {
  const frames: Read[] = [];
  let payload = '';
  for (const piece of new FrameParser({ isMasked }).push(Buffer.from(bytes))) {
    payload += piece.payload.toString('latin1');
    if (!piece.isLast) continue;
    frames.push([piece.opcode, piece.fin, payload]);
    payload = '';
  }
  return frames;
}

function messagesOf(frames: readonly Read[]): Read[] {
  const messages: Read[] = [];
  let open: Read | null = null;
  for (const [opcode, fin, payload] of frames) {
    if (opcode >= close) {
      messages.push([opcode, true, payload]);
      continue;
    }
    open = open === null ? [opcode, true, payload] : [open[0], true, open[2] + payload];
    if (!fin) continue;
    messages.push(open);
    open = null;
  }
  return messages;
}

function faultOf(closeCode: number): Error {
  return { name: 'WebSocketFault', closeCode } as unknown as Error;
}

async function swapped(plan: SwapPlan | null, chunks: readonly Buffer[]): Promise<Buffer> {
  const swap = createWebSocketSwap({ currentPlan: () => Promise.resolve(plan) });
  const sent: Buffer[] = [];
  for (const chunk of chunks) sent.push(...(await rewriteFrames(swap, chunk)));
  return Buffer.concat(sent);
}

test('frames of every length are written in the shortest way and read again, however they are cut', async (t) => {
  for (const length of [0, 1, 125, 126, 127, 65535, 65536, 70000]) {
    const payload = Buffer.alloc(length, 'ab');
    for (const isMasked of [true, false]) {
      const bytes = writeFrame({ opcode: binary, fin: true, isMasked, payload: cut(payload, 1000) });
      t.equal(bytes.length, length + (length < 126 ? 2 : length < 65536 ? 4 : 10) + (isMasked ? 4 : 0));
      const parser = new FrameParser({ isMasked });
      const pieces = cut(bytes, 997).flatMap((chunk) => [...parser.push(Buffer.from(chunk))]);
      t.ok(Buffer.concat(pieces.map((piece) => piece.payload)).equals(payload));
      t.equal(pieces.filter((piece) => piece.isFirst).length, 1);
      t.same(pieces.map((piece) => piece.isLast).indexOf(true), pieces.length - 1);
      t.ok(pieces.every((piece) => piece.frameBytes === length && piece.opcode === binary && piece.fin));
    }
  }
});

test('masks are fresh for every frame', async (t) => {
  const masks = new Set(Array.from({ length: 3000 }, () => frame(text, 'x').toString('hex', 2, 6)));
  t.ok(masks.size > 2990);
});

test('malformed frames are refused with their close code', async (t) => {
  const masked = (first: number, second: number, rest: number[] = []): Buffer =>
    Buffer.from([first, second, ...rest, 1, 2, 3, 4]);
  const cases: [string, Buffer, number][] = [
    ['a reserved bit', masked(0xc1, 0x80), 1002],
    ['an unknown opcode', masked(0x83, 0x80), 1002],
    ['no mask', Buffer.from([0x81, 0x00]), 1002],
    ['a long control frame', masked(0x89, 0xfe, [0, 126]), 1002],
    ['a fragmented control frame', masked(0x09, 0x80), 1002],
    ['16 bits for a short length', masked(0x81, 0xfe, [0, 125]), 1002],
    ['64 bits for a short length', masked(0x81, 0xff, [0, 0, 0, 0, 0, 0, 0xff, 0xff]), 1002],
    ['a negative length', masked(0x81, 0xff, [0x80, 0, 0, 0, 0, 0, 0, 0]), 1002],
    ['a length beyond what can be counted', masked(0x81, 0xff, [0x40, 0, 0, 0, 0, 0, 0, 0]), 1009],
    ['a continuation of nothing', frame(continuation, 'x'), 1002],
    ['a message in a message', Buffer.concat([frame(text, 'x', false), frame(text, 'y')]), 1002],
    ['half a close code', frame(close, 'x'), 1002],
    ['a frame after a close', Buffer.concat([frame(close, ''), frame(ping, '')]), 1002],
  ];
  for (const [name, bytes, closeCode] of cases) {
    await t.rejects(swapped(null, [bytes]), faultOf(closeCode), name);
    await t.rejects(swapped(null, cut(bytes, 1)), faultOf(closeCode), `${name}, byte by byte`);
  }
  const server = writeFrame({ opcode: text, fin: true, isMasked: true, payload: [] });
  t.throws(() => readFrames(server, false), faultOf(1002), 'a mask where there must be none');
});

test('a fault is told before any plan is asked for', async (t) => {
  const swap = createWebSocketSwap({ currentPlan: () => Promise.resolve(null) });
  await t.rejects(rewriteFrames(swap, Buffer.from([0xff, 0xff])), faultOf(1002));
});

test('messages are swapped, fragments and control frames keep their places', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const bytes = Buffer.concat([
    frame(text, `a ${ONE.slice(0, 10)}`, false),
    frame(ping, ONE),
    frame(continuation, ONE.slice(10), false),
    frame(pong, ''),
    frame(continuation, ' z'),
    frame(binary, `\xff${ONE}`, true),
    frame(close, Buffer.from([3, 0xe8])),
  ]);
  for (const length of [1, 7, bytes.length]) {
    const frames = readFrames(await swapped(plan, cut(bytes, length)));
    t.same(
      messagesOf(frames),
      [
        [ping, true, ONE],
        [pong, true, ''],
        [text, true, 'a real z'],
        [binary, true, `\xc3\xbfreal`],
        [close, true, '\x03\xe8'],
      ],
      `cut to ${String(length)}`,
    );
  }
  t.same(readFrames(await swapped(plan, [bytes])).slice(0, 5), [
    [text, false, 'a '],
    [ping, true, ONE],
    [continuation, false, 'real'],
    [pong, true, ''],
    [continuation, true, ' z'],
  ]);
});

test('the end of a message lets go what could have been a placeholder', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const bytes = Buffer.concat([frame(text, 'kvph_One'), frame(text, 'OneOne', false), frame(continuation, 'kv')]);
  t.same(messagesOf(readFrames(await swapped(plan, [bytes]))), [
    [text, true, 'kvph_One'],
    [text, true, 'OneOnekv'],
  ]);
});

test('a text message that is JSON gets the value escaped, any other message gets it as it is', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'a"b\n' });
  const bytes = Buffer.concat([frame(text, ` {"k":"${ONE}"}`), frame(text, ONE), frame(binary, `{"k":"${ONE}"}`)]);
  t.same(readFrames(await swapped(plan, [bytes])), [
    [text, true, ' {"k":"a\\"b\\n"}'],
    [text, true, 'a"b\n'],
    [binary, true, '{"k":"a"b\n"}'],
  ]);
});

test('the plan is asked for when bytes have come that begin a message, and once for all that have', async (t) => {
  const first = planOf({ placeholder: ONE, value: 'first' });
  const plans = [first, null, planOf({ placeholder: ONE, value: 'x', body: false })];
  const swap = createWebSocketSwap({ currentPlan: () => plans.shift() as SwapPlan | null });
  const inputs = [
    [frame(text, ONE, false)],
    [frame(ping, 'p')],
    [frame(continuation, ONE)],
    [frame(text, ONE), frame(text, ONE)],
    [frame(text, ONE)],
  ];
  const sent: Buffer[] = [];
  const open: boolean[] = [];
  for (const input of inputs) {
    sent.push(...(await rewriteFrames(swap, Buffer.concat(input))));
    open.push(swap.openPlan() === first);
  }
  t.same(open, [true, true, false, false, false], 'what a message may still be given is told while it is under way');
  t.same(messagesOf(readFrames(Buffer.concat(sent))), [
    [ping, true, 'p'],
    [text, true, 'firstfirst'],
    [text, true, ONE],
    [text, true, ONE],
    [text, true, ONE],
  ]);
  t.same(swap.swaps(), [
    { credentialId: 'vcrd_1', secretName: 'SECRET_1', secretVersion: 1, location: 'websocket', count: 2 },
  ]);
  t.same(
    swap.misses().map(({ location, reason }: MissRecord) => [location, reason]),
    [['websocket', 'location_disabled']],
  );
});

test('very many messages are gone through a few at a time, each step with the plan of its moment', async (t) => {
  const values = ['one', 'two', 'three', 'four'];
  let asked = 0;
  const swap = createWebSocketSwap({
    currentPlan: () => planOf({ placeholder: ONE, value: values[asked++ % values.length] as string }),
  });
  const COUNT = 1000;
  swap.take(Buffer.concat(Array.from({ length: COUNT }, () => frame(text, ONE))));
  const sizes: number[] = [];
  const texts = new Set<string>();
  while (!swap.isDone) {
    const frames = await swap.step();
    sizes.push(frames.length);
    for (const [, , payload] of readFrames(Buffer.concat(frames))) texts.add(String(payload));
  }
  t.equal(
    sizes.reduce((sum, size) => sum + size, 0),
    COUNT,
  );
  t.ok(Math.max(...sizes) <= WEBSOCKET_STEP_FRAMES, `at most ${Math.max(...sizes)}`);
  t.ok(asked >= COUNT / WEBSOCKET_STEP_FRAMES, `asked ${asked} times`);
  t.same([...texts].sort(), [...values].sort());
});

test('a value that can not be opened, or that makes a message grow too much, ends the connection', async (t) => {
  await t.rejects(swapped(planOf({ placeholder: ONE, value: null }), [frame(text, ONE)]), {
    code: 'credential_unreadable',
  });
  const long = planOf({ placeholder: ONE, value: 'v'.repeat(32 * 1024) });
  await t.rejects(swapped(long, [frame(text, ONE.repeat(600))]), { code: 'swap_too_large' });
});

test('a long frame is kept whole while there is memory for it, and else goes on in fragments', async (t) => {
  const bench = createBench();
  t.teardown(() => bench.close());
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const payload = `${'x'.repeat(70_000)}${ONE}${'y'.repeat(70_000)}`;
  const expected = payload.replace(ONE, 'real');
  for (const [bufferBytes, isWhole] of [
    [1 << 20, true],
    [100_000, false],
  ] as const) {
    const resources = bench.resources({ bufferBytes });
    const swap = createWebSocketSwap({
      currentPlan: () => Promise.resolve(plan),
      bodies: { resources, sessionId: 'sesn_1' },
    });
    const sent: Buffer[] = [];
    for (const chunk of cut(frame(text, payload), 40_000)) {
      sent.push(...(await rewriteFrames(swap, chunk)));
      t.ok(resources.usage().memoryBytes === (isWhole && sent.length === 0 ? payload.length : 0));
    }
    const frames = readFrames(Buffer.concat(sent));
    t.equal(frames.length === 1, isWhole);
    t.same(messagesOf(frames), [[text, true, expected]]);
    await rewriteFrames(swap, frame(text, 'x'.repeat(1000)).subarray(0, 100));
    swap.dispose();
    swap.dispose();
    t.equal(resources.usage().memoryBytes, 0);
  }
});

test('random messages, fragments and cuts: what arrives is what a whole-message swap would give', async (t) => {
  const plan = planOf({ placeholder: ONE, value: `<${ONE}>` });
  const part = fc.oneof(
    fc.constant(ONE),
    fc.constant(ONE.slice(0, 20)),
    fc.constant(ONE.slice(20)),
    fc.string({ unit: 'grapheme' }),
  );
  const message = fc.record({
    isText: fc.boolean(),
    fragments: fc.array(fc.array(part, { maxLength: 3 }), { minLength: 1, maxLength: 4 }),
    pings: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(message, { maxLength: 4 }), fc.integer({ min: 1, max: 60 }), async (messages, length) => {
      const bytes: Buffer[] = [];
      const expected: Read[] = [];
      for (const { isText, fragments, pings } of messages) {
        const opcode = isText ? text : binary;
        for (const [index, parts] of fragments.entries()) {
          bytes.push(frame(index === 0 ? opcode : continuation, parts.join(''), index === fragments.length - 1));
          if (pings && index < fragments.length - 1) {
            bytes.push(frame(ping, 'p'));
            expected.push([ping, true, 'p']);
          }
        }
        const whole = Buffer.from(fragments.map((parts) => parts.join('')).join('')).toString('latin1');
        expected.push([opcode, true, whole.replaceAll(ONE, `<${ONE}>`)]);
      }
      const sent = await swapped(plan, cut(Buffer.concat(bytes), length));
      t.strictSame(messagesOf(readFrames(sent)), expected);
    }),
    { numRuns: 60 },
  );
});
