// Clients that leave in the middle, or break the protocol and leave: recorded as such, and nothing of them stays open.
import { once } from 'node:events';
import t, { test } from 'tap';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { readAll, readHead } from '../support/operator.ts';
import { END_HEADERS, frame, FRAME, literalField } from '../support/raw-http2.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const HEAD = 'POST /cut HTTP/1.1\r\nHost: api.test\r\nContent-Type: text/plain\r\n';

const authority = createTestAuthority();
let upstream: TestUpstream;
let keyveil: TestProxy;
/** While true, the upstream does not answer. */
let held = false;

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

t.before(async () => {
  upstream = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    respond: ({ url }, response) => {
      if (url === '/chunked') response.write('o');
      if (!held) response.end('ok');
    },
  });
  keyveil = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([{ placeholder: placeholderOf('L'), value: 'the-value-of-a-lost-client' }]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

const BODIES: Readonly<Record<string, string>> = {
  'a body of known length that is read whole first': `${HEAD}Content-Length: 500\r\n\r\nbegin`,
  'a chunked body': `${HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n`,
  'a coded body': `${HEAD}Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\x1f\x8b\x08\r\n`,
  'a body behind another request': `GET /first HTTP/1.1\r\nHost: api.test\r\n\r\n${HEAD}Content-Length: 500\r\n\r\nbegin`,
};

for (const [name, text] of Object.entries(BODIES)) {
  test(`${name} whose client leaves is recorded as the client's doing`, async (t) => {
    keyveil.log.length = 0;
    keyveil.events.length = 0;
    const tls = await keyveil.tunnel('api.test:443');
    tls.write(text, 'latin1');
    while (keyveil.proxy.tunnelCount > 0 && keyveil.bodies.usage().memoryBytes === 0 && !text.includes('chunked')) {
      await pause();
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
    tls.destroy();
    for (;;) {
      const event = keyveil.events.find(({ path }) => path === '/cut') ?? (await keyveil.nextEvent());
      if (event.path !== '/cut') continue;
      t.match(event, { outcome: 'failed', reason: 'client_aborted' });
      break;
    }
    t.strictSame(
      keyveil.log.filter((line) => line.includes('inside Keyveil')),
      [],
      'and not logged as a failure of ours',
    );
    t.equal(upstream.received.filter(({ url }) => url === '/cut').length, 0);
  });
}

/** The paths that arrived once a request that was sent last of all has been answered. */
async function arrived(): Promise<string[]> {
  const tls = await keyveil.tunnel('api.test:443');
  tls.write('GET /last HTTP/1.1\r\nHost: api.test\r\n\r\n');
  await readHead(tls);
  tls.destroy();
  return upstream.received.splice(0).map(({ url }) => url);
}

test('what is pipelined behind a request ends with the connection, and is not sent on', async (t) => {
  const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: api.test\r\n\r\n`;
  // The end of a body of unknown length is the end of the connection for HTTP/1.0.
  const old = 'GET /chunked HTTP/1.0\r\nHost: api.test\r\nConnection: keep-alive\r\n\r\n';
  const slow = `POST /slow HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n\r\nhello`;
  const cases: readonly (readonly [name: string, text: string, arrives: readonly string[], events: number])[] = [
    ['after an answer that closes', old + request('/b'), ['/chunked'], 1],
    ['when the client leaves', slow + request('/b') + request('/c'), ['/slow'], 3],
  ];
  for (const [name, text, arrives, events] of cases) {
    keyveil.events.length = 0;
    upstream.received.length = 0;
    const tls = await keyveil.tunnel('api.test:443');
    if (text.startsWith('POST')) held = true;
    tls.write(text);
    if (held) while (!upstream.received.some(({ url }) => url === '/slow')) await pause();
    if (held) tls.destroy();
    await readAll(tls);
    held = false;
    t.strictSame(await arrived(), [...arrives, '/last'], name);
    while (keyveil.events.filter(({ path }) => path !== '/last').length < events) await pause();
    while (keyveil.proxy.tunnelCount > 0) await pause();
  }
});

test('an HTTP/2 client that breaks the protocol and leaves is noticed, with its open requests', async (t) => {
  const tls = await keyveil.tunnel('api.test:443', { ALPNProtocols: ['h2'] });
  tls.resume();
  const head = [
    [':method', 'POST'],
    [':scheme', 'https'],
    [':authority', 'api.test'],
    [':path', '/open'],
  ] as const;
  const payload = Buffer.concat(head.map(([field, value]) => literalField(field, value)));
  tls.write(PREFACE);
  tls.write(frame(FRAME.settings, 0));
  tls.write(frame(FRAME.headers, 1, { flags: END_HEADERS, payload }));
  // RFC 9113 section 6.1: DATA of a stream that was never opened ends the connection.
  tls.write(frame(FRAME.data, 5, { payload: Buffer.from('hello') }));
  const closed = once(tls, 'close');
  const event = keyveil.nextEvent();
  await new Promise((resolve) => setTimeout(resolve, 100));
  tls.end();
  await closed;
  t.match(await event, { path: '/open', outcome: 'failed' });
  t.equal(keyveil.proxy.tunnelCount, 0);
});
