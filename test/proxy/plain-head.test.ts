// Heads that are read in one go: whatever is taken, Node's strict parser takes too, and reads the same.
import { createServer, type IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import t, { type Test } from 'tap';
import { readConnect } from '../../proxy/connect-request.ts';
import { STRICT_SERVER_OPTIONS } from '../../proxy/http1-server.ts';
import { readPlainHead } from '../../proxy/plain-head.ts';

const GOOD = [
  'GET / HTTP/1.1\r\nHost: api.test\r\n\r\n',
  'GET /v1/a?b=%20c&d=[1]{2}|3#e HTTP/1.1\r\nHost: api.test:443\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n',
  'HEAD /x HTTP/1.1\r\nhost:api.test\r\nAuthorization: Bearer kvph_0123456789\r\nConnection: Keep-Alive\r\n\r\n',
  'DELETE /v1/things/1 HTTP/1.1\r\nHOST: api.test\r\nX-Odd!#$%&\'*+-.^_`|~: "a", b; c=d\r\nX-Odd: again\r\n\r\n',
  'OPTIONS * HTTP/1.1\r\nHost: api.test\r\nAccept-Encoding: gzip, deflate, br\r\nTE: trailers\r\n\r\n',
  'CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\nProxy-Authorization: Basic YTpi\r\n\r\n',
  'CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\nProxy-Connection: Keep-Alive\r\nUser-Agent: a b\r\n\r\n',
  'GET / HTTP/1.1\r\n\r\n',
];
const LEFT_TO_NODE = {
  'a part of a head': 'GET / HTTP/1.1\r\nHost: a\r\n',
  'two heads': GOOD[0] + (GOOD[0] as string),
  'bytes behind it': `${GOOD[5]}\u0016\u0003\u0001`,
  'an empty line before it': `\r\n${GOOD[0]}`,
  'HTTP/1.0': 'GET / HTTP/1.0\r\nHost: a\r\n\r\n',
  'a length': 'GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n',
  'a length in odd case': 'GET / HTTP/1.1\r\nHost: a\r\ncOnTeNt-LeNgTh: 3\r\n\r\n',
  'a transfer coding': 'GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n',
  'an upgrade': 'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  'an upgrade without its option': 'GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n',
  'an expectation': 'GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n',
  'a close': 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
  'a close in the old spelling': 'GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n',
  'a named option': 'GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-A\r\n\r\n',
  'trailers announced': 'GET / HTTP/1.1\r\nHost: a\r\nTrailer: X-A\r\n\r\n',
  'a folded line': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n',
  'a blank before the colon': 'GET / HTTP/1.1\r\nHost : a\r\n\r\n',
  'two blanks before a value': 'GET / HTTP/1.1\r\nHost: a\r\nX-A:  b\r\n\r\n',
  'a blank behind a value': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: b \r\n\r\n',
  'a tab': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: b\tc\r\n\r\n',
  'an empty value': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: \r\n\r\n',
  'no name': 'GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n',
  'a bare LF': 'GET / HTTP/1.1\nHost: a\n\n',
  'a bare CR': 'GET / HTTP/1.1\r\nHost: a\rX-A: b\r\n\r\n',
  'a NUL': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: b\0c\r\n\r\n',
  'a byte above ASCII': 'GET / HTTP/1.1\r\nHost: a\r\nX-A: \u00e4\r\n\r\n',
  'two blanks in the request line': 'GET  / HTTP/1.1\r\nHost: a\r\n\r\n',
  'more fields than usual': `GET / HTTP/1.1\r\nHost: a\r\n${'X-A: b\r\n'.repeat(100)}\r\n`,
  'more bytes than usual': `GET / HTTP/1.1\r\nHost: a\r\nX-A: ${'b'.repeat(8192)}\r\n\r\n`,
};

interface Seen {
  readonly method: string | undefined;
  readonly target: string | undefined;
  readonly headers: readonly string[];
  /** Bytes that are no part of the head. */
  readonly rest: number;
  readonly keepsAlive: boolean;
}

/** What Node's server makes of the bytes; null when it refuses them, or waits for more. */
function readByNode(bytes: Buffer): Promise<Seen | null> {
  return new Promise((resolve) => {
    const server = createServer(STRICT_SERVER_OPTIONS);
    server.maxHeadersCount = 0;
    const connection = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
    const seen = ({ method, url, rawHeaders }: IncomingMessage, rest: number, keepsAlive: boolean): Seen => {
      return { method, target: url, headers: rawHeaders, rest, keepsAlive };
    };
    server.on('clientError', () => resolve(null));
    server.on('connect', (request, _socket, head: Buffer) => resolve(seen(request, head.length, true)));
    server.on('upgrade', () => resolve(null));
    server.on('checkContinue', () => resolve(null));
    server.on('request', (request, response) => {
      let rest = 0;
      request.on('data', (chunk: Buffer) => (rest += chunk.length));
      request.on('end', () => resolve(seen(request, rest, response.shouldKeepAlive)));
    });
    server.emit('connection', connection);
    connection.push(bytes);
    setImmediate(() => setImmediate(() => setImmediate(() => resolve(null))));
  });
}

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');

async function compare(t: Test, text: string): Promise<boolean> {
  const head = readPlainHead(bytesOf(text));
  if (head === null) return false;
  const expected = await readByNode(bytesOf(text));
  const { method, target, rawHeaders: headers } = head;
  // Node's parser alone knows which methods there are; ours are looked at by whoever reads a head.
  if (expected === null && !['GET', 'HEAD', 'DELETE', 'CONNECT'].includes(method)) return false;
  if (method === 'CONNECT' && readConnect(bytesOf(text)) === null) return false;
  if (method !== 'CONNECT' && !target.startsWith('/')) return false;
  const read = { method, target, headers, rest: 0, keepsAlive: true };
  if (JSON.stringify(read) !== JSON.stringify(expected)) t.strictSame(read, expected, JSON.stringify(text));
  return true;
}

void t.test('the usual heads are read', async (t) => {
  for (const text of GOOD) t.ok(readPlainHead(bytesOf(text)), text);
  for (const text of GOOD) if (!text.startsWith('OPTIONS *')) t.ok(await compare(t, text));
  t.strictSame(
    GOOD.map((text) => readPlainHead(bytesOf(text))?.hostCount),
    [1, 1, 1, 1, 1, 1, 1, 0],
  );
  t.equal(readPlainHead(bytesOf('GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n'))?.hostCount, 2);
  t.strictSame(readConnect(bytesOf(GOOD[5] as string)), {
    method: 'CONNECT',
    url: 'api.test:443',
    rawHeaders: ['Host', 'api.test:443', 'Proxy-Authorization', 'Basic YTpi'],
  });
});

void t.test('what is no plain head is left to a server', (t) => {
  for (const [what, text] of Object.entries(LEFT_TO_NODE)) t.equal(readPlainHead(bytesOf(text)), null, what);
  for (const good of GOOD) {
    for (let length = 0; length < good.length; length += 1) {
      if (readPlainHead(bytesOf(good.slice(0, length))) !== null) t.fail(`${length} bytes of ${good}`);
    }
  }
  for (const target of ['/', 'api.test', 'http://api.test/', 'api.test:', 'api.test:123456', 'a b:1', 'u@api.test:1']) {
    t.equal(readConnect(bytesOf(`CONNECT ${target} HTTP/1.1\r\nHost: a\r\n\r\n`)), null, target);
  }
  t.equal(readConnect(bytesOf(GOOD[0] as string)), null);
  t.end();
});

void t.test('whatever is taken of mutated heads, Node reads in the same way', async (t) => {
  let state = 42;
  const random = (below: number): number => (state = (state * 48_271) % 2_147_483_647) % below;
  const pieces = [
    '\r\n',
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    ': ',
    ',',
    '\0',
    '\u00ff',
    'chunked',
    '0',
    '/',
    '#',
    '?',
    '%',
    '@',
  ];
  const lines = Object.values(LEFT_TO_NODE).flatMap((text) => text.split('\r\n'));
  const mutate = (text: string): string => {
    const at = random(text.length);
    switch (random(4)) {
      case 0:
        return text.slice(0, at) + text.slice(at + 1 + random(3));
      case 1:
        return text.slice(0, at) + String.fromCharCode(random(256)) + text.slice(at + 1);
      case 2:
        return text.slice(0, at) + (pieces[random(pieces.length)] as string) + text.slice(at);
      default:
        return text.replace('\r\n', `\r\n${(lines[random(lines.length)] as string).slice(0, 200)}\r\n`);
    }
  };
  let taken = 0;
  for (let round = 0; round < 40_000; round += 1) {
    let text = GOOD[random(GOOD.length)] as string;
    for (let times = random(3); times >= 0; times -= 1) text = mutate(text);
    taken += Number(await compare(t, text));
  }
  t.ok(taken > 4000, `${taken} were taken`);
});
