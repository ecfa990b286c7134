// An HTTP/2 request that is reset in mid-body never reaches the upstream as a whole one.
import * as http2 from 'node:http2';
import t, { test } from 'tap';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const authority = createTestAuthority();
let upstream: TestUpstream;
let keyveil: TestProxy;

t.before(async () => {
  upstream = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  keyveil = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

// `close(code)` would end the stream in good order before it is reset, so the body would really be whole.
const CUTS: readonly (readonly [
  string,
  (stream: http2.ClientHttp2Stream, session: http2.ClientHttp2Session) => void,
])[] = [
  ['a reset', (stream) => stream.destroy(new Error('reset'))],
  ['the loss of the connection', (_stream, session) => session.destroy()],
];

for (const [name, cut] of CUTS) {
  test(`a request body that ends with ${name} is not sent on as complete`, async (t) => {
    const socket = await keyveil.tunnel('api.test:443', { ALPNProtocols: ['h2'] });
    const session = http2.connect('https://api.test', { createConnection: () => socket });
    session.on('error', () => undefined);
    const arrived = new Promise((resolve) => upstream.server.once('request', resolve));
    const stream = session.request({ ':method': 'POST', ':path': '/cut' });
    stream.on('error', () => undefined);
    stream.write('begin');
    await arrived;
    const event = keyveil.nextEvent();
    cut(stream, session);
    t.match(await event, { outcome: 'failed' });
    // The upstream's parser would have announced a whole request by the time that a later one is answered.
    const again = await keyveil.tunnel('api.test:443');
    const next = upstream.next();
    again.write('GET /after HTTP/1.1\r\nHost: api.test\r\n\r\n');
    await next;
    t.same(
      upstream.received.filter(({ url }) => url === '/cut'),
      [],
    );
    again.destroy();
    session.destroy();
  });
}
