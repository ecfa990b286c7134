// The main job over real sockets: a placeholder goes in, the real value arrives, and policy is read for every request.
import { test } from 'tap';
import { createTestAuthority } from '../support/test-authority.ts';
import {
  basicLogin,
  readAll,
  readHead,
  startTestDaemon,
  type TestDaemon,
  type TestSession,
} from '../support/daemon.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const VALUE = 'ntn_real-secret-value-0001';

interface Scene {
  readonly keyveil: TestDaemon;
  readonly api: TestUpstream;
  readonly other: TestUpstream;
  readonly vaultId: string;
  readonly credential: { id: string; placeholder: string };
  readonly session: TestSession;
}

async function openScene(test: { teardown(work: () => Promise<void>): void }): Promise<Scene> {
  const authority = createTestAuthority();
  const api = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  const other = await startUpstream({ leaf: authority.leafFor(['other.test']) });
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': api.port, 'other.test': other.port } });
  test.teardown(async () => {
    await keyveil.close();
    await api.close();
    await other.close();
  });
  const vaultId = await keyveil.createVault();
  const credential = await keyveil.createCredential(vaultId, {
    secret_name: 'NOTION_API_KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
  });
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  return { keyveil, api, other, vaultId, credential, session };
}

test('a header placeholder is swapped for a covered host, and left alone for another', async (t) => {
  const { keyveil, api, other, credential, session } = await openScene(t);
  t.equal(session.variables['NOTION_API_KEY'], credential.placeholder);
  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write(`GET /v1/x?y=1 HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer ${credential.placeholder}\r\n\r\n`);
  const head = await readHead(tls);
  t.match(head, /^HTTP\/1\.1 200 OK\r\n/);
  t.equal(api.received[0]?.header('authorization'), `Bearer ${VALUE}`);
  t.equal(api.received[0]?.url, '/v1/x?y=1');
  tls.destroy();

  const elsewhere = await keyveil.tunnel(session, 'other.test:443');
  elsewhere.write(`GET / HTTP/1.1\r\nHost: other.test\r\nAuthorization: Bearer ${credential.placeholder}\r\n\r\n`);
  const answer = await readHead(elsewhere);
  t.equal(other.received[0]?.header('authorization'), `Bearer ${credential.placeholder}`);
  t.match(answer, /Proxy-Status: keyveil; details="NOTION_API_KEY not swapped: host_not_covered"/);
  elsewhere.destroy();
});

test('a rotation is obeyed by the next request of an open connection', async (t) => {
  const { keyveil, api, vaultId, credential, session } = await openScene(t);
  const tls = await keyveil.tunnel(session, 'api.test:443');
  for (const value of [VALUE, 'rotated-secret-value-0002', 'rotated-secret-value-0003']) {
    if (value !== VALUE) {
      const path = `/v1/vaults/${vaultId}/credentials/${credential.id}`;
      const answer = await keyveil.admin('POST', path, { auth: { type: 'environment_variable', secret_value: value } });
      t.equal(answer.status, 200);
      t.equal((answer.body['auth'] as Record<string, unknown>)['placeholder'], credential.placeholder);
    }
    tls.write(`GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: ${credential.placeholder}\r\n\r\n`);
    const received = await api.next();
    t.equal(received.header('x-key'), value);
    await readHead(tls);
    tls.read();
  }
  tls.destroy();
});

test('without a login, or with a wrong one, the proxy answers 407 and asks for one', async (t) => {
  const { keyveil, session } = await openScene(t);
  for (const login of [null, { authorization: 'Basic eDp5' }, { authorization: basicLogin(session.id, 'wrong') }]) {
    const { socket, head } = await keyveil.connect(login, 'api.test:443');
    t.match(head, /^HTTP\/1\.1 407 /);
    t.match(head, /Proxy-Authenticate: Basic realm="keyveil"/);
    t.match(await readAll(socket), /proxy_authentication_required/);
  }
});
