// Bodies and interim answers over real sockets: streaming, backpressure, aborts, pipelining, and what HTTP passes on.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { TLSSocket } from 'node:tls';
import t, { test } from 'tap';
import { readAll, readHead } from '../support/daemon.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type Responder, type TestUpstream } from '../support/upstream.ts';

const VALUE = 'the-real-value-of-the-key';
const HEADER_ONLY = placeholderOf('H');

const authority = createTestAuthority();
let respond: Responder = (_request, response) => response.end('ok');
let upstream: TestUpstream;
let keyveil: TestProxy;

t.before(async () => {
  upstream = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    respond: (request, response) => respond(request, response),
  });
  keyveil = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([{ placeholder: HEADER_ONLY, value: VALUE, hosts: ['api.test'], header: true, body: false }]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

function answerWith(write: (response: ServerResponse) => void): void {
  respond = (_request, response) => write(response);
}

/** Reads one answer with a Content-Length. */
async function readAnswer(tls: TLSSocket): Promise<{ head: string; body: string }> {
  const head = await readHead(tls);
  const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
  let body = '';
  while (body.length < length) {
    const chunk = tls.read() as Buffer | null;
    if (chunk === null) await once(tls, 'readable');
    else body += chunk.toString('latin1');
  }
  return { head, body };
}

test('requests pipelined in one record are judged, swapped and answered one by one, in order', async (t) => {
  upstream.received.length = 0;
  respond = (request, response) => response.end(request.url);
  const tls = await keyveil.tunnel('api.test:443');
  const bodyWithPlaceholder = `{"k":"${HEADER_ONLY}"}`;
  tls.write(
    `POST /1 HTTP/1.1\r\nHost: api.test\r\nX-A: ${HEADER_ONLY}\r\nContent-Length: ${bodyWithPlaceholder.length}\r\n\r\n${bodyWithPlaceholder}` +
      `GET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n` +
      `POST /3 HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\n0\r\n\r\n\r\n0\r\nX-T: ${HEADER_ONLY}\r\n\r\n` +
      `GET /4 HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n`,
  );
  const all = await readAll(tls);
  t.same(
    [...all.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => match[1]),
    ['200', '421', '200', '200'],
  );
  t.same(
    upstream.received.map(({ url }) => url),
    ['/1', '/3', '/4'],
  );
  t.equal(upstream.received[0]?.header('x-a'), VALUE);
  t.equal(upstream.received[0]?.body.toString(), bodyWithPlaceholder, 'a header-only credential never reaches a body');
  t.equal(upstream.received[1]?.body.toString(), '0\r\n\r\n');
  t.same(upstream.received[1]?.rawTrailers, ['X-T', VALUE]);
});

test('a large upload and a large download arrive byte for byte', async (t) => {
  const sent = randomBytes(8 * 1024 * 1024);
  const digest = createHash('sha256').update(sent).digest('hex');
  respond = (request, response) => {
    response.setHeader('X-Digest', createHash('sha256').update(request.body).digest('hex'));
    response.setHeader('Content-Length', String(request.body.length));
    response.end(request.body);
  };
  for (const framing of [`Content-Length: ${sent.length}`, 'Transfer-Encoding: chunked']) {
    const tls = await keyveil.tunnel('api.test:443');
    tls.write(`POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n${framing}\r\n\r\n`);
    if (framing.startsWith('C')) tls.write(sent);
    else tls.write(Buffer.concat([Buffer.from(`${sent.length.toString(16)}\r\n`), sent, Buffer.from('\r\n0\r\n\r\n')]));
    const all = Buffer.from(await readAll(tls), 'latin1');
    const body = all.subarray(all.indexOf('\r\n\r\n') + 4);
    t.match(all.toString('latin1', 0, 500), new RegExp(`X-Digest: ${digest}`), framing);
    t.equal(createHash('sha256').update(body).digest('hex'), digest, framing);
  }
});

test('interim answers, 100-continue and trailers pass', async (t) => {
  answerWith((response) => {
    response.writeEarlyHints({ link: '</a.css>; rel=preload' });
    response.writeHead(200, { trailer: 'X-End' });
    response.write('body');
    response.addTrailers({ 'X-End': 'done' });
    response.end();
  });
  const tls = await keyveil.tunnel('api.test:443');
  tls.write(
    'POST / HTTP/1.1\r\nHost: api.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n',
  );
  t.match(await readHead(tls), /^HTTP\/1\.1 100 Continue\r\n/);
  tls.write('data');
  t.match(await readHead(tls), /^HTTP\/1\.1 103 [^\r]*\r\nlink: <\/a\.css>; rel=preload\r\n/i);
  const rest = await readAll(tls);
  t.match(rest, /^HTTP\/1\.1 200 OK\r\n/);
  t.match(rest, /0\r\nX-End: done\r\n\r\n$/);
});

test('header fields keep their order, case, duplicates and empty values both ways', async (t) => {
  answerWith((response) => {
    response.sendDate = false;
    response.writeHead(207, 'Odd Reason', [
      'X-One',
      '1',
      'Set-Cookie',
      'a=1',
      'x-two',
      '',
      'Set-Cookie',
      'b=2',
      'Content-Length',
      '0',
    ] as never);
    response.end();
  });
  const tls = await keyveil.tunnel('api.test:443');
  tls.write(
    'GET / HTTP/1.1\r\nX-Z: 1\r\nHost: api.test\r\nx-Empty: \r\nCookie: a\r\nX-Z: 2\r\nKeep-Alive: 5\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nProxy-Authorization: Basic eDp5\r\n\r\n',
  );
  const received = await upstream.next();
  const head = await readAll(tls);
  t.same(received.rawHeaders, ['X-Z', '1', 'Host', 'api.test', 'x-Empty', '', 'Cookie', 'a', 'X-Z', '2']);
  t.match(
    head,
    /^HTTP\/1\.1 207 Odd Reason\r\nX-One: 1\r\nSet-Cookie: a=1\r\nx-two: \r\nSet-Cookie: b=2\r\n(?:Content-Length: 0\r\n)?/,
  );
  t.notMatch(head, /^(?:via|x-forwarded-for|date|keep-alive|server):/im);
});

test('HEAD, 204 and 304 keep their framing and have no body', async (t) => {
  const tls = await keyveil.tunnel('api.test:443');
  answerWith((response) => {
    response.writeHead(200, { 'Content-Length': '1234' });
    response.end();
  });
  tls.write('HEAD / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(tls), /Content-Length: 1234/);
  for (const status of [204, 304]) {
    answerWith((response) => {
      response.writeHead(status, { ETag: '"x"' });
      response.end();
    });
    tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
    const head = await readHead(tls);
    t.match(head, new RegExp(`^HTTP/1\\.1 ${status} `));
    t.notMatch(head, /transfer-encoding/i);
  }
  respond = (_request, response) => response.end('ok');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.equal((await readAnswer(tls)).body, 'ok');
  tls.destroy();
});

test('events of an event stream arrive as they are sent', async (t) => {
  let stream: ServerResponse | null = null;
  answerWith((response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.flushHeaders();
    stream = response;
  });
  const tls = await keyveil.tunnel('api.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(tls), /^HTTP\/1\.1 200 /, 'the head does not wait for an event');
  for (let index = 0; index < 5; index += 1) {
    (stream as unknown as ServerResponse).write(`data: ${index}\n\n`);
    let seen = '';
    tls.resume();
    while (!seen.includes('\n\n')) seen += ((await once(tls, 'data')) as Buffer[])[0]?.toString() ?? '';
    t.match(seen, new RegExp(`data: ${index}\\n\\n`));
  }
  const event = keyveil.nextEvent();
  tls.destroy();
  t.match(await event, { outcome: 'failed', reason: 'client_aborted' });
});

test('an upstream that dies in mid-body kills the answer, and is recorded', async (t) => {
  answerWith((response) => {
    response.writeHead(200, { 'Content-Length': '2000000' });
    response.write(Buffer.alloc(1_500_000), () => response.destroy());
  });
  const event = keyveil.nextEvent();
  const tls = await keyveil.tunnel('api.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  const all = await readAll(tls);
  t.ok(all.length < 2_000_000);
  t.match(await event, { outcome: 'failed', reason: 'upstream_aborted', status: 200 });
});

test('a client that goes away aborts the upstream request, and is recorded', async (t) => {
  const closed = new Promise((resolve) => {
    answerWith((response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.flushHeaders();
      response.once('close', resolve);
    });
  });
  const event = keyveil.nextEvent();
  const tls = await keyveil.tunnel('api.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  await readHead(tls);
  tls.destroy();
  await closed;
  t.match(await event, { outcome: 'failed', reason: 'client_aborted' });
});

test('a slow reader holds the upstream back', async (t) => {
  let written = 0;
  let isDone = false;
  answerWith((response) => {
    response.writeHead(200, { 'Content-Length': String(64 * 1024 * 1024) });
    const chunk = Buffer.alloc(64 * 1024);
    const go = (): void => {
      while (written < 64 * 1024 * 1024) {
        written += chunk.length;
        if (!response.write(chunk)) return void response.once('drain', go);
      }
      isDone = true;
      response.end();
    };
    go();
  });
  const tls = await keyveil.tunnel('api.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  await readHead(tls);
  // Nothing is read here: when no more is written for a while, every buffer on the way is full.
  let before = -1;
  while (before !== written) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 150));
  }
  t.notOk(isDone);
  t.ok(written < 32 * 1024 * 1024, `${written} bytes were taken`);
  const event = keyveil.nextEvent();
  tls.destroy();
  t.match(await event, { outcome: 'failed', reason: 'client_aborted' });
});
