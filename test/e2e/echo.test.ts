// An upstream that echoes the real value in every place and form: the client never receives it, and learns nothing of it.
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as http2 from 'node:http2';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import * as zlib from 'node:zlib';
import t, { test, type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { textForms } from '../proxy/veil/echoes.ts';
import { byteForms, formsIn, valueForms } from '../support/encodings.ts';
import { readAll, readHead } from '../support/operator.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type ReceivedRequest, type TestUpstream } from '../support/upstream.ts';

/** Holds a character of each kind that some form treats in its own way. */
const VALUE = 'se/cr+et "é\'&\\<value>~😀';
const PLACEHOLDER = placeholderOf('E');
const FORMS = valueForms(VALUE);
/** The user and the value, as a login. */
const BASIC_FORMS = byteForms(Buffer.from(`user:${VALUE}`));

const CODERS: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  identity: (bytes) => bytes,
  gzip: (bytes) => zlib.gzipSync(bytes),
  deflate: (bytes) => zlib.deflateSync(bytes),
  br: (bytes) => zlib.brotliCompressSync(bytes),
};

type Respond = (request: ReceivedRequest, response: ServerResponse) => void | Promise<void>;

const authority = createTestAuthority();
let respond: Respond = () => undefined;
let upstream: TestUpstream;
let keyveil: TestProxy;

t.before(async () => {
  upstream = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    respond: (request, response) => {
      void Promise.resolve(respond(request, response)).catch((error: unknown) => response.destroy(error as Error));
    },
  });
  upstream.server.on('connection', (socket) => socket.setNoDelay(true));
  keyveil = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([{ placeholder: PLACEHOLDER, value: VALUE, hosts: ['api.test'] }]),
    // On a busy machine single bytes come slowly: a value that takes longer than this passes, as the documents say.
    settings: { veilIdleMs: 2000 },
  });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

/** All bytes that the client receives for one request, as they are and with their chunks joined. */
async function ask(head: string, body = ''): Promise<{ raw: string; whole: string }> {
  const tls = await keyveil.tunnel('api.test:443');
  tls.write(
    `${head}Host: api.test\r\nConnection: close\r\n${body === '' ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`}\r\n${body}`,
  );
  const raw = await readAll(tls);
  return { raw, whole: joinChunks(raw) };
}

function joinChunks(raw: string): string {
  const start = raw.indexOf('\r\n\r\n') + 4;
  if (!/^transfer-encoding: chunked/im.test(raw.slice(0, start))) return raw;
  let whole = raw.slice(0, start);
  let at = start;
  for (;;) {
    const end = raw.indexOf('\r\n', at);
    const length = parseInt(raw.slice(at, end), 16);
    if (!(length > 0)) return whole + raw.slice(end);
    whole += raw.slice(end + 2, end + 2 + length);
    at = end + 2 + length + 2;
  }
}

/** No form of the value is there, and the placeholder is. */
function checkEcho(t: Test, name: string, answer: { readonly raw: string; readonly whole: string }): void {
  const found = [answer.raw, answer.whole].flatMap((text) => formsIn(text, { ...FORMS, ...BASIC_FORMS }));
  t.same(found, [], `${name}: no form of the value`);
  t.ok(answer.whole.includes(PLACEHOLDER), `${name}: the placeholder is there`);
}

/** Every form in a line or an event of its own. */
function allForms(type: string): Buffer {
  const isEvents = type === 'text/event-stream';
  const lines = Object.entries(FORMS).map(([name, form]) =>
    isEvents ? `event: ${name}\ndata: a ${form} b\n\n` : `${name}: a ${form} b\n`,
  );
  return Buffer.from(lines.join(''), 'latin1');
}

async function writeByteByByte(response: ServerResponse, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    response.write(Buffer.of(byte));
    await turn();
  }
  response.end();
}

for (const [coding, encode] of Object.entries(CODERS)) {
  test(`every form in a body in ${coding}: at once, in single bytes, as events`, async (t) => {
    for (const type of ['text/html', 'application/json', 'text/event-stream', 'text/plain']) {
      for (const isWhole of [true, false]) {
        respond = async (_request, response) => {
          const bytes = encode(allForms(type));
          response.setHeader('Content-Type', type);
          if (coding !== 'identity') response.setHeader('Content-Encoding', coding);
          if (isWhole) response.setHeader('Content-Length', bytes.length).end(bytes);
          else await writeByteByByte(response, bytes);
        };
        const answer = await ask('GET / HTTP/1.1\r\n');
        const name = `${type} ${isWhole ? 'at once' : 'in single bytes'}`;
        checkEcho(t, name, answer);
        const count = answer.whole.split(`a ${PLACEHOLDER} b`).length - 1;
        t.equal(count, Object.keys(textForms(VALUE)).length, `${name}: each text form became the placeholder`);
        t.match(answer.whole, /^HTTP\/1\.1 200 /);
        t.notMatch(answer.whole, /^content-encoding/im);
      }
    }
  });
}

test('what the request brought comes back as the placeholder', async (t) => {
  const bodies: readonly (readonly [string, string])[] = [
    ['application/json', JSON.stringify({ key: PLACEHOLDER })],
    ['application/x-www-form-urlencoded', `a=1&key=${PLACEHOLDER}`],
    ['text/plain', `key ${PLACEHOLDER}`],
  ];
  const basic = Buffer.from(`user:${PLACEHOLDER}`).toString('base64');
  for (const [type, body] of bodies) {
    let seen: ReceivedRequest | null = null;
    respond = (request, response) => {
      seen = request;
      response.setHeader('Content-Type', type);
      response.end(Buffer.concat([request.body, Buffer.from(`\n${request.rawHeaders.join('\n')}`, 'latin1')]));
    };
    const head = `POST / HTTP/1.1\r\nContent-Type: ${type}\r\nX-Key: ${PLACEHOLDER}\r\nAuthorization: Basic ${basic}\r\n`;
    const answer = await ask(head, body);
    const request = seen as unknown as ReceivedRequest;
    t.not(formsIn(request.body.toString('latin1'), FORMS).length, 0, `${type}: the value did arrive`);
    t.equal(request.header('authorization'), `Basic ${Buffer.from(`user:${VALUE}`).toString('base64')}`);
    checkEcho(t, type, answer);
    t.ok(answer.whole.includes(basic), 'the login is the one that was sent');
    t.ok(answer.whole.includes(body), 'the body is the one that was sent');
  }
});

test('fields, cookies, locations, the reason and trailers are veiled', async (t) => {
  respond = (request, response) => {
    const value = request.header('x-key') ?? '';
    const url = encodeURIComponent(VALUE);
    response.writeHead(302, 'Moved', [
      'Location',
      `https://api.test/cb?key=${url}`,
      'Set-Cookie',
      `a=${url}; Path=/`,
      'Set-Cookie',
      `b=${Buffer.from(VALUE).toString('base64')}`,
      'X-Echo',
      value,
      'Trailer',
      'X-End',
      'Transfer-Encoding',
      'chunked',
    ] as never);
    response.write('moved');
    response.addTrailers({ 'X-End': `${value} ${Buffer.from(VALUE).toString('hex')}` });
    response.end();
  };
  const answer = await ask(`GET / HTTP/1.1\r\nX-Key: ${PLACEHOLDER}\r\n`);
  checkEcho(t, 'fields', answer);
  const { whole } = answer;
  t.ok(whole.includes(`Location: https://api.test/cb?key=${PLACEHOLDER}\r\n`));
  t.ok(whole.includes(`Set-Cookie: a=${PLACEHOLDER}; Path=/\r\n`));
  t.ok(whole.includes(`Set-Cookie: b=${Buffer.from(PLACEHOLDER).toString('base64')}\r\n`));
  t.ok(whole.includes(`X-Echo: ${PLACEHOLDER}\r\n`));
  t.ok(whole.includes(`X-End: ${PLACEHOLDER} ${PLACEHOLDER}\r\n`));
});

test('over HTTP/2 the same holds', async (t) => {
  const socket = await keyveil.tunnel('api.test:443', { ALPNProtocols: ['h2'] });
  const session = http2.connect('https://api.test', { createConnection: () => socket });
  session.on('error', () => undefined);
  t.teardown(() => session.destroy());
  for (const [coding, encode] of Object.entries(CODERS)) {
    respond = (request, response) => {
      if (coding !== 'identity') response.setHeader('Content-Encoding', coding);
      response.setHeader('X-Echo', request.header('x-key') ?? '');
      response.setHeader('Trailer', 'X-End');
      response.write(encode(allForms('text/html')));
      response.addTrailers({ 'X-End': request.header('x-key') ?? '' });
      response.end();
    };
    const stream = session.request({ ':path': '/', 'x-key': PLACEHOLDER });
    let raw = '';
    stream.on('response', (headers) => (raw += JSON.stringify(headers)));
    stream.on('trailers', (trailers) => (raw += JSON.stringify(trailers)));
    stream.on('data', (chunk: Buffer) => (raw += chunk.toString('latin1')));
    await once(stream, 'close');
    checkEcho(t, coding, { raw, whole: raw });
    t.match(raw, new RegExp(`"x-echo":"${PLACEHOLDER}"`));
    t.match(raw, new RegExp(`"x-end":"${PLACEHOLDER}"`));
  }
});

test('a WebSocket that echoes gives the placeholder', async (t) => {
  const server = new WebSocketServer({ noServer: true });
  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void =>
    server.handleUpgrade(request, socket, head, (peer) => {
      peer.on('message', (data: Buffer, isBinary) => peer.send(data, { binary: isBinary }));
    });
  upstream.server.on('upgrade', onUpgrade);
  const tls = await keyveil.tunnel('api.test:443');
  const client = new WebSocket('wss://api.test/', { createConnection: () => tls });
  await once(client, 'open');
  for (const text of [PLACEHOLDER, `{"key":"${PLACEHOLDER}"}`]) {
    for (const binary of [false, true]) {
      client.send(text, { binary });
      const [data] = (await once(client, 'message')) as [Buffer];
      t.equal(data.toString(), text);
    }
  }
  client.terminate();
  upstream.server.off('upgrade', onUpgrade);
});

/** Sizes of the chunks in which a body reaches the client, and when each came, in ms after its cause. */
interface Arrival {
  readonly bytes: number;
  readonly ms: number;
}

const IDLE_MS = 10;

/** Reads a chunked body as the client sees it, chunk by chunk. */
class ChunkReader {
  readonly #tls: TLSSocket;
  #held = '';

  constructor(tls: TLSSocket) {
    this.#tls = tls;
  }

  /** The next chunk's bytes. */
  async next(): Promise<string> {
    for (;;) {
      const end = this.#held.indexOf('\r\n');
      const length = end < 0 ? NaN : parseInt(this.#held.slice(0, end), 16);
      if (end >= 0 && this.#held.length >= end + 2 + length + 2) {
        const chunk = this.#held.slice(end + 2, end + 2 + length);
        this.#held = this.#held.slice(end + 2 + length + 2);
        return chunk;
      }
      this.#tls.resume();
      const [data] = (await once(this.#tls, 'data')) as [Buffer];
      this.#tls.pause();
      this.#held += data.toString('latin1');
    }
  }
}

/** How an echo that ends in `guess` reaches the client while the upstream waits with the rest. */
async function observe(
  guess: string,
  options: { type: string; isCoded: boolean; port: TestProxy },
): Promise<Arrival[]> {
  const { type, isCoded, port } = options;
  let go: (text: string) => number = () => 0;
  const ready = new Promise<void>((resolve) => {
    respond = (_request, response) => {
      response.setHeader('Content-Type', type);
      if (isCoded) response.setHeader('Content-Encoding', 'gzip');
      response.flushHeaders();
      const gzip = isCoded ? zlib.createGzip({ flush: zlib.constants.Z_SYNC_FLUSH }) : null;
      gzip?.pipe(response);
      go = (text) => {
        (gzip ?? response).write(Buffer.from(text, 'latin1'));
        return performance.now();
      };
      resolve();
    };
  });
  const tls = await port.tunnel('api.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  await readHead(tls);
  await ready;
  const reader = new ChunkReader(tls);
  const arrivals: Arrival[] = [];
  for (const text of [`${'.'.repeat(1000)}${guess}`, `!${'.'.repeat(1000)}`]) {
    const startedAt = go(text);
    for (let bytes = 0; bytes < text.length;) {
      const chunk = await reader.next();
      bytes += chunk.length;
      arrivals.push({ bytes: chunk.length, ms: performance.now() - startedAt });
    }
  }
  tls.destroy();
  return arrivals;
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] as number;
}

test('chunks and delays of an echo are the same for a right guess of the first characters and a wrong one', async (t) => {
  const timed = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([{ placeholder: PLACEHOLDER, value: VALUE, hosts: ['api.test'] }]),
    settings: { veilIdleMs: IDLE_MS },
  });
  t.teardown(() => timed.close());
  const value = Buffer.from(VALUE).toString('latin1');
  for (const { type, isCoded } of [
    { type: 'text/html', isCoded: false },
    { type: 'text/event-stream', isCoded: false },
    { type: 'text/html', isCoded: true },
  ]) {
    const delays: { right: number[]; wrong: number[] } = { right: [], wrong: [] };
    const sizes = new Set<string>();
    for (let length = 1; length < value.length; length += 1) {
      const right = value.slice(0, length);
      // The wrong one is right up to its last character, which is the step of an attack.
      const wrong = `${right.slice(0, -1)}${right.endsWith('x') ? 'y' : 'x'}`;
      for (const [kind, guess] of [
        ['right', right],
        ['wrong', wrong],
      ] as const) {
        const arrivals = await observe(guess, { type, isCoded, port: timed });
        // The first chunk is longer by as much as the guess; nothing else may tell.
        const [first, ...rest] = arrivals.map(({ bytes }) => bytes);
        sizes.add([(first as number) - length, ...rest].join());
        delays[kind].push(...arrivals.slice(0, 2).map(({ ms }) => ms));
      }
    }
    t.equal(sizes.size, 1, `${type}: ${[...sizes].join(' or ')} bytes for every guess`);
    const [right, wrong] = [median(delays.right), median(delays.wrong)];
    t.comment(`${type}, ${isCoded ? 'gzip' : 'identity'}: ${right.toFixed(1)} ms right, ${wrong.toFixed(1)} ms wrong`);
    t.ok(Math.abs(right - wrong) < IDLE_MS, 'the delays differ by less than the idle time');
  }
});

/** Median of the time from an event's writing to its reading, in ms. */
async function eventDelay(tls: TLSSocket): Promise<number> {
  const rounds = 30;
  let send: (number: number) => number = () => 0;
  const ready = new Promise<void>((resolve) => {
    respond = (_request, response) => {
      response.setHeader('Content-Type', 'text/event-stream');
      response.flushHeaders();
      send = (number) => {
        response.write(`id: ${number}\ndata: ${number} ${VALUE}\n\n`);
        return performance.now();
      };
      resolve();
    };
  });
  tls.write(`GET / HTTP/1.1\r\nHost: api.test\r\n\r\n`);
  await readHead(tls);
  await ready;
  const reader = new ChunkReader(tls);
  const delays: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const sentAt = send(round);
    for (let text = ''; !text.endsWith('\n\n');) text += await reader.next();
    delays.push(performance.now() - sentAt);
  }
  tls.destroy();
  return median(delays);
}

test('an event takes no longer than 20 ms more than without the proxy', async (t) => {
  const direct = connectTls({ port: upstream.port, host: '127.0.0.1', servername: 'api.test', ca: authority.caPem });
  await once(direct, 'secureConnect');
  const directMs = await eventDelay(direct);
  const proxiedMs = await eventDelay(await keyveil.tunnel('api.test:443'));
  t.comment(`${directMs.toFixed(2)} ms direct, ${proxiedMs.toFixed(2)} ms through the proxy`);
  t.ok(proxiedMs - directMs < 100, 'with room for a busy machine; an event that waited for the veil would take 2 s');
});

test('the size of a swapped body in a coding does not tell how much of the value the text around repeats', async (t) => {
  respond = (_request, response) => void response.end('ok');
  const value = Buffer.from(VALUE);
  for (const coding of ['gzip', 'deflate', 'br']) {
    for (const isChunked of [false, true]) {
      const sizes = new Set<number>();
      const tls = await keyveil.tunnel('api.test:443');
      for (let repeated = 0; repeated <= value.length; repeated += 1) {
        const around = Buffer.concat([value.subarray(0, repeated), Buffer.alloc(value.length - repeated, 0x78)]);
        const plain = Buffer.concat([around, around, Buffer.from(` ${PLACEHOLDER} `), around]);
        const body = (CODERS[coding] as (bytes: Buffer) => Buffer)(plain);
        const arrived = upstream.next();
        const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`;
        tls.write(`POST / HTTP/1.1\r\nHost: api.test\r\nContent-Encoding: ${coding}\r\n${framing}\r\n\r\n`);
        if (isChunked) tls.write(`${body.length.toString(16)}\r\n`);
        tls.write(body);
        if (isChunked) tls.write('\r\n0\r\n\r\n');
        const request = await arrived;
        await readHead(tls);
        tls.read();
        sizes.add(request.body.length);
        const left = decode(request);
        const wanted = plain.toString('latin1').replace(PLACEHOLDER, value.toString('latin1'));
        if (left !== wanted) t.fail(`${coding}, ${repeated} bytes repeated: ${left}`);
      }
      t.equal(
        sizes.size,
        1,
        `${coding}, ${isChunked ? 'in chunks' : 'of known length'}: ${[...sizes].join(' or ')} bytes`,
      );
      tls.destroy();
    }
  }
});

function decode(request: ReceivedRequest): string {
  const coding = request.header('content-encoding');
  const decoders: Record<string, (bytes: Buffer) => Buffer> = { gzip: zlib.gunzipSync, deflate: zlib.inflateSync };
  const plain = coding === undefined ? request.body : (decoders[coding] as (bytes: Buffer) => Buffer)(request.body);
  return plain.toString('latin1');
}
