import { once } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import zlib from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { DECODABLE_CODINGS } from '../../../proxy/swap/content-coding.ts';
import { CORPUS } from '../../fuzz/veil-corpus.ts';
import { cut, oneByteEach, PLACEHOLDER, textForms, VALUE, veilOf } from './echoes.ts';
import { responseProperty } from './properties.ts';
import { ENCODERS, fixture, headOf, Memory, send } from './response-fixture.ts';

const ECHO = Buffer.from(`{"echo":${JSON.stringify(VALUE)}}`);
/** The value as it stands in a field. */
const LATIN1 = Buffer.from(VALUE).toString('latin1');
const VEILED = `{"echo":"${PLACEHOLDER}"}`;

void t.test('a small body of known length gets its exact length, and loses what describes the old one', async (t) => {
  const headers = [
    'Content-Type',
    'application/json',
    'content-length',
    String(ECHO.length),
    'ETag',
    '"v1"',
    'Digest',
    'md5=x',
  ];
  for (const chunks of [[ECHO], oneByteEach(ECHO)]) {
    const run = fixture();
    await send(run, headOf(headers, { kind: 'length', bytes: ECHO.length }), { chunks });
    t.equal(run.client.body, VEILED);
    t.equal(run.client.field('content-length'), String(VEILED.length));
    t.strictSame(run.client.received?.body, { kind: 'length', bytes: VEILED.length });
    t.equal(run.client.field('etag'), 'W/"v1"');
    t.equal(run.client.field('digest'), undefined);
    t.strictSame(run.veil.veils(), [{ credentialId: 'vcrd_1', count: 1 }]);
    t.equal(run.veil.impossible(), false);
    t.equal(run.memory.used, 0);
  }
});

void t.test('a response without an occurrence passes as it came', async (t) => {
  const body = Buffer.from('{"ok":true}');
  const head = headOf(['Content-Length', '11', 'ETag', '"v1"', 'Content-MD5', 'x'], { kind: 'length', bytes: 11 });
  const run = fixture();
  await send(run, head, { chunks: [body], trailers: ['X-A', '1'] });
  t.equal(run.client.received, head, 'the very same head');
  t.equal(run.client.body, body.toString());
  t.strictSame(run.client.trailers, ['X-A', '1']);
  t.strictSame(run.veil.veils(), []);
  const empty = fixture();
  await send(empty, headOf(['Content-Length', '0'], { kind: 'length', bytes: 0 }), { chunks: [] });
  t.equal(empty.client.body, '');
});

void t.test('coded bodies are decoded, veiled and sent without their coding', async (t) => {
  for (const coding of DECODABLE_CODINGS) {
    const coded = ENCODERS[coding](ECHO);
    const headers = [
      'Content-Encoding',
      coding,
      'Content-Length',
      String(coded.length),
      'ETag',
      '"v1"',
      'Repr-Digest',
      'x',
    ];
    const known = fixture();
    await send(known, headOf(headers, { kind: 'length', bytes: coded.length }), { chunks: oneByteEach(coded) });
    t.equal(known.client.body, VEILED, coding);
    t.strictSame(known.client.received?.headers, ['Content-Length', String(VEILED.length), 'ETag', 'W/"v1"']);
    const streamed = fixture();
    await send(streamed, headOf(['content-encoding', coding.toUpperCase()], { kind: 'stream' }), {
      chunks: [coded],
      trailers: ['Digest', 'x', 'X-Echo', LATIN1],
    });
    t.equal(streamed.client.body, VEILED);
    t.strictSame(streamed.client.received?.body, { kind: 'stream' });
    t.strictSame(streamed.client.trailers, ['X-Echo', PLACEHOLDER]);
  }
});

void t.test('a coded body that is larger than the buffer once it is decoded streams', async (t) => {
  const body = Buffer.concat([Buffer.alloc(100_000, 0x61), ECHO]);
  const coded = zlib.gzipSync(body);
  const run = fixture();
  const head = headOf(['Content-Encoding', 'gzip', 'Content-Length', String(coded.length)], {
    kind: 'length',
    bytes: coded.length,
  });
  await send(run, head, { chunks: [coded] });
  t.equal(run.client.body, 'a'.repeat(100_000) + VEILED);
  t.strictSame(run.client.received?.body, { kind: 'stream' });
  t.equal(run.client.field('content-length'), undefined);
  t.equal(run.memory.used, 0);
  const cramped = fixture(veilOf(VALUE), { memory: new Memory(10) });
  const small = zlib.gzipSync(ECHO);
  await send(cramped, headOf(head.headers, { kind: 'length', bytes: small.length }), { chunks: [small] });
  t.equal(cramped.client.body, VEILED);
  t.strictSame(cramped.client.received?.body, { kind: 'stream' }, 'nor is there memory to read it whole');
});

void t.test('where a length was stated, occurrences are overwritten', async (t) => {
  const body = Buffer.concat([Buffer.alloc(70_000, 0x61), ECHO, Buffer.alloc(70_000, 0x62)]);
  const wanted = `${'a'.repeat(70_000)}{"echo":"${'*'.repeat(ECHO.length - 11)}"}${'b'.repeat(70_000)}`;
  const chunks = cut(body, 1000, 70_020, 70_030, 70_100);
  const headers = ['Content-Length', String(body.length), 'Content-Digest', 'x', 'ETag', '"v1"'];
  const long = fixture();
  await send(long, headOf(headers, { kind: 'length', bytes: body.length }), { chunks });
  t.equal(long.client.body, wanted);
  t.strictSame(long.client.received?.body, { kind: 'length', bytes: body.length });
  t.equal(long.client.field('content-length'), String(body.length));
  t.equal(long.client.field('content-digest'), undefined, 'a digest of what may be changed would confirm guesses');
  t.equal(long.client.field('etag'), '"v1"');
  const cramped = fixture(veilOf(VALUE), { memory: new Memory(10) });
  await send(cramped, headOf(['content-length', String(ECHO.length)], { kind: 'length', bytes: ECHO.length }), {
    chunks: cut(ECHO, 20),
  });
  t.equal(cramped.client.body, `{"echo":"${'*'.repeat(ECHO.length - 11)}"}`, 'there is no memory to read it whole');
  t.equal(cramped.client.field('content-length'), String(ECHO.length));
  const exact = fixture(veilOf(VALUE), { memory: new Memory(0) });
  await send(exact, headOf([], { kind: 'length', bytes: ECHO.length }), { chunks: [ECHO] });
  t.equal(exact.client.body, VEILED, 'what comes in one piece needs no memory');
  for (const [status, type] of [
    [206, 'text/html'],
    [200, 'application/grpc+proto'],
    [200, 'application/x-protobuf; charset=x'],
  ] as const) {
    for (const framing of [{ kind: 'stream' } as const, { kind: 'length', bytes: ECHO.length } as const]) {
      const run = fixture();
      await send(run, headOf(['content-type', type], framing, status), { chunks: oneByteEach(ECHO) });
      t.equal(run.client.body, `{"echo":"${'*'.repeat(ECHO.length - 11)}"}`, `${status} ${type} ${framing.kind}`);
      t.strictSame(run.client.received?.body, framing);
    }
  }
});

void t.test('a body that cannot be decoded is searched as it is, and that is told', async (t) => {
  const cases: readonly (readonly [number, string])[] = [
    [200, 'compress'],
    [200, 'none'],
    [200, 'utf-8'],
    [200, 'aws-chunked'],
    [200, 'gzip, br'],
    [206, 'gzip'],
  ];
  for (const [status, coding] of cases) {
    for (const framing of [{ kind: 'stream' } as const, { kind: 'length', bytes: ECHO.length } as const]) {
      const run = fixture();
      const headers = ['Content-Encoding', coding, 'ETag', '"v1"', 'X-Echo', LATIN1];
      await send(run, headOf([...headers, 'Digest', 'x'], framing, status), { chunks: cut(ECHO, 5) });
      t.strictSame(run.client.received?.headers, [...headers.slice(0, -1), PLACEHOLDER]);
      t.strictSame(run.client.received?.body, framing);
      t.equal(run.client.body, `{"echo":"${'*'.repeat(ECHO.length - 11)}"}`, `${status} ${coding} ${framing.kind}`);
      t.equal(run.veil.impossible(), true);
    }
  }
  const compressed = fixture();
  const message = Buffer.from([0, 0, 0, 0, 2, 1, 2, 1, 0, 0, 0, 1, 9, 0, 0, 0, 0, 0]);
  await send(compressed, headOf(['content-type', 'application/grpc'], { kind: 'stream' }), { chunks: [message] });
  t.equal(compressed.veil.impossible(), true, 'a compressed gRPC message');
  const plain = fixture();
  await send(plain, headOf(['content-type', 'application/grpc'], { kind: 'stream' }), {
    chunks: [message.subarray(0, 7)],
  });
  t.equal(plain.veil.impossible(), false);
});

void t.test('a response without a body has the head that it would have with one', async (t) => {
  const headers = ['Content-Encoding', 'gzip', 'Content-Length', '10', 'ETag', '"v1"', 'X-Echo', LATIN1];
  const head = fixture(veilOf(VALUE), { method: 'HEAD' });
  await send(head, headOf(headers, { kind: 'length', bytes: 10 }), { chunks: [] });
  t.strictSame(head.client.received?.headers, ['ETag', 'W/"v1"', 'X-Echo', PLACEHOLDER]);
  t.equal(head.veil.impossible(), false);
  const plain = fixture();
  const notModified = headOf(['ETag', '"v1"', 'Content-Length', '10'], { kind: 'none' }, 304);
  await send(plain, notModified, { chunks: [] });
  t.equal(plain.client.received, notModified);
  const opaque = fixture(veilOf(VALUE), { method: 'HEAD' });
  const opaqueHead = headOf(['Content-Encoding', 'compress'], { kind: 'none' });
  await send(opaque, opaqueHead, { chunks: [] });
  t.equal(opaque.client.received, opaqueHead);
  t.equal(opaque.veil.impossible(), false);
});

void t.test('a digest of a body that was not looked into whole does not reach the client', async (t) => {
  const digests = ['Content-MD5', 'a', 'Digest', 'b', 'Content-Digest', 'c', 'repr-digest', 'd'];
  const body = Buffer.from('nothing to veil');
  const length = { kind: 'length', bytes: body.length } as const;
  const stream = { kind: 'stream' } as const;
  const bodiless = [
    ['HEAD', 200, length],
    ['HEAD', 200, stream],
    ['HEAD', 206, length],
    ['GET', 304, { kind: 'none' }],
    ['GET', 304, length],
    ['PUT', 204, { kind: 'none' }],
  ] as const;
  const parts = [
    ['GET', 206, length],
    ['GET', 206, stream],
    ['GET', 200, stream],
  ] as const;
  for (const [method, status, framing] of [...bodiless, ...parts]) {
    for (const coding of [[], ['Content-Encoding', 'compress']]) {
      const isBodiless = bodiless.some(([other, code]) => other === method && code === status);
      const run = fixture(veilOf(VALUE), { method });
      const headers = ['X-A', '1', ...digests, ...coding];
      await send(run, headOf(headers, framing, status), {
        chunks: isBodiless ? [] : [body],
        trailers: [...digests, 'X-T', '1'],
      });
      const name = `${method} ${status} ${framing.kind} ${coding.join(': ')}`;
      t.strictSame(run.client.received?.headers, ['X-A', '1', ...coding], name);
      // What streams is known at its end; a part never is.
      const isKnown = status === 200 && method === 'GET';
      t.strictSame(run.client.trailers, isKnown ? [...digests, 'X-T', '1'] : ['X-T', '1'], `${name}: trailers`);
      t.equal(run.client.body, isBodiless ? '' : body.toString(), name);
    }
  }
});

void t.test('an interim head, and that of a switch, says nothing of a body', (t) => {
  const { veil } = fixture();
  const fields = ['Content-Length', LATIN1, 'Repr-Digest', 'x', 'Link', `<${LATIN1}>`];
  t.strictSame(veil.veilHead({ reason: LATIN1, headers: fields }), {
    reason: PLACEHOLDER,
    headers: ['Link', `<${PLACEHOLDER}>`],
  });
  const plain = { reason: 'Early Hints', headers: ['Link', '</a>'] };
  t.equal(veil.veilHead(plain), plain, 'the very same head');
  t.end();
});

void t.test(
  'field values, trailers and the reason phrase are veiled, fields whose name holds a value are dropped',
  async (t) => {
    const value = 'dGVzdC1zZWNyZXQ';
    const run = fixture(veilOf(value));
    const headers = [
      'Location',
      `https://api.test/?key=${encodeURIComponent(value)}`,
      'Set-Cookie',
      `a=${value}; Path=/`,
      'Set-Cookie',
      `b=${Buffer.from(value).toString('base64')}`,
      'Trailer',
      value,
      value,
      'x',
    ];
    const head = { ...headOf(headers, { kind: 'stream' }), reason: `No ${value}` };
    await send(run, head, { chunks: [Buffer.from('x')], trailers: ['X-T', value] });
    t.strictSame(run.client.received, {
      ...head,
      reason: `No ${PLACEHOLDER}`,
      headers: [
        'Location',
        `https://api.test/?key=${PLACEHOLDER}`,
        'Set-Cookie',
        `a=${PLACEHOLDER}; Path=/`,
        'Set-Cookie',
        `b=${Buffer.from(PLACEHOLDER).toString('base64')}`,
        'Trailer',
        PLACEHOLDER,
      ],
    });
    t.strictSame(run.client.trailers, ['X-T', PLACEHOLDER]);
    t.strictSame(run.veil.veils(), [{ credentialId: 'vcrd_1', count: 7 }]);
    const large = fixture(veilOf(value));
    await send(large, headOf(['A', 'x'.repeat(30_000), 'B', value], { kind: 'none' }), { chunks: [] });
    t.strictSame(large.client.received?.headers.slice(2), ['B', PLACEHOLDER]);
  },
);

void t.test('every form is veiled in bodies of every framing and in every coding', async (t) => {
  const veil = veilOf(VALUE);
  for (const [name, form] of Object.entries(textForms(VALUE))) {
    const body = Buffer.from(`<<${form}>>`);
    for (const coding of ['identity', 'gzip', 'br'] as const) {
      const coded = coding === 'identity' ? body : ENCODERS[coding](body);
      const run = fixture(veil);
      const head = headOf(['content-type', 'text/event-stream', 'content-encoding', coding], { kind: 'stream' });
      await send(run, head, { chunks: oneByteEach(coded) });
      t.equal(run.client.body, `<<${PLACEHOLDER}>>`, `${name} in ${coding}`);
    }
  }
});

void t.test('events, lines and gRPC messages leave at once; other bytes after the idle time', async (t) => {
  const prefix = (length: number) => Buffer.from([0, 0, 0, 0, length]);
  const cases: readonly (readonly [string, readonly Buffer[], readonly string[]])[] = [
    ['text/event-stream', [Buffer.from('data: 1\n\n')], ['data: 1\n\n']],
    ['text/event-stream; charset=utf-8', [Buffer.from('data: 1\r\n\r'), Buffer.from('\n')], ['data: 1\r\n\r', '\n']],
    ['text/event-stream', [Buffer.from('data: 1\r'), Buffer.from('\rdata')], ['data: 1\r\r']],
    ['text/event-stream', [Buffer.from('a\n'), Buffer.from('\r\nb\r\n')], ['a\n\r\n']],
    ['text/event-stream', [Buffer.from('data: 1\n'), Buffer.from('id: 1\r\n')], []],
    ['application/x-ndjson', [Buffer.from('{"a":1}\n{"b"')], ['{"a":1}\n']],
    ['text/plain', [Buffer.from('no end of a line')], []],
    [
      'application/grpc',
      [Buffer.concat([prefix(2), Buffer.from('abx')]), Buffer.from('x')],
      [`${prefix(2).toString()}ab`],
    ],
    ['application/connect+json', [prefix(0), prefix(300).subarray(0, 3)], [prefix(0).toString()]],
    ['text/html', [Buffer.from('<p>\n\n</p>')], []],
  ];
  for (const [type, chunks, atOnce] of cases) {
    const run = fixture(veilOf(VALUE), { idleMs: 5 });
    run.veil.head(headOf(['Content-Type', type], { kind: 'stream' }));
    t.not(run.client.received, null, 'the head leaves at once');
    for (const [index, chunk] of chunks.entries()) {
      if (index > 0) await nextTurn();
      run.veil.data(Buffer.from(chunk));
    }
    t.strictSame(run.client.chunks.map(String), atOnce, type);
    const all = Buffer.concat(chunks).toString();
    if (atOnce.join('').length < all.length) {
      const before = performance.now();
      await once(run.client, 'data');
      t.ok(performance.now() - before < 1000);
    }
    t.equal(run.client.body, all);
    run.veil.destroy();
  }
});

void t.test('what comes in large pieces, or in many at once, leaves together at the end of the turn', async (t) => {
  const run = fixture(veilOf(VALUE));
  run.veil.head(headOf(['content-type', 'text/event-stream'], { kind: 'stream' }));
  for (const text of ['1\n\n', '2\n\n', '3\n', '\n4']) run.veil.data(Buffer.from(text));
  t.equal(run.client.body, '1\n\n', 'the first event is alone');
  await nextTurn();
  t.strictSame(run.client.chunks.map(String), ['1\n\n', '2\n\n3\n\n']);
  const large = Buffer.alloc(40_000, 'x\n\n');
  run.veil.data(Buffer.from(large));
  t.equal(run.client.chunks.length, 2);
  run.veil.flush();
  run.veil.flush();
  t.equal(run.client.chunks.length, 3, 'asked for, it leaves before');
  for (let times = 0; times < 4; times += 1) run.veil.data(Buffer.from(large));
  t.equal(run.client.chunks.length, 4, 'no more is gathered than can be handled at once');
  await nextTurn();
  t.equal(run.client.chunks.length, 4);
  run.client.isFull = true;
  t.ok(run.veil.data(Buffer.from(large)));
  t.strictSame(run.calls, []);
  await nextTurn();
  t.strictSame(run.calls, ['pause'], 'nobody asks any more whether there is room, so it is told');
  run.veil.data(Buffer.from(large));
  run.veil.destroy();
  run.veil.flush();
  await nextTurn();
  t.equal(run.client.chunks.length, 5);
});

void t.test('a value of several lines is veiled in a line-based type too', async (t) => {
  const value = '-----BEGIN-----\nabcdef\n-----END-----\n';
  const run = fixture(veilOf(value));
  await send(run, headOf(['content-type', 'text/plain'], { kind: 'stream' }), {
    chunks: oneByteEach(Buffer.from(`${value}x`)),
  });
  t.equal(run.client.body, `${PLACEHOLDER}x`);
});

void t.test(
  'the idle time counts anew from each chunk, and once everything has left nothing more happens',
  async (t) => {
    const run = fixture(veilOf(VALUE), { idleMs: 5 });
    run.veil.head(headOf([], { kind: 'stream' }));
    for (const byte of oneByteEach(Buffer.from(VALUE))) run.veil.data(byte);
    await once(run.client, 'data');
    t.equal(run.client.body, PLACEHOLDER, 'nothing leaves between bytes that come one after the other');
    run.veil.data(Buffer.from('after'));
    run.client.isFull = true;
    await once(run.client, 'data');
    t.equal(run.client.body, `${PLACEHOLDER}after`);
    t.strictSame(run.calls, ['pause'], 'a downstream that is full then pauses the source');
    run.client.isFull = false;
    run.veil.drain();
    t.strictSame(run.calls, ['pause', 'resume']);
    const over = once(run.client, 'over');
    run.veil.end([]);
    await over;
    run.veil.drain();
    t.strictSame(run.calls, ['pause', 'resume'], 'after the end there is nothing to resume');
  },
);

void t.test('a chunk that arrives while the idle timer is late keeps what is held back', async (t) => {
  const run = fixture(veilOf(VALUE), { idleMs: 1 });
  run.veil.head(headOf([], { kind: 'stream' }));
  run.veil.data(Buffer.from(VALUE.slice(0, 5)));
  setTimeout(() => run.veil.data(Buffer.from(VALUE.slice(5))), 1);
  const until = performance.now() + 5;
  while (performance.now() < until);
  await once(run.client, 'data');
  t.equal(run.client.body, PLACEHOLDER);
});

void t.test('a decoder that is behind is not taken for an idle upstream', async (t) => {
  const run = fixture(veilOf(VALUE), { idleMs: 1 });
  run.veil.head(headOf(['content-encoding', 'gzip'], { kind: 'stream' }));
  const coded = zlib.gzipSync(Buffer.concat([Buffer.alloc(300_000, 0x61), ECHO]), { level: 0 });
  for (const chunk of cut(coded, ...Array.from({ length: 30 }, (_, index) => (index + 1) * 10_000)))
    run.veil.data(chunk);
  const until = performance.now() + 5;
  // A loop that is late finds timer and data at once.
  while (performance.now() < until);
  const over = once(run.client, 'over');
  run.veil.end([]);
  await over;
  t.equal(run.client.body, 'a'.repeat(300_000) + VEILED);
});

void t.test('timing and sizes of an echo are the same for right and wrong guesses of every length', async (t) => {
  const value = 'sk-ant-0123456789abcdefghij';
  const veil = veilOf(value);
  const trace = async (guess: string, type: string): Promise<string> => {
    const run = fixture(veil, { idleMs: 1 });
    const order: string[] = [];
    run.client.on('data', () => order.push(String(run.client.chunks.at(-1)?.length)));
    run.veil.head(headOf(['content-type', type], { kind: 'stream' }));
    for (const chunk of cut(Buffer.from(`data: ${guess}\n\ndata: ${guess}`), 3, 6 + guess.length)) {
      run.veil.data(chunk);
      order.push('sent');
    }
    await once(run.client, 'data');
    order.push('idle');
    return order.join();
  };
  const differing: number[] = [];
  for (let known = 1; known < value.length; known += 1) {
    const right = value.slice(0, known);
    const wrong = `${right.slice(0, -1)}#`;
    for (const type of ['text/event-stream', 'text/html', 'application/json']) {
      if ((await trace(right, type)) !== (await trace(wrong, type))) differing.push(known);
    }
  }
  t.strictSame(differing, []);
});

void t.test('back-pressure goes from the client through the decoder to the source', async (t) => {
  const run = fixture();
  run.client.isFull = true;
  run.veil.head(headOf(['content-encoding', 'gzip'], { kind: 'stream' }));
  const body = Buffer.concat([Buffer.alloc(4 * 1024 * 1024, 0x61), ECHO]);
  const coded = zlib.gzipSync(body, { level: 0 });
  let sent = 0;
  while (sent < coded.length && run.veil.data(coded.subarray(sent, sent + 16_384))) sent += 16_384;
  sent += 16_384;
  t.ok(sent < 200_000, 'the decoder takes no more than its buffer');
  await once(run.client, 'data');
  const held = run.client.chunks.length;
  t.equal(held, 1, 'a full client gets nothing more');
  const feed = (): void => {
    while (sent < coded.length) {
      const more = run.veil.data(coded.subarray(sent, sent + 16_384));
      sent += 16_384;
      if (!more) return;
    }
    run.veil.end([]);
  };
  const source = run.calls;
  source.push = (...calls: string[]) => {
    if (calls.includes('resume') && sent < coded.length) setImmediate(feed);
    return calls.length;
  };
  run.client.isFull = false;
  const over = once(run.client, 'over');
  run.veil.drain();
  await over;
  t.equal(run.client.body.length, body.length - ECHO.length + VEILED.length);
  t.ok(run.client.body.endsWith(VEILED));
});

void t.test('a full client without a decoder pauses the source by its answer', async (t) => {
  const run = fixture();
  run.client.isFull = true;
  run.veil.head(headOf(['content-type', 'text/plain'], { kind: 'stream' }));
  t.equal(run.veil.data(Buffer.from('one\n')), false);
  t.equal(run.veil.data(Buffer.from('')), true);
  run.client.isFull = false;
  run.veil.drain();
  t.strictSame(run.calls, ['resume']);
  t.equal(run.veil.data(Buffer.from('two\n')), true);
  run.veil.destroy();
});

void t.test('what does not decode is an error, before or after the head', async (t) => {
  for (const framing of [{ kind: 'length', bytes: 5 } as const, { kind: 'stream' } as const]) {
    const run = fixture();
    await send(run, headOf(['content-encoding', 'gzip'], framing), { chunks: [Buffer.from('plain')] });
    t.match(run.client.failure, { code: 'upstream_protocol_error' });
    t.notMatch(run.client.failure?.message, /plain/);
    t.equal(run.client.received === null, framing.kind === 'length');
  }
  const cutShort = fixture();
  await send(cutShort, headOf(['content-encoding', 'gzip'], { kind: 'stream' }), {
    chunks: [zlib.gzipSync(ECHO).subarray(0, 20)],
  });
  t.match(cutShort.client.failure, { code: 'upstream_protocol_error' });
});

void t.test('after an error or an end given up nothing is passed on', async (t) => {
  const run = fixture();
  run.veil.head(headOf([], { kind: 'length', bytes: 100 }));
  run.veil.data(Buffer.from('part'));
  t.equal(run.memory.used, 4);
  run.veil.error(new Error('reset'));
  t.equal(run.memory.used, 0);
  t.equal(run.client.failure?.message, 'reset');
  run.veil.head(headOf([], { kind: 'none' }));
  t.equal(run.veil.data(Buffer.from('more')), true);
  run.veil.end([]);
  run.veil.error(new Error('again'));
  t.equal(run.client.received, null);
  t.equal(run.client.trailers, null);
  t.equal(run.client.failure?.message, 'reset');
  const decoding = fixture();
  decoding.veil.head(headOf(['content-encoding', 'br'], { kind: 'stream' }));
  decoding.veil.data(zlib.brotliCompressSync(ECHO));
  decoding.veil.destroy();
  t.equal(decoding.client.body, '');
});

void t.test('responses of any framing equal the plain reference', async (t) => {
  await fc.assert(responseProperty, { numRuns: 150, examples: CORPUS.map((echo) => [echo, 'gzip', 100]) });
  t.pass();
});
