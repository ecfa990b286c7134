// A right login of a session that is over: refused, and found in the audit log under the session, its destination and the reason.
import { connect as connectTcp } from 'node:net';
import { test, type Test } from 'tap';
import { RefusedLogins } from '../../proxy/refused-logins.ts';
import { InactiveSession } from '../../proxy/admission.ts';
import { KeyveilError } from '../../model/errors.ts';
import type { AuditEvent } from '../../model/audit.ts';
import { createManualClock } from '../support/manual-clock.ts';
import { readAll, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';

type Row = Record<string, unknown>;

async function rowsOf(keyveil: TestDaemon, query: string, wanted: number): Promise<Row[]> {
  for (;;) {
    const rows = (await keyveil.admin('GET', `/v1/audit_events?${query}`)).body['data'] as Row[];
    if (rows.length >= wanted) return rows;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function refusedConnect(t: Test, keyveil: TestDaemon, session: TestSession): Promise<string> {
  const { socket, head } = await keyveil.connect(session, 'api.test:443');
  t.match(head, /^HTTP\/1\.1 407 /);
  return readAll(socket);
}

void test('archived, expired and suspended sessions are told apart from unknown logins', async (t) => {
  const clock = createManualClock(Date.now());
  const keyveil = await startTestDaemon({ clock });
  t.teardown(() => keyveil.close());
  const environment = await keyveil.admin('POST', '/v1/environments', {
    name: 'none',
    config: { type: 'cloud', networking: { type: 'limited', allowed_hosts: [] } },
  });
  const create = (fields: Record<string, unknown> = {}) => keyveil.createSession({ vault_ids: [], ...fields });
  const archived = await create();
  const expired = await create({ expires_in: 60 });
  const suspended = await create({ environment_id: environment.body['id'], denial_limit: 1 });
  await keyveil.admin('POST', `/v1/sessions/${archived.id}/archive`, {});
  t.match((await keyveil.connect(suspended, 'api.test:443')).head, /^HTTP\/1\.1 403 /);
  while ((await keyveil.admin('GET', `/v1/sessions/${suspended.id}`)).body['status'] !== 'suspended')
    await new Promise((resolve) => setTimeout(resolve, 20));
  clock.advance(61_000);

  for (const [session, advice] of [
    [archived, /The session is archived\. Ask the operator for a new session/],
    [expired, /The session is expired\. Ask the operator for a new session/],
    [suspended, /The session is suspended\. The operator can lift that by keyveil session resume/],
  ] as const) {
    for (let round = 0; round < 4; round += 1) t.match(await refusedConnect(t, keyveil, session), advice);
    const [row] = await rowsOf(keyveil, `session_id=${session.id}`, session === suspended ? 2 : 1);
    t.match(row, {
      ...{ session_id: session.id, method: 'CONNECT', scheme: 'tunnel', host: 'api.test', port: 443, status: 407 },
      ...{ outcome: 'refused', reason: 'session_inactive', repeated: { client_address: '127.0.0.1', count: 1 } },
    });
  }
  const plain = connectTcp(keyveil.daemon.proxyAddress.port, '127.0.0.1');
  plain.write(
    `GET http://plain.test:81/x?y HTTP/1.1\r\nHost: plain.test:81\r\nProxy-Authorization: ${archived.authorization}\r\n\r\n`,
  );
  t.match(await readAll(plain), /^HTTP\/1\.1 407 [^]*session_inactive/);
  const unknown = await keyveil.connect({ authorization: 'Basic eDp5' }, 'api.test:443');
  t.match(unknown.head, /^HTTP\/1\.1 407 /);

  await keyveil.restart();
  const rows = await rowsOf(keyveil, `session_id=${archived.id}`, 3);
  t.match(
    rows.find(({ host }) => host === 'plain.test'),
    { method: 'GET', scheme: 'http', port: 81, path: '' },
  );
  t.match(rows[0], { host: 'api.test', reason: 'session_inactive', repeated: { count: 3 } }, 'the rest of the minute');
  const all = await rowsOf(keyveil, 'outcome=refused', 8);
  t.match(
    all.filter(({ session_id: id }) => id === null),
    [{ host: '', port: 0, reason: 'proxy_authentication_required', repeated: { count: 1 } }],
  );
});

void test('neither addresses nor destinations nor sessions make rows without bound', (t) => {
  const rows: AuditEvent[] = [];
  let refused = 0;
  const logins = new RefusedLogins({
    audit: { record: (event: AuditEvent) => void rows.push(event), ready: () => undefined, depth: () => 0 },
    metrics: { unauthenticated: () => void (refused += 1) } as never,
    clock: { now: () => 1 },
  });
  const unknown = new KeyveilError('proxy_authentication_required', 'x');
  for (let index = 0; index < 1000; index += 1) logins.count(`10.0.0.${index}`, unknown, {});
  logins.count('10.0.0.1', new KeyveilError('overloaded', 'x'), {});
  t.equal(refused, 1000);
  logins.flush();
  t.equal(rows.length, 257);
  t.equal(rows.find(({ repeated }) => repeated?.clientAddress === 'others')?.repeated?.count, 744);

  rows.length = 0;
  for (let session = 0; session < 100; session += 1) {
    const inactive = new InactiveSession('x', `sesn_${session}`);
    for (let index = 0; index < 100; index += 1)
      logins.count('10.0.0.1', inactive, { method: 'CONNECT', url: `h${index}.test:443` });
  }
  logins.close();
  t.ok(rows.length <= 2 * 1024 + 257, String(rows.length));
  t.equal(
    rows.reduce((sum, { repeated }) => sum + (repeated?.count ?? 0), 0),
    10_000,
    'and every one is counted',
  );
  t.match(
    rows.find(({ repeated }) => repeated?.clientAddress === 'others'),
    { host: '', sessionId: 'sesn_0' },
  );
  t.end();
});
