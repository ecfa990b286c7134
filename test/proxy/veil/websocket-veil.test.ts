import fc from 'fast-check';
import t from 'tap';
import { OPCODE, WebSocketFault, writeFrame } from '../../../proxy/swap/websocket-frames.ts';
import { CORPUS } from '../../fuzz/veil-corpus.ts';
import { createWebSocketVeil } from '../../../proxy/veil/websocket-veil.ts';
import { compileVeil } from '../../../proxy/veil/compile.ts';
import { rewriteFrames } from '../../support/frames.ts';
import { sessionPolicy } from '../../support/policies.ts';
import { cut, oneByteEach, PLACEHOLDER, textForms, VALUE, veilOf } from './echoes.ts';
import { frame, pushAll, readMessages, webSocketProperty } from './properties.ts';

void t.test('messages are veiled in every form, whole, fragmented and one byte at a time', async (t) => {
  const current = veilOf(VALUE);
  for (const [name, form] of Object.entries(textForms(VALUE))) {
    const text = Buffer.from(`{"echo":"${form}"}`);
    const middle = Math.floor(text.length / 2);
    const bytes = Buffer.concat([
      frame(OPCODE.text, text),
      frame(OPCODE.binary, text.subarray(0, middle), false),
      frame(OPCODE.ping, 'between'),
      frame(OPCODE.continuation, '', false),
      frame(OPCODE.continuation, text.subarray(middle)),
      frame(OPCODE.close, Buffer.from([3, 232])),
    ]);
    const wanted = [
      `1:{"echo":"${PLACEHOLDER}"}`,
      '9:between',
      `2:{"echo":"${PLACEHOLDER}"}`,
      `8:${Buffer.from([3, 232]).toString('latin1')}`,
    ];
    for (const chunks of [[bytes], cut(bytes, 5, 40, 90), oneByteEach(bytes)]) {
      const veil = createWebSocketVeil({ currentVeils: async () => [current] });
      t.strictSame(readMessages(await pushAll(veil, chunks)), wanted, name);
      t.strictSame(veil.veils(), [{ credentialId: 'vcrd_1', count: 2 }]);
      t.equal(veil.impossible(), false);
    }
  }
});

void t.test(
  'the veils of the moment count, also in the middle of a message; without one it passes as it came',
  async (t) => {
    const [first, second] = [veilOf('first-value'), veilOf('second-value')];
    const text = 'first-value second-value';
    const space = ' '.repeat(400);
    const fragments = [frame(OPCODE.text, `${text}${space}fir`, false), frame(OPCODE.continuation, `st-value ${text}`)];
    const through = async (...lists: (readonly (typeof first)[])[]): Promise<readonly [string, number]> => {
      let asked = 0;
      const veil = createWebSocketVeil({ currentVeils: () => lists[asked++] ?? [] });
      const out = await pushAll(veil, fragments);
      t.equal(asked, 2, 'asked when bytes have come');
      if (lists.length === 0) t.ok(out.equals(Buffer.concat(fragments)), 'with its own fragments');
      return [readMessages(out).join(), veil.veils()[0]?.count ?? 0];
    };
    const P = PLACEHOLDER;
    t.strictSame(await through(), [`1:${text}${space}first-value ${text}`, 0]);
    t.strictSame(await through([first], [first]), [`1:${P} second-value${space}${P} ${P} second-value`, 3]);
    const both = [second, first];
    t.strictSame(await through(both, both), [`1:${P} ${P}${space}${P} ${P} ${P}`, 5], 'one after the other');
    t.strictSame(
      await through([first], both),
      [`1:${P} second-value${space}${P} ${P} ${P}`, 4],
      'a rotation in between',
    );
    t.strictSame(await through([first], []), [`1:${P} second-value${space}${P} ${P} second-value`, 3], 'none is lost');
  },
);

void t.test(
  'what comes together is looked at with veils that were asked for once, whether at hand or not',
  async (t) => {
    for (const isLate of [false, true]) {
      let asked = 0;
      const veil = createWebSocketVeil({
        currentVeils: () => {
          asked += 1;
          return isLate ? Promise.resolve([veilOf(VALUE)]) : [veilOf(VALUE)];
        },
      });
      const messages = [frame(OPCODE.text, VALUE), frame(OPCODE.ping, VALUE), frame(OPCODE.text, 'x')];
      const out = await pushAll(veil, [Buffer.concat([...messages, ...messages])]);
      const each = [`1:${PLACEHOLDER}`, `9:${'*'.repeat(Buffer.byteLength(VALUE))}`, '1:x'];
      t.strictSame(readMessages(out), [...each, ...each]);
      t.equal(asked, 1);
    }
  },
);

void t.test('malformed frames, a policy that cannot be read, and values that cannot be opened are told', async (t) => {
  const masked = writeFrame({ opcode: OPCODE.text, fin: true, isMasked: true, payload: [Buffer.from('x')] });
  await t.rejects(
    rewriteFrames(createWebSocketVeil({ currentVeils: async () => [veilOf(VALUE)] }), masked),
    WebSocketFault,
  );
  const failing = createWebSocketVeil({ currentVeils: () => Promise.reject(new Error('no store')) });
  await t.rejects(rewriteFrames(failing, frame(OPCODE.text, 'x')), { message: 'no store' });
  const policy = sessionPolicy([{ value: null, placeholder: PLACEHOLDER }]);
  const blind = createWebSocketVeil({
    currentVeils: async () => [compileVeil(policy, 'api.test')].filter((each) => each !== null),
  });
  t.strictSame(readMessages(await pushAll(blind, [frame(OPCODE.text, 'long enough')])), ['1:long enough']);
  t.equal(blind.impossible(), true);
});

void t.test('fragments are the same for right and wrong guesses of every length', async (t) => {
  const value = 'sk-ant-0123456789abcdefghij';
  const current = veilOf(value);
  const sizes = async (guess: string): Promise<string> => {
    const veil = createWebSocketVeil({ currentVeils: async () => [current] });
    const message = Buffer.from(`${'-'.repeat(400)}${guess}`);
    const result: string[] = [];
    for (const chunk of cut(frame(OPCODE.text, message), 100, 395, 404)) {
      const frames = await rewriteFrames(veil, chunk);
      result.push(frames.map(({ length }) => length).join());
    }
    return result.join(' ');
  };
  const differing: number[] = [];
  for (let known = 1; known < value.length; known += 1) {
    const right = value.slice(0, known);
    if ((await sizes(right)) !== (await sizes(`${right.slice(0, -1)}#`))) differing.push(known);
  }
  t.strictSame(differing, []);
});

void t.test('control frames are overwritten in their own length; a close keeps its code', async (t) => {
  const value = 'secret-value-1';
  const veil = createWebSocketVeil({ currentVeils: async () => [veilOf(value), veilOf('older-value')] });
  const code = Buffer.from([3, 240]);
  const out = await pushAll(veil, [
    frame(OPCODE.ping, `p ${value}`),
    frame(OPCODE.pong, 'older-value'),
    frame(OPCODE.ping, 'short'),
    frame(OPCODE.close, Buffer.concat([code, Buffer.from(`bad token ${value}`)])),
  ]);
  const stars = '*'.repeat(value.length);
  const close = `8:${code.toString('latin1')}bad token ${stars}`;
  t.strictSame(readMessages(out), [`9:p ${stars}`, '10:***********', '9:short', close]);
  t.strictSame(veil.veils(), [{ credentialId: 'vcrd_1', count: 3 }]);
  const none = createWebSocketVeil({ currentVeils: async () => [] });
  t.strictSame(readMessages(await pushAll(none, [frame(OPCODE.ping, value)])), [`9:${value}`]);
});

void t.test('random messages equal the plain reference', async (t) => {
  await fc.assert(webSocketProperty, { numRuns: 100, examples: CORPUS.map((echo) => [echo]) });
  t.pass();
});
