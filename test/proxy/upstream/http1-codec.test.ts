// The codec without a transport: what it takes, what it refuses, and that it never takes more than Node's client.
import { test } from 'tap';
import { HEADER_FIELDS_MAX, RESPONSE_HEADER_BLOCK_BYTES_MAX, TRAILER_BLOCK_BYTES_MAX } from '../../../model/limits.ts';
import type { UpstreamRequest } from '../../../proxy/exchange.ts';
import { ResponseParser } from '../../../proxy/upstream/http1-codec.ts';
import { hasOption, keepAliveSeconds, ResponseSyntaxError } from '../../../proxy/upstream/http1-head.ts';
import {
  isReplayable,
  joinCookies,
  serialiseLastChunk,
  serialiseRequestHead,
} from '../../../proxy/upstream/http1-request.ts';
import { BAD, compareReaders, createRandom, GOOD, mutate, readWithCodec } from '../../fuzz/http1-codec-corpus.ts';

function parserOf(
  log: string[],
  bytes: string,
  expected: { method: string; upgrade?: string } = { method: 'GET' },
): ResponseParser {
  const parser = new ResponseParser({
    information: (status) => log.push(`information ${status}`),
    head: (head) => log.push(`head ${head.status} ${head.body.kind}`),
    data: (chunk) => log.push(`data ${chunk.toString('latin1')}`),
    end: (trailers) => log.push(`end ${trailers.join()}`),
    upgrade: (head, firstBytes) => log.push(`upgrade ${head.status} ${firstBytes.toString('latin1')}`),
  });
  parser.begin(expected);
  parser.execute(Buffer.from(bytes, 'latin1'));
  return parser;
}

function text(sample: { bytes: Buffer }): string {
  return JSON.stringify(sample.bytes.toString('latin1'));
}

test('good responses are read as Node reads them, bad ones are refused, however the bytes are cut', async (t) => {
  for (const sample of GOOD) {
    t.equal(readWithCodec(sample).refusal, null, text(sample));
    t.equal(await compareReaders(sample), null, text(sample));
  }
  for (const sample of BAD) {
    t.type(readWithCodec(sample).refusal, 'string', text(sample));
    t.equal(await compareReaders(sample), null, text(sample));
  }
  const faults: string[] = [];
  for (const sample of [...GOOD, ...BAD]) {
    const whole = readWithCodec(sample);
    const offsets = Array.from({ length: sample.bytes.length + 1 }, (_, index) => index);
    for (const cuts of [...offsets.map((offset) => [offset]), offsets]) {
      const inPieces = readWithCodec(sample, cuts);
      const isSame =
        whole.refusal === null ? JSON.stringify(inPieces) === JSON.stringify(whole) : inPieces.refusal !== null;
      if (!isSame) faults.push(`${text(sample)} cut at ${cuts.join()}`);
    }
  }
  t.strictSame(faults, []);
});

test('3,000 mutated responses are never read laxer than by Node', async (t) => {
  const random = createRandom(20_240_601);
  const corpus = [...GOOD, ...BAD];
  const faults: string[] = [];
  for (let count = 0; count < 3000; count += 1) {
    const mutated = mutate(corpus[count % corpus.length] as (typeof corpus)[number], random);
    const fault = await compareReaders(mutated, [Math.floor(random() * mutated.bytes.length)]);
    if (fault !== null) faults.push(`${fault}: ${text(mutated)}`);
  }
  t.strictSame(faults, []);
});

test('limits hold for heads, trailers, fields, chunk extensions and interim responses', async (t) => {
  const head = (fields: string): string => `HTTP/1.1 200 OK\r\n${fields}\r\n`;
  const refuses = (bytes: string, message: RegExp): void => {
    t.throws(() => parserOf([], bytes), { name: 'ResponseSyntaxError', message });
  };
  refuses(head(`X: ${'x'.repeat(RESPONSE_HEADER_BLOCK_BYTES_MAX)}\r\n`), /longer than 262144 bytes/);
  refuses(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(RESPONSE_HEADER_BLOCK_BYTES_MAX)}`, /longer than 262144 bytes/);
  refuses(head('X: y\r\n'.repeat(HEADER_FIELDS_MAX + 1)), /more than 1000 fields/);
  refuses(
    `${head('Transfer-Encoding: chunked\r\n')}0\r\nX: ${'x'.repeat(TRAILER_BLOCK_BYTES_MAX)}`,
    /longer than 16384 bytes/,
  );
  refuses(`${head('Transfer-Encoding: chunked\r\n')}5;${'x'.repeat(5000)}`, /extension is too long/);
  refuses('HTTP/1.1 102 Processing\r\n\r\n'.repeat(101), /interim responses without end/);
  const hint = `HTTP/1.1 103 Early Hints\r\nLink: ${'x'.repeat(64 * 1024)}\r\n\r\n`;
  refuses(hint.repeat(4), /interim responses without end/);
  const hints: string[] = [];
  parserOf(hints, hint.repeat(3));
  t.strictSame(hints, Array(3).fill('information 103'));
  const log: string[] = [];
  parserOf(log, head(`X: ${'x'.repeat(RESPONSE_HEADER_BLOCK_BYTES_MAX - 100)}\r\nContent-Length: 0\r\n`));
  t.strictSame(log, ['head 200 length', 'end ']);
});

test('bytes after a response make the connection unfit, and are never read as another response', async (t) => {
  for (const rest of ['x', '\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n']) {
    for (const first of [
      'Content-Length: 2\r\n\r\nok',
      'Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      'Content-Length: 0\r\n\r\n',
    ]) {
      const log: string[] = [];
      const parser = parserOf(log, `HTTP/1.1 200 OK\r\n${first}${rest}`);
      t.equal(parser.isReusable, false);
      t.equal(log.filter((line) => line.startsWith('head')).length, 1);
      t.equal(log.filter((line) => line.startsWith('end')).length, 1);
    }
  }
  const log: string[] = [];
  const parser = parserOf(log, 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  t.equal(parser.isReusable, true);
  t.throws(() => parser.execute(Buffer.from('x')), ResponseSyntaxError);
});

test('whether a connection can be used again follows the version, Connection, and the framing', async (t) => {
  const reusable = (head: string, method = 'GET'): boolean => parserOf([], head, { method }).isReusable;
  t.equal(reusable('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'), true);
  t.equal(reusable('HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nContent-Length: 0\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n'), true);
  t.equal(reusable('HTTP/1.1 200 OK\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n'), false);
  t.equal(reusable('HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n'), true);
  t.equal(reusable('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n', 'HEAD'), true);
  t.equal(parserOf([], 'HTTP/1.1 200 OK\r\nKeep-Alive: max=3, timeout=7\r\nContent-Length: 0\r\n\r\n').idleSeconds, 7);
  t.equal(keepAliveSeconds('max=3'), Infinity);
  t.equal(hasOption('enclosed', 'close'), false);
});

test('a 101 is taken when it agrees to the protocol that was asked for, and only then', async (t) => {
  const switching = (fields: string, upgrade?: string): string[] => {
    const log: string[] = [];
    parserOf(log, `HTTP/1.1 101 Switching Protocols\r\n${fields}\r\nbytes`, {
      method: 'GET',
      ...(upgrade === undefined ? {} : { upgrade }),
    });
    return log;
  };
  t.strictSame(switching('Connection: Upgrade\r\nUpgrade: WebSocket\r\n', 'websocket'), ['upgrade 101 bytes']);
  t.throws(() => switching('Connection: Upgrade\r\nUpgrade: websocket\r\n'), ResponseSyntaxError);
  t.throws(() => switching('Connection: Upgrade\r\nUpgrade: h2c\r\n', 'websocket'), ResponseSyntaxError);
  t.throws(() => switching('Upgrade: websocket\r\n', 'websocket'), ResponseSyntaxError);
});

test('a sink that stops the parser hears no more', async (t) => {
  const log: string[] = [];
  const parser: ResponseParser = new ResponseParser({
    information: () => undefined,
    head: () => undefined,
    data: () => {
      log.push('data');
      parser.stop();
    },
    end: () => log.push('end'),
    upgrade: () => undefined,
  });
  parser.begin({ method: 'GET' });
  parser.execute(Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n'));
  parser.finish();
  t.strictSame(log, ['data']);
});

test('a request goes out byte for byte, with only what HTTP/1.1 needs added', async (t) => {
  const base: UpstreamRequest = {
    method: 'GET',
    target: '/a%2fb?c',
    headers: ['HOST', 'a.test', 'x-A', '', 'X-a', 'caf\xe9'],
    body: { kind: 'none' },
    sensitiveNames: new Set(),
  };
  t.equal(serialiseRequestHead(base, '1.1'), 'GET /a%2fb?c HTTP/1.1\r\nHOST: a.test\r\nx-A: \r\nX-a: caf\xe9\r\n\r\n');
  const head = (changes: Partial<UpstreamRequest>, version: '1.1' | '2' = '1.1'): string =>
    serialiseRequestHead({ ...base, headers: ['Host', 'a'], target: '/', ...changes }, version).slice(
      'GET / HTTP/1.1\r\nHost: a\r\n'.length,
    );
  t.equal(head({ body: { kind: 'length', bytes: 5 } }), 'Content-Length: 5\r\n\r\n');
  t.equal(head({ body: { kind: 'stream' } }), 'Transfer-Encoding: chunked\r\n\r\n');
  t.equal(
    head({ body: { kind: 'length', bytes: 5 }, headers: ['Host', 'a', 'content-length', '5'] }),
    'content-length: 5\r\n\r\n',
  );
  t.equal(
    head({ body: { kind: 'stream' }, headers: ['Host', 'a', 'transfer-encoding', 'chunked'] }),
    'transfer-encoding: chunked\r\n\r\n',
  );
  t.equal(head({ upgrade: 'websocket' }), 'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  t.equal(
    head({ upgrade: 'websocket', headers: ['Host', 'a', 'upgrade', 'websocket', 'connection', 'upgrade'] }),
    'upgrade: websocket\r\nconnection: upgrade\r\n\r\n',
  );
  t.equal(head({ headers: ['Host', 'a', 'te', 'trailers'] }), 'te: trailers\r\nConnection: TE\r\n\r\n');
  const crumbs = ['Host', 'a', 'cookie', 'a=1', 'x', 'y', 'cookie', 'b=2'];
  t.equal(head({ headers: crumbs }, '2'), 'cookie: a=1; b=2\r\nx: y\r\n\r\n');
  t.equal(head({ headers: crumbs }), 'cookie: a=1\r\nx: y\r\ncookie: b=2\r\n\r\n');
  t.equal(joinCookies(base.headers), base.headers);
  t.equal(serialiseLastChunk(['X', 'y']), '0\r\nX: y\r\n\r\n');
  t.equal(isReplayable(base), true);
  t.equal(isReplayable({ ...base, method: 'POST' }), false);
  t.equal(isReplayable({ ...base, body: { kind: 'length', bytes: 0 } }), false);
  for (const bad of ['a\r\nb', 'a\nb', 'a\0b', 'a\u0100b']) {
    t.throws(() => head({ headers: ['X', bad] }), { code: 'bad_request' });
    t.throws(() => head({ headers: [bad, 'x'] }), { code: 'bad_request' });
    t.throws(() => head({ target: bad }), { code: 'bad_request' });
    t.throws(() => head({ method: bad }), { code: 'bad_request' });
    t.throws(() => serialiseLastChunk(['X', bad]), { code: 'bad_request' });
  }
});
