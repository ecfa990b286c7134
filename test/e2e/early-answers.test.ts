// A client that reads nothing before it has sent all: the answer that came meanwhile is there for it, whoever gave it.
import { connect, type Socket } from 'node:net';
import t, { test } from 'tap';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const MIB = 1024 * 1024;
/** More than the system's buffers between the two take by themselves. */
const BODY_BYTES = 12 * MIB;
const PIECE_BYTES = 64 * 1024;
const PLACEHOLDER = placeholderOf('A');

let upstream: TestUpstream;
/** `grows` has a credential whose value is so much longer than its placeholder that few of them are too much. */
let proxies: Record<'plain' | 'grows', TestProxy>;

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startUpstream({
    leaf: authority.leafFor([HOST]),
    listener: (request, response) => {
      request.on('error', () => undefined);
      if (request.method === 'POST') response.writeHead(413, { 'Content-Length': 5 }).end('early');
      else response.end('next');
    },
  });
  const overrides = { [`${HOST}:443`]: upstream.port };
  const credential = {
    placeholder: PLACEHOLDER,
    value: 'v'.repeat(4096),
    location: { header: true, body: true },
  };
  proxies = {
    plain: await startTestProxy({ authority, overrides, policy: sessionPolicy([]) }),
    grows: await startTestProxy({
      authority,
      overrides,
      policy: sessionPolicy([credential]),
      bodies: { growthBytes: 64 * 1024 },
    }),
  };
});

t.teardown(async () => {
  await proxies.plain.close();
  await proxies.grows.close();
  await upstream.close();
});

interface Upload {
  readonly start: string;
  readonly fields: readonly string[];
  readonly isChunked: boolean;
  readonly piece: Buffer;
}

/** Sends all of it, and only then reads. Rejects when the connection breaks before that. */
async function upload(socket: Socket, { start, fields, isChunked, piece }: Upload): Promise<void> {
  const broken = new Promise<never>((_resolve, reject) => {
    socket.on('error', reject);
    socket.once('close', () => reject(new Error('The connection was closed.')));
  });
  broken.catch(() => undefined);
  const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${BODY_BYTES}`;
  socket.pause();
  socket.write([start, `Host: ${HOST}`, ...fields, 'Content-Type: text/plain', framing, '', ''].join('\r\n'));
  const bytes = isChunked
    ? Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')])
    : piece;
  for (let sent = 0; sent < BODY_BYTES; sent += piece.length) {
    if (!socket.write(bytes)) {
      await Promise.race([new Promise<void>((resolve) => socket.once('drain', resolve)), broken]);
    }
  }
  if (isChunked) socket.write('0\r\n\r\n');
}

/** What comes, until it holds the pattern or the connection is closed. */
function readUntil(socket: Socket, pattern: RegExp): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (pattern.test(text)) resolve(text);
    });
    socket.once('close', () => resolve(text));
    socket.resume();
  });
}

const TEXT = Buffer.alloc(PIECE_BYTES, 'x');
const PLACEHOLDERS = Buffer.alloc(PIECE_BYTES, `${PLACEHOLDER} `);

interface Case {
  readonly name: string;
  readonly proxy: 'plain' | 'grows';
  readonly start?: string;
  readonly fields?: readonly string[];
  readonly piece?: Buffer;
  readonly expected: RegExp;
  /** The framing is not to be trusted, so that nothing more is read as a request. */
  readonly closes?: true;
}

const CASES: readonly Case[] = [
  { name: 'a swap that grows too much', proxy: 'grows', piece: PLACEHOLDERS, expected: /^HTTP\/1\.1 413 [^]*swap_too/ },
  { name: 'another host', proxy: 'plain', start: 'POST https://other.test/ HTTP/1.1', expected: /^HTTP\/1\.1 4\d\d / },
  { name: 'two Host fields', proxy: 'plain', fields: [`Host: ${HOST}`], expected: /^HTTP\/1\.1 400 /, closes: true },
  { name: "the upstream's early answer", proxy: 'plain', expected: /^HTTP\/1\.1 413 [^]*early/ },
  {
    name: "the upstream's early answer to a body that is searched",
    proxy: 'grows',
    expected: /^HTTP\/1\.1 413 [^]*early/,
  },
];

for (const { name, proxy, start, fields = [], piece, expected, closes } of CASES) {
  for (const isChunked of [false, true]) {
    for (const isLast of [false, true]) {
      const kind = `${isChunked ? 'in chunks' : 'of stated length'}${isLast ? ', on a connection that is to be closed' : ''}`;
      test(`${name}: the answer to a body ${kind}`, async (t) => {
        const socket = await proxies[proxy].tunnel(`${HOST}:443`);
        await upload(socket, {
          start: start ?? 'POST / HTTP/1.1',
          fields: isLast ? [...fields, 'Connection: close'] : fields,
          isChunked,
          piece: piece ?? TEXT,
        });
        if (!isLast && closes !== true) socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
        const text = await readUntil(socket, isLast || closes === true ? /$^/ : /next$/);
        t.match(text, expected);
        t.equal(text.endsWith('next'), !isLast && closes !== true, 'the connection goes on where it can');
        socket.destroy();
      });
    }
  }
}

test('a refusal at the proxy port itself', async (t) => {
  const socket = connect(proxies.plain.port, '127.0.0.1');
  await upload(socket, { start: 'POST http://api.test/ HTTP/1.1', fields: [], isChunked: false, piece: TEXT });
  t.match(await readUntil(socket, /$^/), /^HTTP\/1\.1 407 /);
});
