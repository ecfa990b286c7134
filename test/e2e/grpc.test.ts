// gRPC through a tunnel, as its frames are: metadata, messages both ways, trailers, deadlines, and calls that are given up.
import { once } from 'node:events';
import { connect as connectHttp2, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { test, type Test } from 'tap';
import { startTestDaemon } from '../support/daemon.ts';
import { startFullUpstream, type FullUpstream } from '../support/full-upstream.ts';
import { frameGrpcMessage, readGrpcMessages } from '../support/grpc-service.ts';
import { createTestAuthority } from '../support/test-authority.ts';

/** Messages of the long stream. */
const MESSAGES = 10_000;
const VALUE = 'grpc-real-secret-value-0001';

interface Scene {
  readonly upstream: FullUpstream;
  readonly http2: ClientHttp2Session;
  readonly call: (method: string, fields?: Readonly<Record<string, string>>) => ClientHttp2Stream;
}

async function openScene(t: Test): Promise<Scene> {
  const authority = createTestAuthority();
  const upstream = await startFullUpstream({ leaf: authority.leafFor(['api.test']) });
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': upstream.port } });
  const vaultId = await keyveil.createVault();
  const { placeholder } = await keyveil.createCredential(vaultId, {
    secret_name: 'GRPC_KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
  });
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  const tls = await keyveil.tunnel(session, 'api.test:443', { ALPNProtocols: ['h2'] });
  const http2 = connectHttp2('https://api.test', { createConnection: () => tls });
  http2.on('error', () => undefined);
  t.teardown(async () => {
    http2.destroy();
    await keyveil.close();
    await upstream.close();
  });
  const call: Scene['call'] = (method, fields = {}) => {
    const stream = http2.request({
      ':method': 'POST',
      ':path': `/keyveil.Test/${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      authorization: `Bearer ${placeholder}`,
      ...fields,
    });
    stream.on('error', () => undefined);
    return stream;
  };
  return { upstream, http2, call };
}

test('a call carries its credential, its messages, its trailers and its status', async (t) => {
  const { upstream, call } = await openScene(t);
  const stream = call('Bidi');
  stream.write(frameGrpcMessage(Buffer.from('one')));
  const [first] = (await once(stream, 'data')) as [Buffer];
  t.same(first, frameGrpcMessage(Buffer.from('one')));
  stream.end(frameGrpcMessage(Buffer.from('two')));
  const [second] = (await once(stream, 'data')) as [Buffer];
  t.same(second, frameGrpcMessage(Buffer.from('two')));
  const [trailers] = (await once(stream, 'trailers')) as [Record<string, string>];
  t.match(trailers, { 'grpc-status': '0', 'grpc-message': 'as%20it%20is', 'x-end': 'kept' });
  t.same(upstream.grpc.calls, [{ method: 'Bidi', authorization: `Bearer ${VALUE}`, timeout: undefined }]);
});

/** Message `index` of the long stream: each tells its place, and lengths differ, so that frames cut them anywhere. */
function messageAt(index: number): Buffer {
  return Buffer.from(`${index} ${'x'.repeat((index * 37) % 400)}`);
}

async function sendAll(stream: ClientHttp2Stream): Promise<void> {
  for (let index = 0; index < MESSAGES; index += 1) {
    if (!stream.write(frameGrpcMessage(messageAt(index)))) await once(stream, 'drain');
  }
  stream.end();
}

test(`a stream of ${MESSAGES} messages each way keeps their order, its trailers and its status`, async (t) => {
  const { upstream, call } = await openScene(t);
  const stream = call('Bidi');
  const trailers = once(stream, 'trailers');
  let echoed = 0;
  const wrong: number[] = [];
  readGrpcMessages(stream, (message) => {
    if (!message.equals(messageAt(echoed))) wrong.push(echoed);
    echoed += 1;
  });
  const response = once(stream, 'response');
  const ended = once(stream, 'end');
  await sendAll(stream);
  t.match(await response, [{ ':status': 200, 'content-type': 'application/grpc', 'x-begin': 'kept' }]);
  t.match(await trailers, [{ 'grpc-status': '0', 'grpc-message': 'as%20it%20is', 'x-end': 'kept' }]);
  await ended;
  t.equal(echoed, MESSAGES);
  t.strictSame(wrong, []);
  t.equal(stream.rstCode, constants.NGHTTP2_NO_ERROR);
  t.strictSame(upstream.grpc.calls, [{ method: 'Bidi', authorization: `Bearer ${VALUE}`, timeout: undefined }]);
});

test('a deadline reaches the server as it was stated, and its status reaches the client in the middle of a stream', async (t) => {
  const { upstream, call } = await openScene(t);
  const stream = call('Deadline', { 'grpc-timeout': '300m' });
  const trailers = once(stream, 'trailers');
  stream.write(frameGrpcMessage(Buffer.from('one')));
  t.strictSame(await once(stream, 'data'), [frameGrpcMessage(Buffer.from('one'))]);
  stream.resume();
  // The client has not ended its side.
  t.match(await trailers, [{ 'grpc-status': '4', 'grpc-message': 'as%20it%20is', 'x-end': 'kept' }]);
  t.strictSame(upstream.grpc.calls, [{ method: 'Deadline', authorization: `Bearer ${VALUE}`, timeout: '300m' }]);
});

for (const method of ['Hold', 'Hang']) {
  test(`a call of ${method} that the client gives up is reset at the server`, async (t) => {
    const { upstream, call } = await openScene(t);
    const stream = call(method);
    const message = frameGrpcMessage(Buffer.from('one'));
    if (method === 'Hang') stream.end(message);
    else stream.write(message);
    await once(stream, method === 'Hang' ? 'response' : 'data');
    const reset = once(upstream.grpc.events, 'cancelled');
    stream.close(constants.NGHTTP2_CANCEL);
    await reset;
    t.equal(upstream.grpc.cancelled, 1);
  });
}
