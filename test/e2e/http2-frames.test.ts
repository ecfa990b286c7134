// What an HTTP/2 client in a tunnel sees frame by frame, which Node's own client does not show.
import type { RequestListener } from 'node:http';
import { test, type Test } from 'tap';
import { startTestDaemon } from '../support/daemon.ts';
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  frame,
  RawHttp2Client,
  requestFields,
  requestFrame,
  type ReceivedFrame,
} from '../support/raw-http2.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

/** Whether a frame is the last of its stream. */
function endsStream({ type, flags }: ReceivedFrame): boolean {
  return (type === FRAME.data || type === FRAME.headers) && (flags & END_STREAM) !== 0;
}

async function openScene(t: Test, listener?: RequestListener): Promise<RawHttp2Client> {
  const authority = createTestAuthority();
  const leaf = authority.leafFor(['api.test']);
  const api = await startUpstream({ leaf, ...(listener === undefined ? {} : { listener }) });
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': api.port } });
  const session = await keyveil.createSession({ vault_ids: [] });
  const tls = await keyveil.tunnel(session, 'api.test:443', { ALPNProtocols: ['h2'] });
  t.teardown(async () => {
    tls.destroy();
    await keyveil.close();
    await api.close();
  });
  return new RawHttp2Client(tls);
}

test('a stream that both sides have ended is not reset', async (t) => {
  const client = await openScene(t);
  client.send(requestFrame(1, 'api.test'));
  await client.find((one) => endsStream(one) && one.streamId === 1);
  // The second request goes when the first has been answered, so that what follows that answer has come before its own.
  client.send(requestFrame(3, 'api.test'));
  await client.find((one) => (endsStream(one) && one.streamId === 3) || one.type === FRAME.reset);
  t.same(
    client.frames.filter(({ type }) => type === FRAME.reset),
    [],
  );
  t.equal(client.frames.filter(endsStream).length, 2);
});

test('an answer before the end of the request comes whole, and then the request is cut short', async (t) => {
  const client = await openScene(t, (_request, response) => {
    response.end('enough');
  });
  client.send(frame(FRAME.headers, 1, { flags: END_HEADERS, payload: requestFields('api.test', [], 'POST') }));
  await client.reset(1);
  const own = client.frames.filter(({ streamId }) => streamId === 1);
  t.equal(own.findIndex(endsStream), own.length - 2, 'END_STREAM comes before RST_STREAM');
});
