// Requests that leave HTTP/1.1's usual way, pipelined behind one that is under way: each answer comes in its turn.
import type { Duplex } from 'node:stream';
import t, { test } from 'tap';
import { acceptOf } from '../../proxy/websocket.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
const PONG = Buffer.of(0x8a, 0);
let upstream: TestUpstream;
let keyveil: TestProxy;
/** Lets the answer to `/slow` go. */
let release: () => void = () => undefined;
let released = Promise.resolve();

function switchProtocol(socket: Duplex, url: string | undefined): void {
  socket.on('error', () => socket.destroy());
  if (url === '/refused') socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
  else {
    const head = `Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${acceptOf(KEY)}`;
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${head}\r\n\r\n`);
    socket.write(PONG);
    socket.end();
  }
}

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startUpstream({
    leaf: authority.leafFor([HOST]),
    respond: ({ url, body }, response) => {
      const answer = (): void => void response.end(`<${url} ${body.toString()}>`);
      if (url === '/slow') void released.then(answer);
      else answer();
    },
  });
  upstream.server.on('upgrade', (request, socket: Duplex) => switchProtocol(socket, request.url));
  keyveil = await startTestProxy({
    authority,
    overrides: { [`${HOST}:443`]: upstream.port },
    policy: sessionPolicy([]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

const request = (start: string, fields: readonly string[] = [], body = ''): string =>
  `${start} HTTP/1.1\r\nHost: ${HOST}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n${body}`;
const webSocket = (path: string, fields: readonly string[] = []): string =>
  request(`GET ${path}`, [
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${KEY}`,
    ...fields,
  ]);
const H2C = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__'];
const CHUNKED = 'Transfer-Encoding: chunked';
const LAST = request('GET /last', ['Connection: close']);

/** What is pipelined, and what the answers hold, in order. */
const CASES: Readonly<Record<string, readonly [string, readonly RegExp[]]>> = {
  'an upgrade to HTTP/2 in clear': [request('GET /h2c', H2C) + LAST, [/^200 [^]*<\/h2c >$/, /<\/last >$/]],
  'an upgrade with a body of stated length': [
    request('POST /length', [...H2C, 'Content-Length: 3'], 'abc') + LAST,
    [/<\/length abc>$/, /<\/last >$/],
  ],
  'an upgrade with a body in chunks': [
    request('POST /chunks', [...H2C, CHUNKED], '3\r\nabc\r\n0\r\n\r\n') + LAST,
    [/<\/chunks abc>/, /<\/last >$/],
  ],
  'three upgrades to something unknown': [
    ['/1', '/2', '/3'].map((path) => request(`GET ${path}`, ['Connection: upgrade', 'Upgrade: x/1'])).join('') + LAST,
    [/<\/1 >$/, /<\/2 >$/, /<\/3 >$/, /<\/last >$/],
  ],
  'a WebSocket handshake that is granted': [webSocket('/socket'), [/^101 [^]*\r\n\r\n\x8a\0$/]],
  'a WebSocket handshake that is refused': [webSocket('/refused') + LAST, [/^403 [^]*\r\n\r\nno$/]],
  'a malformed WebSocket handshake': [webSocket('/socket', [`Host: ${HOST}`]) + LAST, [/^400 /]],
  'a WebSocket handshake with a body': [webSocket('/socket', [CHUNKED]) + LAST, [/^400 /]],
  'a CONNECT': [request(`CONNECT ${HOST}:443`) + LAST, [/^405 /]],
  'a request without Host': ['GET /none HTTP/1.1\r\n\r\n' + LAST, [/^400 /]],
  'a request with two Host fields': [request('GET /two', [`Host: ${HOST}`]) + LAST, [/^400 /]],
};

const BEFORE: readonly (readonly [string, string, readonly RegExp[]])[] = [
  ['a request', request('GET /slow'), [/<\/slow >$/]],
  ['an upload', request('POST /slow', ['Content-Length: 2'], 'up'), [/<\/slow up>$/]],
  ['two requests', request('GET /slow') + request('GET /next'), [/<\/slow >$/, /<\/next >$/]],
];

for (const [name, [text, expected]] of Object.entries(CASES)) {
  for (const [first, firstText, firstExpected] of BEFORE) {
    test(`${name} behind ${first} under way is answered in its turn`, async (t) => {
      released = new Promise((resolve) => (release = resolve));
      const earlier = keyveil.events.length;
      const arrived = upstream.next();
      const socket = await keyveil.tunnel(`${HOST}:443`);
      const chunks: Buffer[] = [];
      socket.on('data', (chunk: Buffer) => chunks.push(chunk));
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.write(firstText + text);
      await arrived;
      // By the time that another connection was served, what was pipelined has been read.
      const other = await keyveil.tunnel(`${HOST}:443`);
      other.write(request('GET /other'));
      await new Promise((resolve) => other.once('data', resolve));
      other.destroy();
      t.equal(Buffer.concat(chunks).length, 0, 'nothing overtakes');
      release();
      await closed;
      const answers = Buffer.concat(chunks)
        .toString('latin1')
        .split(/HTTP\/1\.1 (?=\d{3} )/)
        .slice(1);
      t.equal(answers.length, firstExpected.length + expected.length, answers.join('|'));
      for (const [index, pattern] of [...firstExpected, ...expected].entries()) {
        t.match(answers[index]?.trimEnd(), pattern);
      }
      const statuses = answers.map((answer) => Number(answer.slice(0, 3)));
      const rows = (): (number | null)[] =>
        keyveil.events
          .slice(earlier)
          .filter(({ path }) => path !== '/other')
          .map(({ status }) => status);
      while (rows().length < statuses.length) await keyveil.nextEvent();
      t.strictSame(rows().sort(), statuses.sort(), 'each answer has a row');
    });
  }
}

test('upgrades that are not honoured, one after the other, leave nothing on their connection', async (t) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on('warning', onWarning);
  t.teardown(() => process.off('warning', onWarning));
  const socket = await keyveil.tunnel(`${HOST}:443`);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  // The runtime warns of an eleventh listener to one event.
  for (let count = 1; count <= 30; count += 1) {
    socket.write(request(`GET /${count}`, count % 2 === 0 ? H2C : ['Connection: upgrade', 'Upgrade: x/1']));
    while (!text.includes(`</${count} >`)) await new Promise((resolve) => socket.once('data', resolve));
  }
  await new Promise((resolve) => setImmediate(resolve));
  t.strictSame(warnings, []);
  socket.destroy();
});
