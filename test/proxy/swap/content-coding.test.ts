// Content codings: decoding as a stream, bombs, turns at the thread pool, and stored blocks.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { test } from 'tap';
import { setImmediate } from 'node:timers/promises';
import zlib from 'node:zlib';
import {
  ContentCodingError,
  codingOf,
  DECODABLE_CODINGS,
  type ContentCoding,
  type DecoderLimits,
} from '../../../proxy/swap/content-coding.ts';
import { decodeChunks } from '../../../proxy/swap/body-streams.ts';
import { createDecoder, type Decoder } from '../../../proxy/swap/decoder.ts';
import {
  adler32,
  encodeStored,
  storedFormatOf,
  storedLength,
  type StoredFormat,
} from '../../../proxy/swap/stored-blocks.ts';
import { createTurnstile } from '../../../proxy/swap/turnstile.ts';
import { cut, decodeBody } from './body-support.ts';

async function* asChunks(chunks: readonly Buffer[]): AsyncGenerator<Buffer, void> {
  yield* chunks;
}

interface Decoded {
  readonly body: Buffer;
  readonly format: string;
}

async function decode(coding: ContentCoding, chunks: readonly Buffer[], limits?: DecoderLimits): Promise<Decoded> {
  const decoder = createDecoder(coding, limits);
  const body: Buffer[] = [];
  for await (const chunk of decodeChunks(asChunks(chunks), decoder)) body.push(chunk);
  return { body: Buffer.concat(body), format: decoder.format };
}

const PLAIN = Buffer.concat([randomBytes(20_000), Buffer.from('hello '.repeat(5_000))]);

const ENCODERS: readonly [ContentCoding, string, (bytes: Buffer) => Buffer][] = [
  ['gzip', 'gzip', (bytes) => zlib.gzipSync(bytes)],
  [
    'x-gzip',
    'gzip',
    (bytes) => Buffer.concat([zlib.gzipSync(bytes.subarray(0, 999)), zlib.gzipSync(bytes.subarray(999))]),
  ],
  ['deflate', 'zlib', (bytes) => zlib.deflateSync(bytes)],
  ['deflate', 'raw', (bytes) => zlib.deflateRawSync(bytes)],
  ['br', 'br', (bytes) => zlib.brotliCompressSync(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 } })],
];

test('every coding is undone, however its bytes are cut', async (t) => {
  for (const [coding, format, encode] of ENCODERS) {
    for (const plain of [PLAIN, Buffer.alloc(0)]) {
      const encoded = encode(plain);
      for (const length of [301, 5000, encoded.length]) {
        const decoded = await decode(coding, cut(encoded, length));
        t.ok(decoded.body.equals(plain), `${coding} as ${format} in chunks of ${String(length)}`);
        t.equal(decoded.format, format);
      }
    }
    const short = encode(Buffer.from('short'));
    t.same(await decode(coding, cut(short, 1)), { body: Buffer.from('short'), format }, 'byte by byte');
    t.same((await decode(coding, [])).body, Buffer.alloc(0), 'no bytes at all');
  }
});

test('bytes that are not whole, or not in the coding, fail', async (t) => {
  const malformed = { name: 'ContentCodingError', fault: 'malformed' } as unknown as Error;
  for (const [coding, format, encode] of ENCODERS) {
    const encoded = encode(PLAIN);
    const cases: [string, Buffer][] = [
      ['cut short', encoded.subarray(0, encoded.length - 1)],
      ['followed by more', Buffer.concat([encoded, Buffer.from('more')])],
      ['plain text', Buffer.from('{"not":"encoded"}')],
      ['one byte', Buffer.from('x')],
    ];
    if (format !== 'gzip') cases.push(['followed by zero bytes', Buffer.concat([encoded, Buffer.alloc(3)])]);
    for (const [name, bytes] of cases) {
      for (const length of [4999, bytes.length]) {
        await t.rejects(decode(coding, cut(bytes, length)), malformed, `${format}: ${name}`);
      }
    }
    const end = [encoded, Buffer.from('mo'), Buffer.from('re')];
    await t.rejects(decode(coding, end), malformed, `${format}: followed by more in chunks of its own`);
  }
});

test('gzip may be padded with zero bytes, in the same chunk or in others', async (t) => {
  const padded = Buffer.concat([zlib.gzipSync(PLAIN), Buffer.alloc(100)]);
  for (const length of [30, padded.length]) t.ok((await decode('gzip', cut(padded, length))).body.equals(PLAIN));
  const apart = [zlib.gzipSync(PLAIN), Buffer.alloc(5), Buffer.alloc(5)];
  t.ok((await decode('gzip', apart)).body.equals(PLAIN));
  await t.rejects(decode('gzip', [...apart, Buffer.from('x')]), { fault: 'malformed' } as unknown as Error);
});

test('each write of a stream comes out at once', async (t) => {
  const streams = [
    ['gzip', zlib.createGzip()],
    ['deflate', zlib.createDeflateRaw()],
    ['br', zlib.createBrotliCompress()],
  ] as const;
  for (const [coding, encoder] of streams) {
    const decoder = createDecoder(coding);
    encoder.on('data', (bytes: Buffer) => decoder.write(bytes));
    for (const event of ['first', 'second']) {
      encoder.write(event);
      encoder.flush();
      const [bytes] = (await once(decoder, 'data')) as [Buffer];
      t.equal(bytes.toString(), event, coding);
    }
    encoder.destroy();
    decoder.destroy();
    await once(decoder, 'close');
  }
});

test('a bomb is stopped where its ratio shows', async (t) => {
  const bomb = cut(zlib.gzipSync(Buffer.alloc(5_000_000)), 500);
  const limits = { bytesBeforeRatio: 100_000, ratioMax: 200 };
  await t.rejects(decode('gzip', bomb, limits), { fault: 'bomb' } as unknown as Error);
  t.equal((await decode('gzip', bomb, { ...limits, bytesBeforeRatio: 6_000_000 })).body.length, 5_000_000);
  t.ok((await decode('gzip', cut(zlib.gzipSync(PLAIN), 500), { ...limits, bytesBeforeRatio: 10 })).body.equals(PLAIN));
});

test('many streams take turns: all end, and a slow reader keeps none of them waiting', async (t) => {
  const whole = zlib.gzipSync(Buffer.alloc(2_000_000));
  const slow = [createDecoder('gzip'), createDecoder('gzip'), createDecoder('gzip')];
  for (const decoder of slow) {
    for (const chunk of cut(whole, 700)) decoder.write(chunk);
    decoder.end();
  }
  const sizes = await Promise.all(
    Array.from({ length: 6 }, async (_, index) => (await decode('gzip', cut(whole, 300 * (index + 1)))).body.length),
  );
  t.same(sizes, Array(6).fill(2_000_000));
  const read = async (decoder: AsyncIterable<Buffer>): Promise<number> => {
    let bytes = 0;
    for await (const chunk of decoder) bytes += chunk.length;
    return bytes;
  };
  t.same(await Promise.all(slow.map(read)), Array(3).fill(2_000_000), 'a reader that comes late still gets all');
});

test('a reader that waits until all is full, with others in line or without, gets all in order', async (t) => {
  const plain = randomBytes(300_000);
  const chunks = cut(zlib.gzipSync(plain, { level: 0 }), 10_000);
  const large = zlib.gzipSync(Buffer.alloc(2_000_000));
  const readSlowly = async (decoder: Decoder): Promise<boolean> => {
    const read: Buffer[] = [];
    while (!decoder.readableEnded) {
      while (decoder.readableLength < decoder.readableHighWaterMark && !decoder.writableFinished) await setImmediate();
      // What the thread pool had to do before this is done after it: the decoder stands still.
      await decode('gzip', [zlib.gzipSync('x'), zlib.gzipSync('y')]);
      read.push((decoder.read() as Buffer | null) ?? Buffer.alloc(0));
      await setImmediate();
    }
    return Buffer.concat(read).equals(plain);
  };
  const ended = createDecoder('gzip');
  for (const chunk of chunks) ended.write(chunk);
  ended.end();
  t.ok(await readSlowly(ended), 'written whole before it was read');
  t.ok(await readSlowly(Readable.from(chunks).pipe(createDecoder('gzip'))), 'alone');
  const others = [1, 2, 3].map(async () => (await decode('gzip', [large, large])).body.length);
  const slow = [1, 2, 3].map(() => readSlowly(Readable.from(chunks).pipe(createDecoder('gzip'))));
  t.same(await Promise.all(slow), [true, true, true]);
  t.same(await Promise.all(others), [4_000_000, 4_000_000, 4_000_000]);
});

test('streams whose readers are fast give their place on after each turn', async (t) => {
  const whole = zlib.gzipSync(Buffer.alloc(2_000_000));
  const ended: number[] = [];
  const runs = Array.from({ length: 5 }, async (_, index) => {
    const decoder = createDecoder('gzip');
    let bytes = 0;
    decoder.on('data', (chunk: Buffer) => (bytes += chunk.length));
    decoder.end(index === 4 ? zlib.gzipSync('small') : whole);
    await once(decoder, 'end');
    ended.push(index);
    return bytes;
  });
  t.same(await Promise.all(runs), [2_000_000, 2_000_000, 2_000_000, 2_000_000, 5]);
  t.equal(ended[0], 4, 'the small one does not wait for the large ones');
});

test('a stream that is destroyed while it waits for its turn gives the turn on', async (t) => {
  const encoded = zlib.gzipSync(Buffer.alloc(3_000_000));
  const decoders = Array.from({ length: 8 }, () => createDecoder('gzip'));
  for (const decoder of decoders) {
    decoder.resume();
    decoder.write(encoded);
  }
  for (const decoder of decoders.reverse()) decoder.destroy();
  t.equal((await decode('gzip', [encoded])).body.length, 3_000_000);
});

test('the source of a decoder may fail, and its reader may leave', async (t) => {
  const failing = async function* (): AsyncGenerator<Buffer, void> {
    yield zlib.gzipSync('x').subarray(0, 12);
    throw new Error('the client is gone');
  };
  const read = async (source: AsyncGenerator<Buffer, void>): Promise<void> => {
    for await (const _ of decodeChunks(source, createDecoder('gzip')));
  };
  await t.rejects(read(failing()), { message: 'the client is gone' });
  const decoder = createDecoder('gzip');
  for await (const _ of decodeChunks(asChunks(cut(zlib.gzipSync(PLAIN), 100)), decoder)) break;
  t.equal(decoder.destroyed, true);
});

test('the coding of a message is read from all of its fields', async (t) => {
  const of = (...values: string[]): unknown => codingOf(values.flatMap((value) => ['Content-Encoding', value]));
  t.same([of(), of(''), of('identity'), of('Identity, ')], [null, null, null, null]);
  t.same([of('GZIP'), of('identity, x-gzip'), of('deflate'), of(' br ')], ['gzip', 'x-gzip', 'deflate', 'br']);
  t.same([of('gzip, br'), of('gzip', 'gzip'), of('compress'), of('aws-chunked')], Array(4).fill('unsupported'));
  const hasZstd = 'createZstdDecompress' in zlib;
  t.equal(of('zstd'), hasZstd ? 'zstd' : 'unsupported');
  t.equal(DECODABLE_CODINGS.includes('zstd'), hasZstd);
  t.equal(new ContentCodingError('bomb', 'x').fault, 'bomb');
});

test(
  'zstd is undone where the runtime has it',
  { skip: !('createZstdDecompress' in zlib) && 'no zstd here' },
  async (t) => {
    const { zstdCompressSync } = zlib as unknown as { zstdCompressSync: (bytes: Buffer) => Buffer };
    for (const length of [100, 1 << 20]) {
      const decoded = await decode('zstd', cut(zstdCompressSync(PLAIN), length));
      t.ok(decoded.body.equals(PLAIN));
      t.equal(decoded.format, 'zstd');
    }
  },
);

test('stored blocks are read by every decoder, and their length is known before', async (t) => {
  const formats: [StoredFormat, string][] = [
    ['gzip', 'gzip'],
    ['zlib', 'deflate'],
    ['raw', 'deflate-raw'],
  ];
  for (const [format, coding] of formats) {
    for (const size of [0, 1, 65_534, 65_535, 65_536, 200_000]) {
      const plain = Buffer.alloc(size, 0xff);
      for (const length of [997, 70_000]) {
        const encoder = encodeStored(format);
        const encoded = Buffer.concat([
          ...cut(plain, length).flatMap((piece) => encoder.push(piece)),
          ...encoder.end(),
        ]);
        t.equal(encoded.length, storedLength(format, size));
        t.ok(decodeBody(coding, encoded).equals(plain), `${format}, ${String(size)} bytes`);
      }
      const live = encodeStored(format);
      const encoded = cut(plain, 9999).flatMap((piece) => [...live.push(piece), ...live.flush()]);
      t.ok(decodeBody(coding, Buffer.concat([...encoded, ...live.end()])).equals(plain), 'flushed after each piece');
    }
  }
  t.equal(adler32(Buffer.from('Wikipedia'), 1), 0x11e60398);
  t.same([storedFormatOf('raw'), storedFormatOf('br'), storedFormatOf(undefined)], ['raw', null, null]);
});

test('a turnstile lets so many in and the others in their order', async (t) => {
  const turnstile = createTurnstile(2);
  const entered: number[] = [];
  for (const number of [1, 2, 3, 4]) turnstile.enter(() => entered.push(number));
  t.same([entered, turnstile.isWaitedFor()], [[1, 2], true]);
  turnstile.leave();
  turnstile.leave();
  t.same([entered, turnstile.isWaitedFor()], [[1, 2, 3, 4], false]);
  turnstile.leave();
  turnstile.leave();
  turnstile.enter(() => entered.push(5));
  t.same(entered, [1, 2, 3, 4, 5]);
});
