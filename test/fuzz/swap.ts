// Fuzzes the swap: node --import ./scripts/ts-register.mjs test/fuzz/swap.ts [seconds] [seed]. Inputs that failed once are
// kept in corpus/swap.json and tried first, every time.
import { strictEqual } from 'node:assert';
import { readFileSync, writeFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { ContentCodingError, type ContentCoding } from '../../proxy/swap/content-coding.ts';
import { decodeChunks } from '../../proxy/swap/body-streams.ts';
import { createDecoder } from '../../proxy/swap/decoder.ts';
import { createScanner } from '../../proxy/swap/scanner.ts';
import { FrameParser, WebSocketFault, writeFrame } from '../../proxy/swap/websocket-frames.ts';
import { createBench, cut, MODES } from '../proxy/swap/body-support.ts';
import { createRandom } from './http1-codec-corpus.ts';
import { checkCase, CODINGS, CONTENT_TYPES, encodeBody, PLACEHOLDERS } from './swap-corpus.ts';

interface FuzzInput {
  readonly target: string;
  readonly bytes: string;
  /** Chooses what else the target draws. */
  readonly seed: number;
}

type Random = () => number;

const TOKENS = [...PLACEHOLDERS, 'kvph_', 'sk-', 'kvph', '_', 'k', '{"a":"', '"}', ' ', '\n', '\\u00', '%', '&'];
const bench = createBench();
const resources = bench.resources({ bufferBytes: 2000, growthBytes: 1 << 20 });
const scanner = createScanner(PLACEHOLDERS);

function pick<Item>(items: readonly Item[], random: Random): Item {
  return items[Math.floor(random() * items.length)] as Item;
}

/** Text of tokens and parts of them, with some bytes changed. */
function randomBytes(random: Random): Buffer {
  let text = '';
  for (let count = Math.floor(random() * 20); count > 0; count -= 1) {
    const token = pick(TOKENS, random);
    text += random() < 0.7 ? token : token.slice(Math.floor(random() * token.length));
  }
  const bytes = Buffer.from(text);
  for (let count = Math.floor(random() * 3); count > 0 && bytes.length > 0; count -= 1) {
    bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
  }
  return bytes;
}

function outcome(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    if (error instanceof WebSocketFault) return error.closeCode;
    throw error;
  }
}

/** Pieces joined to frames, so that it doesn't matter how the bytes were cut; what came before a fault is kept. */
function framesOf(bytes: Buffer, length: number): unknown[] {
  const parser = new FrameParser({ isMasked: true });
  const frames: unknown[] = [];
  let payload = '';
  const fault = outcome(() => {
    for (const chunk of cut(Buffer.from(bytes), length)) {
      for (const piece of parser.push(Buffer.from(chunk))) {
        payload += piece.payload.toString('latin1');
        if (!piece.isLast) continue;
        frames.push([piece.opcode, piece.fin, payload]);
        payload = '';
      }
    }
    return null;
  });
  return [...frames, fault];
}

const TARGETS: Readonly<Record<string, (bytes: Buffer, random: Random) => Promise<void>>> = {
  async scanner(bytes) {
    const found: number[] = [];
    for (let match = scanner.find(bytes, 0); match !== null; match = scanner.find(bytes, match.end))
      found.push(match.start);
    const text = bytes.toString('latin1');
    const pattern = new RegExp([...PLACEHOLDERS].sort((a, b) => b.length - a.length).join('|'), 'g');
    strictEqual(String(found), String([...text.matchAll(pattern)].map((match) => match.index)), 'places');
    const held = scanner.heldFrom(bytes, 0);
    const isHeld = PLACEHOLDERS.some((each) =>
      Array.from(each).some((_, at) => at > 0 && text.endsWith(each.slice(0, at))),
    );
    if (isHeld && held === bytes.length) throw new Error('what may begin a placeholder is not held');
  },

  async body(bytes, random) {
    const values = [0, 1, 2].map(() =>
      pick(['real', 'a"b\n', '{', `<${PLACEHOLDERS[0] as string}>`, 'é\u{1f600}&+'], random),
    );
    const mode = pick(MODES, random);
    const chunkBytes = 1 + Math.floor(random() * 60);
    const rest = { contentType: pick(CONTENT_TYPES, random), coding: pick(CODINGS, random), mode, chunkBytes };
    const isLarge = mode === 'spooled' || mode === 'http2';
    const body = isLarge ? Buffer.concat([bytes, Buffer.alloc(2500, '.'), bytes]) : bytes;
    await checkCase({ values, body, ...rest }, isLarge ? bench.resources({ bufferBytes: 0 }) : resources);
  },

  async coding(bytes, random) {
    const coding = pick(CODINGS.slice(1), random);
    const encoded = Buffer.from(encodeBody(coding, bytes));
    const at = Math.floor(random() * encoded.length);
    if (random() < 0.8) encoded[at] = Math.floor(random() * 256);
    const decoder = createDecoder((coding === 'deflate-raw' ? 'deflate' : coding) as ContentCoding);
    const chunks = async function* (): AsyncGenerator<Buffer, void> {
      yield* cut(random() < 0.5 ? encoded : encoded.subarray(0, at), 1 + Math.floor(random() * 40));
    };
    try {
      for await (const _ of decodeChunks(chunks(), decoder));
    } catch (error) {
      if (!(error instanceof ContentCodingError)) throw error;
    }
  },

  async frames(bytes, random) {
    const frames: Buffer[] = [];
    for (let rest = bytes; rest.length > 0; rest = rest.subarray(1 + Math.floor(random() * 40))) {
      const payload = [rest.subarray(0, Math.floor(random() * 140))];
      frames.push(
        writeFrame({ opcode: pick([0, 1, 2, 8, 9, 10], random), fin: random() < 0.6, isMasked: true, payload }),
      );
    }
    const all = Buffer.concat(frames);
    if (random() < 0.5 && all.length > 0) all[Math.floor(random() * all.length)] = Math.floor(random() * 256);
    const whole = JSON.stringify(framesOf(all, all.length + 1));
    strictEqual(JSON.stringify(framesOf(all, 1 + Math.floor(random() * 9))), whole, 'cuts change the frames');
  },
};

async function tryInput({ target, bytes, seed }: FuzzInput): Promise<unknown> {
  try {
    await (TARGETS[target] as (typeof TARGETS)[string])(Buffer.from(bytes, 'base64'), createRandom(seed));
    return null;
  } catch (error) {
    return error;
  }
}

const corpusUrl = new URL('corpus/swap.json', import.meta.url);
const corpus = JSON.parse(readFileSync(corpusUrl, 'utf8')) as FuzzInput[];
const seconds = Number(process.argv[2] ?? 60);
const seed = Number(process.argv[3] ?? Date.now() % 2 ** 32);
const random = createRandom(seed);
const until = performance.now() + seconds * 1000;
const names = Object.keys(TARGETS);
let count = 0;
let faults = 0;
for (const known of corpus) {
  const fault = await tryInput(known);
  if (fault !== null) console.error(`kept input of ${known.target} fails: ${inspect(fault).slice(0, 300)}`);
  faults += fault === null ? 0 : 1;
}
while (performance.now() < until && faults < 10) {
  const input = {
    target: pick(names, random),
    bytes: randomBytes(random).toString('base64'),
    seed: Math.floor(random() * 2 ** 32),
  };
  const fault = await tryInput(input);
  count += 1;
  if (fault === null) continue;
  faults += 1;
  console.error(`${JSON.stringify(input)} fails: ${inspect(fault).slice(0, 300)}`);
  corpus.push(input);
  writeFileSync(corpusUrl, `${JSON.stringify(corpus, null, 2)}\n`);
}
await bench.close();
console.log(`seed ${seed}: ${corpus.length} kept, ${count} new inputs, ${faults} faults`);
process.exitCode = faults === 0 ? 0 : 1;
