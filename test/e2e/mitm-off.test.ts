// KEYVEIL_MITM=off: nothing can be swapped, so that sessions with credentials are refused, and all else is relayed.
import { connect as connectTls } from 'node:tls';
import { test } from 'tap';
import { readAll, readHead, startTestDaemon } from '../support/daemon.ts';
import { openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

test('interception off: sessions with credentials are refused, other tunnels are relayed untouched', async (t) => {
  const authority = createTestAuthority();
  const server = await openRawServer(
    (socket, received) => void (received === 'any bytes' && socket.end('\0\xff back', 'latin1')),
    {
      tls: authority.leafFor(['api.test']),
    },
  );
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': server.port } });
  t.teardown(async () => {
    await keyveil.close();
    await server.close();
  });
  const vaultId = await keyveil.createVault();
  await keyveil.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: 'a-value-that-stays-here',
    networking: { type: 'unrestricted' },
  });
  const earlier = await keyveil.createSession({ vault_ids: [vaultId] });
  await keyveil.restart({ KEYVEIL_MITM: 'off' });

  const creation = await keyveil.admin('POST', '/v1/sessions', { vault_ids: [vaultId] });
  t.match(creation, { status: 400, body: { error: { code: 'mitm_disabled', param: 'vault_ids' } } });
  const { socket, head } = await keyveil.connect(earlier, 'api.test:443');
  t.match(head, /^HTTP\/1\.1 503 /);
  t.match(head, 'Proxy-Status: keyveil; error=proxy_configuration_error; details="mitm_disabled: api.test"');
  t.match(await readAll(socket), /KEYVEIL_MITM=on/);
  t.strictSame(server.received, []);

  const environment = await keyveil.admin('POST', '/v1/environments', {
    name: 'only-api',
    config: { type: 'cloud', networking: { type: 'limited', allowed_hosts: ['api.test'] } },
  });
  const session = await keyveil.createSession({ vault_ids: [], environment_id: environment.body['id'] });
  const tunnel = await keyveil.connect(session, 'api.test:443');
  t.match(tunnel.head, /^HTTP\/1\.1 200 /);
  // The upstream's own certificate, not one of Keyveil's.
  const tls = connectTls({ socket: tunnel.socket, servername: 'api.test', ca: authority.caPem });
  tls.write('any bytes');
  t.equal(await readAll(tls), '\0\xff back');
  t.match((await keyveil.connect(session, 'other.test:443')).head, /^HTTP\/1\.1 403 [^]*environment_denied/);

  // Neither another server name nor what is no TLS gets through.
  for (const begin of ['GET / HTTP/1.1\r\nHost: api.test\r\n\r\n', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']) {
    const other = await keyveil.connect(session, 'api.test:443');
    other.socket.write(begin);
    t.equal(await readAll(other.socket), '', begin.slice(0, 3));
  }
  const foreign = await keyveil.connect(session, 'api.test:443');
  const evil = connectTls({ socket: foreign.socket, servername: 'evil.test', rejectUnauthorized: false });
  evil.on('error', () => undefined);
  await t.rejects(readHead(evil));
  t.equal(server.connectionCount, 1, 'one connection for the one tunnel that was relayed');
});
