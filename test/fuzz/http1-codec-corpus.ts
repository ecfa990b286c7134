// Responses, good and bad, and two readers of them: the codec and Node's own client. For the tests and the fuzzer.
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import type { RawHeaders, ResponseHead } from '../../proxy/exchange.ts';
import { ResponseParser } from '../../proxy/upstream/http1-codec.ts';
import { ResponseSyntaxError } from '../../proxy/upstream/http1-head.ts';

/** A method, and what an upstream sends before it closes. */
export interface Sample {
  readonly method: string;
  readonly bytes: Buffer;
}

/** What a reader made of it. */
export interface Reading {
  readonly refusal: string | null;
  readonly interim: readonly string[];
  readonly status: number;
  readonly reason: string;
  readonly headers: RawHeaders;
  readonly body: string;
  readonly trailers: RawHeaders;
}

function sample(text: string, method = 'GET'): Sample {
  return { method, bytes: Buffer.from(text, 'latin1') };
}

const OK = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`;

export const GOOD: readonly Sample[] = [
  sample(`${OK}Content-Length: 5\r\n\r\nhello`),
  sample(`${OK}content-LENGTH:5\r\nX:\r\nX-Y: \t a b \t\r\n\r\nhello`),
  sample(`${OK}Content-Length: 0\r\n\r\n`),
  sample(`${OK}Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok`),
  sample(`${OK}X-Bytes: caf\xe9 \x80\xff\r\nContent-Length: 1\r\n\r\n\x00`),
  sample(`${CHUNKED}5\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;name=value;other\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a="quoted; \\" \xe9";b=c;d\r\nhello\r\n0;e=f\r\n\r\n`),
  sample(`${CHUNKED}3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n`),
  sample(`${CHUNKED}0\r\n\r\n`),
  sample(`${OK}Trailer: X\r\nTransfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\n0\r\nX: y\r\n\r\n`),
  sample(`${OK}\r\nuntil the end`),
  sample(`${OK}Connection: close\r\n\r\n`),
  sample('HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'),
  sample('HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok'),
  sample('HTTP/1.0 404 Not Found\r\n\r\nnothing here'),
  sample('HTTP/1.1 204 No Content\r\nX: y\r\n\r\n'),
  sample('HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: "x"\r\n\r\n'),
  sample(`${OK}Content-Length: 500\r\n\r\n`, 'HEAD'),
  sample(`${OK}Transfer-Encoding: chunked\r\n\r\n`, 'HEAD'),
  sample('HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx'),
  sample('HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx'),
  sample('HTTP/1.1 599 Odd reason, with \xe9\r\nContent-Length: 1\r\n\r\nx'),
  sample(`HTTP/1.1 100 Continue\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`),
  sample(
    `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n${CHUNKED}2\r\nok\r\n0\r\n\r\n`,
  ),
  sample(`${OK}Content-Length: 2\r\n\r\nok${OK}Content-Length: 4\r\n\r\nevil`),
  sample('HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/10\r\nContent-Length: 2\r\n\r\nok'),
];

export const BAD: readonly Sample[] = [
  sample(''),
  sample('HTTP/1.1 200 OK'),
  sample('SSH-2.0-OpenSSH_9.0\r\n\r\n'),
  sample('\x15\x03\x01\x00\x02\x02\x46'),
  sample('HTTP/2.0 200 OK\r\n\r\n'),
  sample('HTTP/0.9 200 OK\r\n\r\n'),
  sample('HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'),
  sample('HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n'),
  sample('\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'),
  sample(`${OK}Content-Length: 5\r\n\r\nhell`),
  sample(`${OK}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`),
  sample(`${OK}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello`),
  sample(`${OK}Content-Length: 5, 5\r\n\r\nhello`),
  sample(`${OK}Content-Length: -1\r\n\r\n`),
  sample(`${OK}Content-Length: +1\r\n\r\nx`),
  sample(`${OK}Content-Length: 0x1\r\n\r\nx`),
  sample(`${OK}Content-Length: 1 1\r\n\r\nx`),
  sample(`${OK}Content-Length:\r\n\r\n`),
  sample(`${OK}Content-Length: 99999999999999999999\r\n\r\nx`),
  sample(`${OK}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`),
  sample(`${OK}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`),
  sample(`${OK}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`),
  sample(`${OK}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n`),
  sample(`${OK}Transfer-Encoding: identity\r\n\r\nx`),
  sample(`${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`),
  sample(`${OK}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n`),
  sample('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
  sample(`${OK}X : y\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: y\r\n folded\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK} X: y\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: a\rb\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: a\nb: c\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: a\x00b\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: a\x7fb\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X: a\x1bb\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}no colon\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}: empty\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X\xe9: y\r\nContent-Length: 0\r\n\r\n`),
  sample(`${OK}X(: y\r\nContent-Length: 0\r\n\r\n`),
  sample('HTTP/1.1 200 OK\nContent-Length: 0\n\n'),
  sample(`${OK}Content-Length: 0\n\n`),
  sample(`${CHUNKED}zz\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}-1\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}0x5\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED} 5\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5 \r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5\r\nhello0\r\n\r\n`),
  sample(`${CHUNKED}5\r\nhello\n0\r\n\r\n`),
  sample(`${CHUNKED}5\r\nhello\r\r\n0\r\n\r\n`),
  sample(`${CHUNKED}4\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a\x00b\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a b\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a="b\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a="\\\x01"\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a="b"c\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5;a\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}5\r\nhello\r\n`),
  sample(`${CHUNKED}5\r\nhello\r\n0\r\n`),
  sample(`${CHUNKED}ffffffffffffffff\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}10000000000000005\r\nhello\r\n0\r\n\r\n`),
  sample(`${CHUNKED}0\r\nX : y\r\n\r\n`),
  sample(`${CHUNKED}0\r\nX: y\n\r\n`),
  sample(`${CHUNKED}0\r\n folded: y\r\n\r\n`),
  sample(`${CHUNKED}0\r\nContent-Length: 5\r\n\r\n`),
  sample(`${CHUNKED}0\r\nTransfer-Encoding: chunked\r\n\r\n`),
  sample('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n'),
  sample('HTTP/1.1 100 Continue\r\n\r\n'),
];

/**
 * What the codec refuses although Node's client takes it; each is the message of the refusal. Everything else that Node
 * refuses, the codec must refuse too.
 */
export const STRICTER: ReadonlySet<string> = new Set([
  // Node passes over empty lines before a status line, takes `HTTP/0.9` and `HTTP/2.0`, and any case of letters.
  'it does not speak HTTP/1',
  // Node takes 1.2 and others, a status below 100, and white space after the version.
  'it does not begin with an HTTP/1.x status line',
  // Node lets anything but LF pass in a reason phrase.
  'its status line holds a control character, or a bare CR or LF',
  'a line does not end in CRLF',
  // Node lets empty parts and others pass.
  'a chunk extension is malformed',
  // Node decides by the last coding and reads until the close when that is not `chunked`; we can honour `chunked` alone.
  'its Transfer-Encoding is another than chunked',
  'it has more than one Transfer-Encoding',
  'it has a Transfer-Encoding in HTTP/1.0',
  // Node lets such a field pass in trailers, and reads `chunked` before a HTAB as another coding.
  'a field frames the message out of place or in an odd spelling',
  // Node's limit is 64 bits, ours what a number holds exactly.
  'its Content-Length is no number',
  'a chunk size is too large',
  // Node upgrades whenever it is told to.
  'it switches to a protocol that the request did not ask for',
]);

/** Numbers in [0, 1) that are the same for the same seed (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const INTERESTING = [...Buffer.from('\r\n\r\n\0 \t:;,059afgxHT/.-+"\x7f\x80\xff\x0b', 'latin1')];
const SNIPPETS = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  '0\r\n\r\n',
  'Content-Length: 3\r\n',
  'Transfer-Encoding: chunked\r\n',
  '5\r\n',
  OK,
  ' ',
];

/** One to four small changes. */
export function mutate({ method, bytes }: Sample, random: () => number): Sample {
  const pick = (count: number): number => Math.floor(random() * count);
  let mutated = bytes;
  for (let count = 1 + pick(4); count > 0; count -= 1) {
    const at = pick(mutated.length + 1);
    const rest = mutated.subarray(at);
    const kind = pick(5);
    const middle =
      kind === 0
        ? Buffer.of(INTERESTING[pick(INTERESTING.length)] as number)
        : kind === 1
          ? Buffer.from(SNIPPETS[pick(SNIPPETS.length)] as string, 'latin1')
          : kind === 2
            ? mutated.subarray(at, at + pick(12))
            : Buffer.alloc(0);
    // Insert before, replace one byte, or cut some out.
    const skip = kind === 3 ? 1 + pick(6) : kind === 4 ? mutated.length : pick(2);
    mutated = Buffer.concat([mutated.subarray(0, at), middle, rest.subarray(skip)]);
  }
  return { method, bytes: mutated };
}

function refused(refusal: string): Reading {
  return { refusal, interim: [], status: 0, reason: '', headers: [], body: '', trailers: [] };
}

/** Reads with the codec, the bytes cut at the offsets. Throws whatever is no ResponseSyntaxError. */
export function readWithCodec({ method, bytes }: Sample, cuts: readonly number[] = []): Reading {
  const interim: string[] = [];
  const body: Buffer[] = [];
  let head: ResponseHead | null = null;
  let trailers: RawHeaders | null = null;
  const parser = new ResponseParser({
    information: (status, reason, headers) => interim.push([status, reason, ...headers].join('|')),
    head: (final) => (head = final),
    data: (chunk) => body.push(Buffer.from(chunk)),
    end: (fields) => {
      if (trailers !== null) throw new Error('two ends of one response');
      trailers = fields;
      parser.stop();
    },
    upgrade: () => {
      throw new Error('an upgrade that nobody asked for');
    },
  });
  parser.begin({ method });
  try {
    const ends = [...cuts, bytes.length];
    for (const [index, end] of ends.entries()) parser.execute(bytes.subarray(ends[index - 1] ?? 0, end));
    parser.finish();
  } catch (error) {
    if (error instanceof ResponseSyntaxError) return refused(error.message);
    throw error;
  }
  const final = head as ResponseHead | null;
  if (final === null || trailers === null) throw new Error('neither a response nor a refusal');
  const { status, reason, headers } = final;
  return { refusal: null, interim, status, reason, headers, body: Buffer.concat(body).toString('latin1'), trailers };
}

class OneWay extends Duplex {
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    super();
    this.#bytes = bytes;
  }

  override _write(_chunk: unknown, _encoding: unknown, callback: () => void): void {
    callback();
    if (this.readableEnded || this.writableEnded) return;
    this.push(this.#bytes);
    this.push(null);
  }

  override _read(): void {
    // Everything is pushed when the request is written.
  }
}

/** Reads with Node's client, over a stream in memory. */
export async function readWithNode({ method, bytes }: Sample): Promise<Reading> {
  const interim: string[] = [];
  const controller = new AbortController();
  const outgoing = request({
    method,
    createConnection: () => new OneWay(bytes),
    host: 'a.test',
    maxHeaderSize: 262_144,
  });
  outgoing.on('information', (info) =>
    interim.push([info.statusCode, info.statusMessage, ...info.rawHeaders].join('|')),
  );
  outgoing.on('error', () => controller.abort());
  outgoing.on('upgrade', () => controller.abort());
  outgoing.end();
  try {
    const [response] = (await once(outgoing, 'response', { signal: controller.signal })) as [IncomingMessage];
    const body: Buffer[] = [];
    for await (const chunk of response) body.push(chunk as Buffer);
    if (!response.complete) return refused('incomplete');
    return {
      refusal: null,
      interim,
      status: response.statusCode ?? 0,
      reason: response.statusMessage ?? '',
      headers: response.rawHeaders,
      body: Buffer.concat(body).toString('latin1'),
      trailers: response.rawTrailers,
    };
  } catch (error) {
    return refused((error as Error).message);
  } finally {
    outgoing.destroy();
  }
}

/** Null when the codec is as strict as Node, or stricter in an allowed way; else what is wrong. */
export async function compareReaders(input: Sample, cuts: readonly number[] = []): Promise<string | null> {
  const ours = readWithCodec(input);
  const inPieces = readWithCodec(input, cuts);
  const text = (reading: Reading): string => JSON.stringify(reading);
  // Which fault is found first depends on what has come; whether one is found does not.
  const isSame = ours.refusal === null ? text(ours) === text(inPieces) : inPieces.refusal !== null;
  if (!isSame) return 'the codec reads it otherwise when it comes in pieces';
  const theirs = await readWithNode(input);
  if (ours.refusal === null)
    return text(ours) === text(theirs) ? null : `the codec takes ${text(ours)}, Node ${text(theirs)}`;
  return theirs.refusal !== null || STRICTER.has(ours.refusal)
    ? null
    : `the codec refuses (${ours.refusal}), Node takes ${text(theirs)}`;
}
