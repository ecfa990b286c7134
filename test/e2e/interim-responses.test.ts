// Interim responses and heads that one side sends and the other takes late, not at all, or can't take.
import { connect as connectHttp2, type Http2Session } from 'node:http2';
import t, { test } from 'tap';
import { acceptOf } from '../../proxy/websocket.ts';
import { interimBacklogOf } from '../../proxy/http2-interim.ts';
import { INTERIM_POLL_MS, INTERIM_RESPONSES_BYTES_MAX, INTERIM_UNSENT_BYTES_MAX } from '../../model/limits.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { answer, openRawServer, type RawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const HOST = 'api.test';
const LINK_BYTES = 15_000;
const COUNT = 16;

const fields = (bytes: number): string => `X-A: ${'y'.repeat(LINK_BYTES)}\r\n`.repeat(Math.ceil(bytes / LINK_BYTES));
const hints = (count: number): string => `HTTP/1.1 103 Early Hints\r\n${fields(1)}\r\n`.repeat(count);
const KEY_LINE = /^sec-websocket-key: (.*)\r$/im;

/** What the upstream says, by path. */
const ANSWERS: Readonly<Record<string, (received: string) => string>> = {
  '/many': () => hints(COUNT) + answer('done'),
  '/too-many': () => hints(INTERIM_RESPONSES_BYTES_MAX / LINK_BYTES + 2) + answer('done'),
  '/big-head': () => `HTTP/1.1 200 OK\r\n${fields(200_000)}Content-Length: 2\r\n\r\nok`,
  '/big-hint': () => `HTTP/1.1 103 Early Hints\r\n${fields(200_000)}\r\n${answer('ok')}`,
  '/big-switch': (received) =>
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${fields(200_000)}` +
    `Sec-WebSocket-Accept: ${acceptOf(KEY_LINE.exec(received)?.[1] ?? '')}\r\n\r\n`,
  '/ok': () => answer('ok'),
};

let upstream: RawServer;
let keyveil: TestProxy;

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await openRawServer(
    (socket, received) => {
      if (!received.endsWith('\r\n\r\n')) return;
      const request = received.split('\r\n\r\n').at(-2) ?? '';
      const path = request.split(' ')[1] ?? '';
      socket.write(ANSWERS[path]?.(`${request}\r\n`) ?? answer('unknown'));
    },
    { tls: { ...authority.leafFor([HOST]), ALPNProtocols: ['http/1.1'] } },
  );
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

interface Seen {
  interim: number;
  status: number;
  body: string;
}

async function askHttp1(path: string): Promise<Seen> {
  const socket = await keyveil.tunnel(`${HOST}:443`);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
  let text = '';
  for await (const chunk of socket as AsyncIterable<Buffer>) text += chunk.toString('latin1');
  const heads = text.split('\r\n\r\n');
  const interim = heads.filter((head) => head.startsWith('HTTP/1.1 103 ')).length;
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(heads[interim] ?? '')?.[1]);
  return { interim, status, body: heads.slice(interim + 1).join('') };
}

async function askHttp2(path: string): Promise<Seen> {
  const socket = await keyveil.tunnel(`${HOST}:443`, { ALPNProtocols: ['h2'] });
  const session = connectHttp2(`https://${HOST}`, { createConnection: () => socket, maxHeaderListPairs: 2000 });
  session.on('error', () => undefined);
  try {
    await new Promise((resolve) => session.once('remoteSettings', resolve));
    const isSwitch = path === '/big-switch';
    const method = isSwitch ? { ':method': 'CONNECT', ':protocol': 'websocket' } : { ':method': 'GET' };
    const stream = session.request({ ...method, ':scheme': 'https', ':authority': HOST, ':path': path });
    const seen: Seen = { interim: 0, status: 0, body: '' };
    stream.on('headers', () => (seen.interim += 1));
    stream.on('response', (headers) => (seen.status = headers[':status'] ?? 0));
    for await (const chunk of stream as AsyncIterable<Buffer>) seen.body += chunk.toString();
    return seen;
  } finally {
    session.destroy();
  }
}

const CLIENTS = { 'HTTP/1.1': askHttp1, 'HTTP/2': askHttp2 };

for (const [version, ask] of Object.entries(CLIENTS)) {
  test(`${version}: interim responses that have to wait for the client come all, and then the final one`, async (t) => {
    const row = keyveil.nextEvent();
    t.strictSame(await ask('/many'), { interim: COUNT, status: 200, body: 'done' });
    t.match(await row, { outcome: 'forwarded', status: 200 });
  });

  test(`${version}: more of them than a request may have end it`, async (t) => {
    const row = keyveil.nextEvent();
    const { interim, status, body } = await ask('/too-many');
    t.ok(interim * LINK_BYTES <= INTERIM_RESPONSES_BYTES_MAX, `${interim} came`);
    t.equal(status, 502);
    t.match(body, 'upstream_protocol_error');
    t.match(await row, { outcome: 'failed', status: 502, reason: 'upstream_protocol_error' });
  });
}

for (const path of ['/big-head', '/big-hint', '/big-switch']) {
  test(`HTTP/2: ${path.slice(1)} is more than a client takes, and is told and recorded as the upstream's fault`, async (t) => {
    const row = keyveil.nextEvent();
    const { status, body } = await askHttp2(path);
    t.equal(status, 502);
    t.match(body, 'upstream_protocol_error');
    t.match(await row, { outcome: 'failed', status: 502, reason: 'upstream_protocol_error' });
    t.match(await askHttp2('/ok'), { status: 200, body: 'ok' });
  });
}

test('HTTP/1.1: the same head and the same hint pass', async (t) => {
  t.match(await askHttp1('/big-head'), { interim: 0, status: 200, body: 'ok' });
  t.match(await askHttp1('/big-hint'), { interim: 1, status: 200, body: 'ok' });
});

test('a connection over HTTP/2 that has not sent its interim responses asks for no more until it has', async (t) => {
  const state = { outboundQueueSize: 0 };
  const backlog = interimBacklogOf({ state } as unknown as Http2Session);
  const bytes = INTERIM_UNSENT_BYTES_MAX / 2;
  let rooms = 0;
  const onRoom = (): void => void (rooms += 1);
  t.ok(backlog.add(bytes, onRoom));
  t.ok(backlog.add(2 * bytes, onRoom), 'what was sent counts no more');
  state.outboundQueueSize = 1;
  t.notOk(backlog.add(bytes, onRoom));
  t.notOk(backlog.add(bytes, onRoom), 'of whichever stream');
  await new Promise((resolve) => setTimeout(resolve, 3 * INTERIM_POLL_MS));
  t.equal(rooms, 0);
  state.outboundQueueSize = 0;
  // Its timer keeps no process alive.
  while (rooms < 2) await new Promise((resolve) => setTimeout(resolve, INTERIM_POLL_MS));
  t.ok(backlog.add(bytes, onRoom));
  t.equal(rooms, 2);
});
