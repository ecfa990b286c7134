// gRPC through a tunnel, as its frames are: metadata, messages both ways, trailers, and a call that is given up.
import { once } from 'node:events';
import { connect as connectHttp2, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { test, type Test } from 'tap';
import { startTestDaemon } from '../support/daemon.ts';
import { startFullUpstream, type FullUpstream } from '../support/full-upstream.ts';
import { frameGrpcMessage } from '../support/grpc-service.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const VALUE = 'grpc-real-secret-value-0001';

interface Scene {
  readonly upstream: FullUpstream;
  readonly http2: ClientHttp2Session;
  readonly call: (method: string) => ClientHttp2Stream;
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
  const call = (method: string): ClientHttp2Stream => {
    const stream = http2.request({
      ':method': 'POST',
      ':path': `/keyveil.Test/${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      authorization: `Bearer ${placeholder}`,
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
  t.same(upstream.grpc.calls, [{ method: 'Bidi', authorization: `Bearer ${VALUE}` }]);
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
