// Request bodies: the vectors on every way through, framing, digests, bounds, misses, and failures.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { test } from 'tap';
import zlib from 'node:zlib';
import { KeyveilError } from '../../../model/errors.ts';
import { OBSERVED_BODY_BYTES_MAX } from '../../../model/limits.ts';
import type { PolicyCredential } from '../../../model/ports.ts';
import { headerValue, type RawHeaders } from '../../../proxy/exchange.ts';
import { prepareBody } from '../../../proxy/swap/body.ts';
import { bodyClassOf } from '../../../proxy/swap/body-class.ts';
import { chunksOf } from '../../../proxy/swap/body-streams.ts';
import { escapeForm, escapeJson } from '../../../proxy/swap/escaping.ts';
import { createBodyObserver } from '../../../proxy/swap/observer.ts';
import { compileSwapPlan, type SwapPlan } from '../../../proxy/swap/plan.ts';
import { openSpoolFile } from '../../../proxy/swap/spool-file.ts';
import { placeholderOf, sessionPolicy, type CredentialInput } from '../../support/policies.ts';
import { createBench, cut, decodeBody, MODES, prepare, readAll, send, type Mode } from './body-support.ts';
import { planOfVector, substitutionVectors } from './vectors.ts';

const ONE = placeholderOf('One');
const TWO = placeholderOf('Two');
const TARGET = { host: 'api.test', scheme: 'https' } as const;
const JSON_TYPE = ['Content-Type', 'application/json'];
const bench = createBench();

function planOf(...credentials: CredentialInput[]): SwapPlan {
  return compileSwapPlan(sessionPolicy(credentials), TARGET) as SwapPlan;
}

/** Resources with which a body of known length takes the way of the mode. */
function resourcesFor(mode: Mode): ReturnType<typeof bench.resources> {
  return bench.resources(mode === 'buffered' ? {} : { bufferBytes: 0 });
}

const never = new AbortController().signal;

test('every body of the vectors arrives as they say, on every way and wherever it is cut', async (t) => {
  for (const vector of substitutionVectors().filter(({ body }) => body.length > 0)) {
    const plan = planOfVector(vector);
    const places = new Set<number>();
    for (
      let at = vector.body.indexOf('kvph_');
      at >= 0 && places.size < 120;
      at = vector.body.indexOf('kvph_', at + 1)
    ) {
      for (let offset = -14; offset <= 38; offset += 1) places.add(Math.max(1, at + offset));
    }
    for (const mode of MODES) {
      const resources = resourcesFor(mode);
      // A write to the disk for each byte of the long ones would take a second each.
      const shortest = mode === 'spooled' && vector.body.length > 500 ? 40 : 1;
      const cuts = [cut(vector.body, shortest), [vector.body]];
      if (mode === 'streamed')
        for (const at of places) cuts.push([vector.body.subarray(0, at), vector.body.subarray(at)]);
      for (const chunks of cuts) {
        const { headers, body, prepared } = await send({ plan, headers: vector.headers, chunks, mode, resources });
        const decoded = decodeBody(headerValue(headers, 'content-encoding'), body);
        if (!decoded.equals(vector.expectedBody)) t.fail(`${vector.name}, ${mode}, ${String(chunks.length)} chunks`);
        if (prepared.framing.kind !== 'length') continue;
        if (headerValue(headers, 'content-length') !== String(body.length)) t.fail(`${vector.name}: Content-Length`);
      }
    }
    t.pass(vector.name);
  }
});

test('an unchanged body of known length keeps its bytes, its fields and its length', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const gzipped = zlib.gzipSync(`{"a":"kvph_ ${TWO}"}`, { level: 9 });
  for (const [body, more] of [
    [Buffer.from('{"no":"kvph_ here"}'), []],
    [Buffer.from('kvph_ and kvph_One'), []],
    [gzipped, ['Content-Encoding', 'gzip', 'Content-MD5', 'as it was', 'Digest', 'x=y']],
  ] as const) {
    for (const mode of ['buffered', 'spooled'] as const) {
      const headers = [...JSON_TYPE, ...more];
      const sent = await send({ plan, headers, chunks: cut(body, 5), mode, resources: resourcesFor(mode) });
      t.ok(sent.body.equals(body));
      t.same(sent.headers, [...headers, 'content-length', String(body.length)]);
      t.same(sent.prepared.framing, { kind: 'length', bytes: body.length });
      t.same([sent.prepared.swaps(), sent.prepared.misses()], [[], []]);
    }
  }
});

test('a body of unknown length streams, and so does one that can be kept nowhere', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const chunks = [Buffer.from(`{"k":"${ONE}"}`)];
  const headers = [...JSON_TYPE, 'Digest', 'md5=abc', 'Accept', '*/*'];
  for (const [mode, resources] of [
    ['streamed', bench.resources()],
    ['http2', bench.resources({ bufferBytes: 0 })],
    ['spooled', bench.resources({ bufferBytes: 0, spoolBytes: 10 })],
    ['spooled', bench.resources({ memoryBytes: 40, spoolBytes: 0 })],
  ] as const) {
    const sent = await send({ plan, headers, chunks, mode, resources });
    t.same(sent.prepared.framing, { kind: 'stream' });
    t.same(sent.headers, [...JSON_TYPE, 'Accept', '*/*'], 'without length and digests');
    t.equal(sent.body.toString(), '{"k":"real"}');
    t.same(sent.prepared.swaps(), [
      { credentialId: 'vcrd_1', secretName: 'SECRET_1', secretVersion: 1, location: 'body', count: 1 },
    ]);
  }
});

test('a streamed body gives what it has at once', async (t) => {
  const input = new PassThrough();
  const prepared = await prepareBody(input, {
    plan: planOf({ placeholder: ONE, value: 'real' }),
    headers: ['Content-Type', 'application/x-ndjson'],
    framing: { kind: 'stream' },
    upstreamIsHttp2: false,
    resources: bench.resources(),
    sessionId: 'sesn_1',
    signal: never,
  });
  const body = prepared.body as Readable;
  for (const line of [`{"k":"${ONE}"}\n`, '{"k":1}\n', 'kvph']) {
    input.write(line);
    const [bytes] = (await once(body, 'data')) as [Buffer];
    t.equal(bytes.toString(), line === 'kvph' ? 'never' : line.replace(ONE, 'real'));
    if (line === '{"k":1}\n') break;
  }
  input.end();
  await once(body, 'end');
});

test('a memory lease and a spool file last until the body is let go', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const chunks = [Buffer.from(ONE), Buffer.alloc(100)];
  const resources = bench.resources();
  const buffered = await prepare({ plan, headers: [], chunks, mode: 'buffered', resources });
  t.same(resources.usage(), { memoryBytes: 104, spoolBytes: 0, spoolFiles: 0 }, 'of the result alone');
  buffered.dispose();
  buffered.dispose();
  t.same(resources.usage(), { memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 });
  const untouched = await prepare({ plan, headers: [], chunks: chunks.slice(1), mode: 'buffered', resources });
  t.equal(resources.usage().memoryBytes, 100);
  untouched.dispose();
  const spooling = bench.resources({ bufferBytes: 0 });
  const spooled = await prepare({ plan, headers: [], chunks, mode: 'spooled', resources: spooling });
  t.same(spooling.usage(), { memoryBytes: 0, spoolBytes: 137, spoolFiles: 1 });
  t.same(readdirSync(join(bench.directory, 'spool')), [], 'the file has no name');
  t.equal(statSync(join(bench.directory, 'spool')).mode & 0o777, 0o700);
  t.equal((await readAll(spooled.body)).length, 104);
  spooled.dispose();
  await spooling.close();
  t.same(spooling.usage(), { memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 });
  await t.rejects(spooling.openSpool(1), { code: 'shutting_down' });
});

test('one session may have a quarter of the memory, all together the whole', async (t) => {
  const resources = bench.resources({ memoryBytes: 400 });
  const leases = [1, 2, 3, 4].map((number) => resources.reserveMemory(`sesn_${String(number)}`, 90));
  t.ok(leases.every((lease) => lease !== null));
  t.equal(resources.reserveMemory('sesn_1', 11), null, 'over its quarter');
  const rest = resources.reserveMemory('sesn_1', 10);
  t.ok(rest);
  t.equal(resources.reserveMemory('sesn_5', 31), null, 'over all');
  rest?.release();
  rest?.release();
  t.ok(resources.reserveMemory('sesn_5', 40), 'what was given back can be had again');
});

test('a stop of the spool that comes while a file is opened closes it', async (t) => {
  const resources = bench.resources();
  const opening = resources.openSpool(5);
  await resources.close();
  await t.rejects(opening, { code: 'shutting_down' });
  t.equal(resources.usage().spoolBytes, 0);
});

test('digests of a swapped body are those of what is sent', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const digest = (hash: string, body: Buffer): string => createHash(hash).update(body).digest('base64');
  const given = [
    ['Content-MD5', 'old'],
    ['digest', 'SHA-256=old==, unixsum=30637,md5=old'],
    ['Content-Digest', 'sha-512=:old:, sha-256=:old:'],
    ['Repr-Digest', 'sha=:old:'],
    ['Digest', 'crc32c=AAA, nonsense'],
    ['X-Other', 'kept'],
  ].flat();
  for (const more of [[], ['Content-Encoding', 'gzip']]) {
    const plain = Buffer.from(`{"k":"${ONE}"}`);
    const chunks = [more.length === 0 ? plain : zlib.gzipSync(plain)];
    const resources = bench.resources();
    const { body, headers } = await send({
      plan,
      headers: [...JSON_TYPE, ...more, ...given],
      chunks,
      mode: 'buffered',
      resources,
    });
    t.same(headers, [
      ...JSON_TYPE,
      ...more,
      ...['Content-MD5', digest('md5', body)],
      ...['digest', `SHA-256=${digest('sha256', body)},md5=${digest('md5', body)}`],
      ...['Content-Digest', `sha-512=:${digest('sha512', body)}:, sha-256=:${digest('sha256', body)}:`],
      ...['Repr-Digest', `sha=:${digest('sha1', body)}:`],
      ...['X-Other', 'kept'],
      ...['content-length', String(body.length)],
    ]);
  }
  const spooled = await send({
    plan,
    headers: given,
    chunks: [Buffer.from(ONE)],
    mode: 'spooled',
    resources: resourcesFor('spooled'),
  });
  t.same(spooled.headers, ['X-Other', 'kept', 'content-length', '4']);
});

test('what grows beyond the buffer is sent in pieces with its exact length and digests', async (t) => {
  const value = 'v'.repeat(30_000);
  const plan = planOf({ placeholder: ONE, value });
  const resources = bench.resources({ bufferBytes: 4000 });
  const body = Buffer.from(Array(100).fill(ONE).join(' '));
  const sent = await send({ plan, headers: ['Content-MD5', 'x'], chunks: [body], mode: 'buffered', resources });
  const expected = Buffer.from(body.toString().replaceAll(ONE, value));
  t.ok(sent.body.equals(expected));
  t.ok(sent.prepared.body instanceof Readable);
  t.equal(headerValue(sent.headers, 'content-length'), String(expected.length));
  t.equal(headerValue(sent.headers, 'content-md5'), createHash('md5').update(expected).digest('base64'));
});

test('a swapped body leaves gzip and deflate as stored blocks, br without coding, and raw deflate raw', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const plain = Buffer.from(`${'a'.repeat(1000)}${ONE}`);
  const cases: [string, string, Buffer][] = [
    ['gzip', 'gzip', zlib.gzipSync(plain)],
    ['x-gzip', 'gzip', zlib.gzipSync(plain)],
    ['deflate', 'deflate', zlib.deflateSync(plain)],
    ['deflate', 'deflate-raw', zlib.deflateRawSync(plain)],
    ['br', 'identity', zlib.brotliCompressSync(plain)],
  ];
  for (const [name, decoder, encoded] of cases) {
    for (const mode of MODES) {
      const headers = ['Content-Encoding', name, 'Content-Type', 'text/plain'];
      const sent = await send({ plan, headers, chunks: cut(encoded, 20), mode, resources: resourcesFor(mode) });
      t.equal(headerValue(sent.headers, 'content-encoding'), name === 'br' ? undefined : name, `${name}, ${mode}`);
      t.equal(decodeBody(decoder, sent.body).toString(), `${'a'.repeat(1000)}real`);
    }
  }
});

test('bodies in a coding that can not be undone pass as they are and are recorded', async (t) => {
  const archived = [{ credentialId: 'vcrd_9', secretName: 'OLD', placeholder: TWO }];
  const plan = compileSwapPlan(sessionPolicy([{ placeholder: ONE, value: 'real' }], archived), TARGET) as SwapPlan;
  const plain = Buffer.from(`{"k":"${ONE}"}`);
  const cases: [string, Buffer][] = [
    ['compress', plain],
    ['gzip, br', plain],
    ['gzip', plain],
    ['br', Buffer.alloc(300, 0xff)],
    ['deflate', Buffer.from('x')],
    ['gzip', zlib.gzipSync(plain).subarray(0, 10)],
  ];
  for (const [name, body] of cases) {
    for (const mode of MODES) {
      const headers = ['Content-Encoding', name, ...JSON_TYPE];
      const sent = await send({ plan, headers, chunks: cut(body, 7), mode, resources: resourcesFor(mode) });
      t.ok(sent.body.equals(body), `${name}, ${mode}`);
      t.equal(headerValue(sent.headers, 'content-encoding'), name);
      t.equal(headerValue(sent.headers, 'content-length'), mode === 'streamed' ? undefined : String(body.length));
      t.same(sent.prepared.misses(), [
        { credentialId: 'vcrd_1', secretName: 'SECRET_1', location: 'body', reason: 'unsupported_encoding' },
      ]);
    }
  }
});

test('a streamed body that turns out damaged after its start fails instead of ending', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const encoded = zlib.gzipSync(Buffer.concat([Buffer.from(ONE), Buffer.alloc(300_000)]), { level: 0 });
  const chunks = cut(encoded.subarray(0, encoded.length - 3), 50_000);
  const input = {
    plan,
    headers: ['Content-Encoding', 'gzip'],
    chunks,
    mode: 'streamed' as const,
    resources: bench.resources(),
  };
  await t.rejects(send(input), { code: 'bad_request', message: /is not whole gzip data/ });
});

test('a gzip start that gives nothing for long goes on without a way back', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  // RFC 1952: a file name of any length stands before the data.
  const named = Buffer.from([0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3]);
  const data = zlib.gzipSync(ONE).subarray(10);
  const input = {
    plan,
    headers: ['Content-Encoding', 'gzip'],
    mode: 'streamed' as const,
    resources: bench.resources(),
  };
  const chunks = [named, Buffer.alloc(40_000, 'n'), Buffer.alloc(40_000, 'n'), Buffer.from([0]), data];
  t.equal(zlib.gunzipSync((await send({ ...input, chunks })).body).toString(), 'real');
  await t.rejects(send({ ...input, chunks: chunks.slice(0, 4) }), { code: 'bad_request' });
});

test('a bomb is refused while it is measured, and ends a stream', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const chunks = cut(zlib.gzipSync(Buffer.alloc(20_000_000)), 1000);
  const decoderLimits = { bytesBeforeRatio: 1_000_000, ratioMax: 200 };
  for (const mode of MODES) {
    const resources = bench.resources({ decoderLimits, ...(mode === 'buffered' ? {} : { bufferBytes: 0 }) });
    const input = { plan, headers: ['Content-Encoding', 'gzip'], chunks, mode, resources };
    await t.rejects(send(input), { code: 'bad_request', message: /decodes to far more/ }, mode);
  }
});

test('200,000 placeholders with a value of 32 KiB are refused on every way, with flat memory', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'v'.repeat(32 * 1024) });
  const body = Buffer.from(`${ONE}\n`.repeat(200_000));
  const gzipped = zlib.gzipSync(body);
  for (const [mode, headers, bytes] of [
    ['spooled', [], body],
    ['streamed', [], body],
    ['buffered', ['Content-Encoding', 'gzip'], gzipped],
    ['streamed', ['Content-Encoding', 'gzip'], gzipped],
  ] as const) {
    const resources = bench.resources();
    const before = process.memoryUsage().rss;
    let sentBytes = 0;
    const attempt = async (): Promise<void> => {
      const prepared = await prepare({ plan, headers, chunks: cut(bytes, 65_536), mode, resources });
      for await (const chunk of prepared.body as Readable) sentBytes += (chunk as Buffer).length;
    };
    await t.rejects(attempt(), { code: 'swap_too_large', status: 413 }, mode);
    t.ok(process.memoryUsage().rss - before < 100 << 20, `memory stays flat, ${mode}`);
    if (mode !== 'streamed') t.equal(sentBytes, 0, 'before a byte was sent');
  }
});

test('a value that can not be opened refuses the request before anything is sent, or ends the stream', async (t) => {
  const plan = planOf({ placeholder: ONE, value: null });
  for (const mode of ['buffered', 'spooled'] as const) {
    const resources = resourcesFor(mode);
    await t.rejects(prepare({ plan, headers: [], chunks: [Buffer.from(ONE)], mode, resources }), {
      code: 'credential_unreadable',
    });
    t.same(resources.usage(), { memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 });
  }
  const prepared = await prepare({
    plan,
    headers: [],
    chunks: [Buffer.from(`x${ONE}`)],
    mode: 'streamed',
    resources: bench.resources(),
  });
  await t.rejects(readAll(prepared.body), { code: 'credential_unreadable' });
});

test('a value that can be opened once and not again leaves nothing reserved', async (t) => {
  const [credential] = sessionPolicy([{ placeholder: ONE, value: 'real' }]).credentials;
  let opened = 0;
  const policy = {
    ...sessionPolicy([]),
    credentials: [
      {
        ...(credential as PolicyCredential),
        open() {
          opened += 1;
          if (opened > 1) throw new KeyveilError('credential_unreadable', 'The row was damaged just now.');
          return (credential as PolicyCredential).open();
        },
      },
    ],
  };
  const plan = compileSwapPlan(policy, TARGET) as SwapPlan;
  const resources = bench.resources();
  const attempt = send({ plan, headers: [], chunks: [Buffer.from(ONE)], mode: 'buffered', resources });
  await t.rejects(attempt, { code: 'credential_unreadable' });
  t.equal(resources.usage().memoryBytes, 0);
});

test('a length that does not change with the swap stays in its field', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'v'.repeat(ONE.length) });
  const sent = await send({
    plan,
    headers: ['A', 'b'],
    chunks: [Buffer.from(ONE)],
    mode: 'buffered',
    resources: bench.resources(),
  });
  t.same(sent.headers, ['A', 'b', 'content-length', String(ONE.length)]);
  t.equal(sent.body.toString(), 'v'.repeat(ONE.length));
});

test('a body that ends early, fails or is aborted is never taken for complete', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const abortion = new AbortController();
  const options = {
    plan,
    headers: [] as RawHeaders,
    upstreamIsHttp2: false,
    sessionId: 'sesn_1',
    signal: abortion.signal,
  };
  const attempts = (act: (input: PassThrough) => void): Promise<void>[] =>
    MODES.map(async (mode) => {
      const input = new PassThrough();
      input.on('error', () => undefined);
      input.write('12345');
      const framing = mode === 'streamed' ? ({ kind: 'stream' } as const) : ({ kind: 'length', bytes: 10 } as const);
      const resources = resourcesFor(mode);
      const reading = prepareBody(input, { ...options, framing, resources, upstreamIsHttp2: mode === 'http2' }).then(
        async (prepared) => {
          const read = readAll(prepared.body);
          act(input);
          await read;
        },
      );
      if (mode === 'buffered' || mode === 'spooled') act(input);
      await reading.finally(() => t.same(resources.usage(), { memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 }));
    });
  const ended = { code: 'bad_request' };
  await Promise.all(attempts((input) => input.destroy()).map((attempt) => t.rejects(attempt, ended)));
  const reset = attempts((input) => input.destroy(new Error('reset')));
  await Promise.all(reset.map((attempt) => t.rejects(attempt, { message: 'reset' })));
  const short = { code: 'bad_request', message: /has 5 bytes, but its Content-Length says 10/ };
  const shortened = attempts((input) => input.end());
  await Promise.all(
    shortened.map((attempt, index) => (MODES[index] === 'streamed' ? attempt : t.rejects(attempt, short))),
  );
  const aborted = attempts(() => abortion.abort(new Error('given up')));
  await Promise.all(aborted.map((attempt) => t.rejects(attempt, { message: 'given up' })));
});

test('a stream that is let go stops reading and leaves its source alone', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  for (const headers of [[], ['Content-Encoding', 'gzip']]) {
    const input = new PassThrough();
    input.write(headers.length === 0 ? 'abc' : zlib.gzipSync('abc').subarray(0, 15));
    const framing = { kind: 'stream' } as const;
    const resources = bench.resources();
    const prepared = await prepareBody(input, {
      ...{ plan, headers, framing, resources, upstreamIsHttp2: false, sessionId: 'sesn_1', signal: never },
    });
    const body = prepared.body as Readable;
    await once(body, 'readable');
    prepared.dispose();
    await once(body, 'close');
    t.equal(input.destroyed, false);
    t.equal(input.listenerCount('readable'), 0);
  }
  const input = new PassThrough();
  const abortion = new AbortController();
  const gzip = {
    plan,
    headers: ['Content-Encoding', 'gzip'],
    resources: bench.resources(),
    upstreamIsHttp2: false,
    sessionId: 'sesn_1',
  };
  const preparing = prepareBody(input, { ...gzip, framing: { kind: 'stream' }, signal: abortion.signal });
  abortion.abort(new Error('given up'));
  await t.rejects(preparing, { message: 'given up' });
  t.equal(input.destroyed, false);
});

test('a body that may not be touched passes with its framing, and what is in it is recorded', async (t) => {
  const on = planOf({ placeholder: ONE, value: 'real' });
  const off = planOf({ placeholder: ONE, value: 'real', body: false });
  for (const [plan, type, reason] of [
    [on, 'application/grpc', 'binary_framing'],
    [off, 'application/json', 'location_disabled'],
  ] as const) {
    for (const mode of MODES) {
      const chunks = cut(Buffer.from(`..${ONE}..kvph_`), 9);
      const sent = await send({ plan, headers: ['Content-Type', type], chunks, mode, resources: bench.resources() });
      t.ok(sent.body.equals(Buffer.concat(chunks)));
      t.equal(sent.prepared.framing.kind, mode === 'streamed' ? 'stream' : 'length');
      t.same(
        sent.prepared.misses().map((miss) => miss.reason),
        [reason],
      );
      t.same(sent.prepared.swaps(), []);
    }
  }
  const none = await prepareBody(Readable.from([]), {
    ...{ plan: on, headers: ['A', 'b'], framing: { kind: 'none' }, upstreamIsHttp2: false },
    ...{ resources: bench.resources(), sessionId: 'sesn_1', signal: never },
  });
  t.same([none.headers, none.body, none.framing.kind], [['A', 'b'], Buffer.alloc(0), 'none']);
});

test('an observer sees the first MiB, decoded where it can be', async (t) => {
  const plan = planOf(
    { placeholder: ONE, value: 'real', body: false },
    { placeholder: TWO, value: 'real', hosts: ['x.test'] },
  );
  const reasons = (headers: RawHeaders, chunks: readonly Buffer[]): unknown => {
    const observer = createBodyObserver(plan, headers);
    for (const chunk of chunks) observer.push(chunk);
    return observer.misses().map((miss) => miss.reason);
  };
  t.same(reasons([], cut(Buffer.from(`${ONE} ${ONE} ${TWO}`), 3)), ['location_disabled', 'host_not_covered']);
  t.same(reasons([], [Buffer.alloc(OBSERVED_BODY_BYTES_MAX - 37), Buffer.from(ONE)]), ['location_disabled']);
  t.same(reasons([], [Buffer.alloc(OBSERVED_BODY_BYTES_MAX - 36), Buffer.from(ONE), Buffer.from(TWO)]), []);
  t.same(reasons(['Content-Encoding', 'compress'], [Buffer.from(ONE)]), []);
  const observer = createBodyObserver(plan, ['Content-Encoding', 'gzip']);
  for (const chunk of cut(zlib.gzipSync(`${ONE} and more`), 11)) observer.push(chunk);
  const seen = new Promise<void>((resolve) => {
    const look = (): void => void (observer.misses().length > 0 ? resolve() : setImmediate(look));
    look();
  });
  await seen;
  t.same(
    observer.misses().map((miss) => miss.credentialId),
    ['vcrd_1'],
  );
  const damaged = createBodyObserver(plan, ['Content-Encoding', 'gzip']);
  damaged.push(Buffer.from('not gzip'));
  damaged.push(Buffer.alloc(100_000));
  damaged.push(Buffer.from('more'));
  t.same(damaged.misses(), []);
});

test('the class of a body follows its content type', async (t) => {
  const classOf = (type: string): string => bodyClassOf(['content-type', type]);
  for (const type of [
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/ld+json',
    'application/x-ndjson',
    'application/json-seq',
  ]) {
    t.equal(classOf(type), 'json', type);
  }
  for (const type of [
    'application/grpc',
    'application/grpc-web-text',
    'application/grpc+json',
    'application/x-protobuf',
    'application/vnd.google.protobuf',
    'application/cbor',
    'application/senml+cbor',
    'application/msgpack',
    'application/connect+json',
    'application/x-git-upload-pack-request',
  ]) {
    t.equal(classOf(type), 'binary', type);
  }
  t.equal(classOf('application/x-www-form-urlencoded;charset=x'), 'form');
  for (const type of [
    '',
    'text/plain',
    'multipart/form-data; boundary=json',
    'application/octet-stream',
    'image/png',
    'application/jsonp',
  ]) {
    t.equal(classOf(type), 'raw', type);
  }
  t.equal(bodyClassOf([]), 'raw');
});

test('a form may be JSON, by its first byte that is not blank, wherever it is cut', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'a"&b' });
  const headers = ['Content-Type', 'application/x-www-form-urlencoded'];
  for (const [body, expected] of [
    [` \r\n\t[" ${ONE}"]`, ' \r\n\t[" a\\"&b"]'],
    [` \nk=${ONE}`, ' \nk=a%22%26b'],
    [ONE, 'a%22%26b'],
    [' ', ' '],
  ] as const) {
    for (const length of [1, 4, 100]) {
      const chunks = cut(Buffer.from(body), length);
      const sent = await send({ plan, headers, chunks, mode: 'streamed', resources: bench.resources() });
      t.equal(sent.body.toString(), expected);
    }
  }
});

test('escaping leaves text of every plane as it is and changes only what must be', async (t) => {
  const text = `\0\x01\b\t\n\f\r\x1f "\\/\x7f é☃\u{1f600}`;
  t.equal(escapeJson(Buffer.from(text)).toString(), JSON.stringify(text).slice(1, -1));
  t.equal(escapeForm(Buffer.from(text)).toString(), new URLSearchParams([['', text]]).toString().slice(1));
});

test('a spool that the disk does not take is an overload', async (t) => {
  const file = join(bench.directory, 'a-file');
  writeFileSync(file, '');
  await t.rejects(openSpoolFile(join(file, 'spool')), { code: 'overloaded', message: /ENOTDIR/ });
  const resources = bench.resources({ spoolDirectory: join(file, 'spool') });
  await t.rejects(resources.openSpool(5), { code: 'overloaded' });
  t.equal(resources.usage().spoolBytes, 0);
  const folder = join(bench.directory, 'open');
  mkdirSync(folder);
  chmodSync(folder, 0o700);
  const spool = await openSpoolFile(folder);
  await spool.write(Buffer.from('12345'));
  await spool.close();
  await spool.close();
  await t.rejects(spool.write(Buffer.from('6')), { code: 'overloaded' });
  await t.rejects(spool.chunks().next(), { code: 'overloaded' });
});

test('chunks of a stream that has ended already are none', async (t) => {
  const input = Readable.from([]);
  input.resume();
  await once(input, 'end');
  for await (const _ of chunksOf(input, never)) t.fail('no chunk');
});

test('the folder of the tests is given back', async (t) => {
  await bench.close();
  t.pass();
});
