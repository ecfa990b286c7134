// Fuzzes HTTP/2 inside a tunnel: frames in every order, with right and wrong lengths, flags, streams and fields.
import { frame } from '../support/raw-http2.ts';
import { HOST, openProxyScene, PLACEHOLDER, UNCOVERED } from './proxy-scene.ts';
import { below, cutText, mutateText, pick, type FuzzTarget, type Random } from './target.ts';

interface Input {
  /** Latin-1, after the TLS handshake that chose `h2`. */
  readonly pieces: readonly string[];
}

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
// RFC 9113 section 6.
const TYPE = { data: 0, headers: 1, priority: 2, reset: 3, settings: 4, push: 5, ping: 6, goaway: 7, window: 8 };
const CONTINUATION = 9;
const FLAG = { endStream: 1, endHeaders: 4, padded: 8, priority: 0x20 };

type Field = readonly [string, string];

const REQUEST: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', HOST],
  [':path', '/'],
];
const FIELDS: readonly Field[] = [
  ['x-key', PLACEHOLDER],
  ['authorization', `Bearer ${PLACEHOLDER}`],
  ['x-other', UNCOVERED],
  ['cookie', 'a=1'],
  ['cookie', `b=${PLACEHOLDER}`],
  ['content-length', '5'],
  ['content-type', 'application/json'],
  ['te', 'trailers'],
  ['te', 'gzip'],
  ['connection', 'close'],
  ['transfer-encoding', 'chunked'],
  ['host', 'other.test'],
  ['Upper', 'case'],
  ['', 'empty'],
  ['x-bytes', 'a\r\nb: c'],
  ['x-zero', '\0'],
  ['expect', '100-continue'],
  [':path', '/twice'],
  [':protocol', 'websocket'],
  [':unknown', 'x'],
  ['x-long', 'x'.repeat(4000)],
];

/** An integer with a prefix of so many bits (RFC 7541 section 5.1). */
function integer(value: number, prefixBits: number): number[] {
  const most = 2 ** prefixBits - 1;
  if (value < most) return [value];
  const bytes = [most];
  let rest = value - most;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return [...bytes, rest];
}

/** Literals without indexing. */
function fieldBlock(fields: readonly Field[]): Buffer {
  const text = (value: string): Buffer =>
    Buffer.concat([Buffer.from(integer(Buffer.byteLength(value, 'latin1'), 7)), Buffer.from(value, 'latin1')]);
  return Buffer.concat(fields.map(([name, value]) => Buffer.concat([Buffer.of(0), text(name), text(value)])));
}

function makeHeaders(stream: number, random: Random): Buffer {
  let fields: Field[] = [...REQUEST];
  if (random() < 0.4) fields[0] = [':method', pick(['POST', 'HEAD', 'OPTIONS', 'CONNECT', 'G ET'], random)];
  while (random() < 0.5) fields.push(pick(FIELDS, random));
  if (random() < 0.1) fields = fields.filter(() => random() < 0.8);
  if (random() < 0.1) fields.sort(() => random() - 0.5);
  let block = fieldBlock(fields);
  // Indexed fields, size updates and Huffman text, right and wrong.
  if (random() < 0.2) block = Buffer.concat([Buffer.of(below(256, random), below(256, random)), block]);
  const ends = random() < 0.5 ? FLAG.endStream : 0;
  if (random() < 0.15) {
    const at = below(block.length, random);
    const first = frame(TYPE.headers, stream, { flags: ends, payload: block.subarray(0, at) });
    const rest = { flags: random() < 0.9 ? FLAG.endHeaders : 0, payload: block.subarray(at) };
    return Buffer.concat([first, frame(CONTINUATION, random() < 0.95 ? stream : 1, rest)]);
  }
  if (random() < 0.1) {
    const padded = Buffer.concat([Buffer.of(below(12, random)), block, Buffer.alloc(5)]);
    return frame(TYPE.headers, stream, { flags: ends | FLAG.endHeaders | FLAG.padded, payload: padded });
  }
  return frame(TYPE.headers, stream, { flags: ends | FLAG.endHeaders, payload: block });
}

function number32(random: Random): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(pick([0, 1, 100, 65_535, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, below(2 ** 32, random)], random));
  return bytes;
}

function makeSettings(random: Random): Buffer {
  const count = below(4, random);
  const settings = Array.from({ length: count }, () =>
    Buffer.concat([Buffer.of(0, below(10, random)), number32(random)]),
  );
  return frame(TYPE.settings, random() < 0.95 ? 0 : 1, {
    flags: random() < 0.1 ? 1 : 0,
    payload: Buffer.concat(settings),
  });
}

function makeData(stream: number, random: Random): Buffer {
  const text = pick(['hello', `{"key":"${PLACEHOLDER}"}`, '', 'x'.repeat(9000), PLACEHOLDER.slice(0, 20)], random);
  const flags = (random() < 0.5 ? FLAG.endStream : 0) | (random() < 0.1 ? FLAG.padded : 0);
  return frame(TYPE.data, stream, { flags, payload: Buffer.from(text) });
}

function makeFrame(state: { next: number }, random: Random): Buffer {
  const open = Math.max(1, state.next - 2 * (1 + below(3, random)));
  const stream = random() < 0.9 ? open : pick([0, 2, state.next + 100, 2 ** 31 - 1], random);
  const kinds: readonly (() => Buffer)[] = [
    () => makeData(stream, random),
    () => makeSettings(random),
    () => frame(TYPE.window, pick([0, stream], random), { payload: number32(random) }),
    () => frame(TYPE.reset, stream, { payload: number32(random) }),
    () => frame(TYPE.ping, 0, { flags: below(2, random), payload: Buffer.alloc(random() < 0.9 ? 8 : 7) }),
    () => frame(TYPE.priority, stream, { payload: Buffer.alloc(random() < 0.9 ? 5 : 4, 1) }),
    () => frame(TYPE.goaway, 0, { payload: Buffer.alloc(8) }),
    () => frame(TYPE.push, stream, { payload: Buffer.alloc(4) }),
    () => frame(CONTINUATION, stream, { flags: FLAG.endHeaders, payload: fieldBlock([['x', 'y']]) }),
    () => frame(below(256, random), stream, { flags: below(256, random), payload: Buffer.alloc(below(30, random), 7) }),
  ];
  const isHeaders = random() < 0.4;
  if (!isHeaders) return pick(random() < 0.5 ? kinds.slice(0, 3) : kinds, random)();
  const number = random() < 0.95 ? state.next : stream;
  state.next += 2;
  return makeHeaders(number, random);
}

export async function openHttp2Target(): Promise<FuzzTarget> {
  const scene = await openProxyScene();
  return {
    make(random): Input {
      const state = { next: 1 };
      const frames = Array.from({ length: 1 + below(10, random) }, () => makeFrame(state, random).toString('latin1'));
      const text = `${random() < 0.97 ? frame(TYPE.settings, 0).toString('latin1') : ''}${frames.join('')}`;
      const changed = random() < 0.3 ? mutateText(text, ['\0', '\xff', '\0\0\x01'], random) : text;
      return { pieces: cutText((random() < 0.98 ? PREFACE : 'PRI * HTTP/1.1\r\n\r\n') + changed, 5, random) };
    },
    async attempt(input) {
      const tls = await scene.keyveil.tunnel(`${HOST}:443`, { ALPNProtocols: ['h2'] });
      return scene.judge(await scene.exchange(tls, (input as Input).pieces));
    },
    close: () => scene.close(),
  };
}
