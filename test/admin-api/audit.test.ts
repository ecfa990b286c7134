// The audit log through the API: admin events, filters, pages, and the live stream.
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import t, { test } from 'tap';
import type { AuditEvent } from '../../model/audit.ts';
import { createId } from '../../model/ids.ts';
import type { AdminServerOptions } from '../../admin-api/server.ts';
import { authWith, startAdminApi } from '../support/admin-api.ts';

const api = await startAdminApi(t);
const { call, clock, store } = api;

function auditEvent(changes: Partial<AuditEvent> = {}): AuditEvent {
  return {
    id: createId('auditEvent', clock.now()),
    createdAt: clock.now(),
    sessionId: 'sesn_a',
    method: 'POST',
    scheme: 'https',
    host: 'api.notion.com',
    port: 443,
    path: '/v1/pages',
    httpVersion: '1.1',
    status: 200,
    outcome: 'forwarded',
    reason: null,
    durationMs: 12.5,
    requestBytes: 10,
    responseBytes: 20,
    swaps: [
      {
        credentialId: 'vcrd_a',
        secretName: 'A',
        secretVersion: 2,
        location: 'header',
        headerName: 'Authorization',
        count: 1,
      },
    ],
    misses: [{ credentialId: 'vcrd_b', secretName: 'B', location: 'query', reason: 'in_url' }],
    veils: [{ credentialId: 'vcrd_a', count: 3 }],
    ...changes,
  };
}

interface ServerSentEvent {
  readonly id?: string;
  readonly event?: string;
  readonly data?: string;
  readonly comment?: string;
}

function parseEvent(text: string): ServerSentEvent {
  const fields = text.split('\n').map((line) => /^([a-z]*): ?(.*)$/.exec(line));
  return Object.fromEntries(
    fields.map((match) => [match?.[1] === '' ? 'comment' : match?.[1], match?.[2]]),
  ) as ServerSentEvent;
}

/** Opens the stream and yields its blocks. */
async function openStream(query = '', headers: Record<string, string> = {}, token = api.token) {
  const request = httpRequest(`${api.baseUrl}/v1/audit_events/stream${query}`, {
    headers: { 'x-api-key': token, ...headers },
  });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.setEncoding('utf8');
  async function* blocks(): AsyncGenerator<ServerSentEvent> {
    let rest = '';
    for await (const chunk of response) {
      const parts = (rest + String(chunk)).split('\n\n');
      rest = parts.pop() ?? '';
      for (const part of parts) yield parseEvent(part);
    }
  }
  const iterator = blocks();
  async function nextEvent(): Promise<ServerSentEvent | null> {
    for (;;) {
      const { value, done } = await iterator.next();
      if (done === true) return null;
      if (value.data !== undefined) return value;
    }
  }
  return { response, iterator, nextEvent, close: () => request.destroy() };
}

test('every write is noted with who, what and which object, and never a value', async (t) => {
  const requests: string[] = [];
  const write = async (method: string, path: string, body?: unknown) => {
    const answer = await call(method, path, { body });
    t.equal(answer.status, 200, answer.text);
    requests.push(answer.headers.get('request-id') ?? '');
    return answer.body.id as string;
  };
  const vault = await write('POST', '/v1/vaults', { display_name: 'v' });
  await write('POST', `/v1/vaults/${vault}`, { display_name: 'w' });
  const credential = await write('POST', `/v1/vaults/${vault}/credentials`, { auth: authWith() });
  const path = `/v1/vaults/${vault}/credentials/${credential}`;
  await write('POST', path, { auth: { secret_value: 'rotated_value_0123456789' } });
  await write('POST', path, { display_name: 'd' });
  await write('POST', `${path}/archive`);
  await write('DELETE', path);
  const environment = await write('POST', '/v1/environments', { name: 'e' });
  await write('POST', `/v1/environments/${environment}`, { name: 'f' });
  const session = await write('POST', '/v1/sessions', { vault_ids: [vault] });
  await write('POST', `/v1/sessions/${session}`, { title: 't' });
  await write('POST', `/v1/sessions/${session}/rotate_token`);
  await store.control.sessions.suspend(session, 'r');
  await write('POST', `/v1/sessions/${session}/resume`);
  await write('POST', `/v1/sessions/${session}/archive`);
  await write('POST', `/v1/environments/${environment}/archive`);
  await write('DELETE', `/v1/environments/${environment}`);
  await write('POST', `/v1/vaults/${vault}/archive`);
  await write('DELETE', `/v1/vaults/${vault}`);
  const token = await write('POST', '/v1/admin_tokens', { name: 'n', scope: 'auditor' });
  await write('DELETE', `/v1/admin_tokens/${token}`);
  await write('POST', '/v1/emergency_stop', { active: true });
  await write('POST', '/v1/emergency_stop', { active: false });
  await write('POST', '/v1/ca/rotate');
  await write('POST', '/v1/ca/retire');
  await call('POST', '/v1/vaults', { body: {} });

  const { body, text } = await call('GET', '/v1/audit_events?limit=100');
  t.strictSame(
    body.data
      .map((entry: Record<string, string>) => [
        entry.type,
        entry.actor,
        entry.action,
        entry.object_id,
        entry.request_id,
      ])
      .reverse(),
    [
      ['vault.create', vault],
      ['vault.update', vault],
      ['credential.create', credential],
      ['credential.rotate', credential],
      ['credential.update', credential],
      ['credential.archive', credential],
      ['credential.delete', credential],
      ['environment.create', environment],
      ['environment.update', environment],
      ['session.create', session],
      ['session.update', session],
      ['session.rotate_token', session],
      ['session.resume', session],
      ['session.archive', session],
      ['environment.archive', environment],
      ['environment.delete', environment],
      ['vault.archive', vault],
      ['vault.delete', vault],
      ['admin_token.create', token],
      ['admin_token.delete', token],
      ['emergency_stop.activate', 'emergency_stop'],
      ['emergency_stop.lift', 'emergency_stop'],
      ['ca.rotate', 'ca'],
      ['ca.retire', 'ca'],
    ].map(([action, object], index) => ['admin_event', 'admin_token', action, object, requests[index]]),
    'a refused write is not noted',
  );
  t.notMatch(text, /ntn_real|rotated_value/);
});

test('events are listed with every field, filtered and page by page', async (t) => {
  const since = clock.now() + 1000;
  clock.advance(1000);
  store.audit.record(auditEvent());
  clock.advance(1000);
  store.audit.record(
    auditEvent({
      sessionId: 'sesn_b',
      host: 'xn--bcher-kva.example',
      outcome: 'refused',
      reason: 'environment_denied',
      status: 403,
      swaps: [],
      misses: [],
      veils: [],
    }),
  );
  clock.advance(1000);
  store.audit.record(
    auditEvent({
      sessionId: null,
      outcome: 'refused',
      reason: 'proxy_authentication_required',
      status: 407,
      repeated: { clientAddress: '10.0.0.9', count: 41 },
    }),
  );

  const list = async (query: string) => (await call('GET', `/v1/audit_events${query}`)).body;
  const from = new Date(since).toISOString();
  const { data } = await list(`?created_at_gte=${from}`);
  t.equal(data.length, 3);
  t.match(data[0].repeated, { client_address: '10.0.0.9', count: 41 });
  t.strictSame(
    { ...data[2], id: 'aud' },
    {
      id: 'aud',
      type: 'audit_event',
      created_at: from,
      session_id: 'sesn_a',
      method: 'POST',
      scheme: 'https',
      host: 'api.notion.com',
      port: 443,
      path: '/v1/pages',
      http_version: '1.1',
      status: 200,
      outcome: 'forwarded',
      reason: null,
      duration_ms: 12.5,
      request_bytes: 10,
      response_bytes: 20,
      swaps: [
        {
          credential_id: 'vcrd_a',
          secret_name: 'A',
          secret_version: 2,
          location: 'header',
          header_name: 'Authorization',
          count: 1,
        },
      ],
      misses: [{ credential_id: 'vcrd_b', secret_name: 'B', location: 'query', reason: 'in_url' }],
      veils: [{ credential_id: 'vcrd_a', count: 3 }],
    },
  );
  const counts: readonly [string, number][] = [
    ['?session_id=sesn_b', 1],
    ['?credential_id=vcrd_a', 2],
    ['?host=B%C3%BCcher.example', 1],
    [`?outcome=refused&created_at_gte=${from}`, 2],
    [`?created_at_gte=${from}&created_at_lt=${new Date(since + 1000).toISOString()}`, 1],
    [`?created_at_gte=${encodeURIComponent(new Date(since).toISOString().replace('Z', '+00:00'))}`, 3],
    ['?session_id=none', 0],
  ];
  for (const [query, count] of counts) t.equal((await list(query)).data.length, count, query);
  for (const [query, param] of [
    ['?outcome=good', 'outcome'],
    ['?created_at_gte=yesterday', 'created_at_gte'],
    ['?host=a/b', 'host'],
    ['?sesion_id=x', 'sesion_id'],
  ] as const) {
    t.match(await list(query), { error: { param } }, query);
  }

  const all = (await list('?limit=100')).data.map((entry: { id: string }) => entry.id);
  const paged: string[] = [];
  let page = '';
  do {
    const answer = await list(`?limit=7${page}`);
    paged.push(...answer.data.map((entry: { id: string }) => entry.id));
    page = answer.next_page === null ? '' : `&page=${answer.next_page}`;
  } while (page !== '');
  t.strictSame(paged, all);
});

test('a client that does not read holds the stream back instead of filling memory', async (t) => {
  let reads = 0;
  const row = { sequence: 1, entry: { kind: 'audit_event' as const, ...auditEvent({ path: `/${'p'.repeat(500)}` }) } };
  const audit = {
    ...store.audit,
    lastSequence: async () => 0,
    listSince: async () => {
      reads += 1;
      return Array.from({ length: 100 }, () => row);
    },
  };
  const { baseUrl } = await api.another({ audit });
  const request = httpRequest(`${baseUrl}/v1/audit_events/stream`, { headers: { 'x-api-key': api.token } });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.pause();
  // The socket's buffers fill, and then no more is read from the log: wait until two looks see the same number.
  let before = -1;
  while (before !== reads) {
    before = reads;
    for (let turn = 0; turn < 20; turn += 1) await delay(10);
  }
  t.ok(reads > 1 && reads < 1000, `${reads} pages were read`);
  request.destroy();
});

/** A log that always has a full page more, each row of it made at the moment that it is read. */
function endlessAudit(read: () => void): AdminServerOptions['audit'] {
  let sequence = 0;
  return {
    ...store.audit,
    lastSequence: async () => 0,
    listSince: async () => {
      read();
      return Array.from({ length: 100 }, () => {
        sequence += 1;
        return { sequence, entry: { kind: 'audit_event' as const, ...auditEvent({ path: `/${'p'.repeat(500)}` }) } };
      });
    },
  };
}

type Revocation = readonly [how: string, revoke: (id: string) => Promise<unknown>, fields: object];
const REVOCATIONS: readonly Revocation[] = [
  ['was deleted', (id) => call('DELETE', `/v1/admin_tokens/${id}`), {}],
  ['has expired', async () => clock.advance(3_600_000), { expires_in: 60 }],
];

for (const [how, revoke, fields] of REVOCATIONS) {
  test(`a full page is not sent to a token that ${how}, whether its client reads or not`, async (t) => {
    let reads = 0;
    const audit = endlessAudit(() => (reads += 1));
    const server = await api.another({ audit, auditHeartbeatMs: 100 });
    const { body: scoped } = await call('POST', '/v1/admin_tokens', {
      body: { name: 'a', scope: 'auditor', ...fields },
    });
    const open = async (): Promise<IncomingMessage> => {
      const request = httpRequest(`${server.baseUrl}/v1/audit_events/stream`, {
        headers: { 'x-api-key': scoped.token as string },
        agent: false,
      });
      request.on('error', () => undefined).end();
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      return response.setEncoding('utf8').on('error', () => undefined);
    };
    const stalled = await open();
    stalled.pause();
    const reading = await open();
    let last = 0;
    reading.on('data', (text: string) => {
      for (const [, id] of text.matchAll(/^id: (\d+)$/gm)) last = Number(id);
    });
    while (last < 1000) await delay(5);
    await revoke(scoped.id as string);
    const revokedAt = reads;
    await once(reading, 'close');
    // One that was read before, and one that was read and then looked at, may still be on its way.
    t.ok(last <= (revokedAt + 1) * 100, `${last} of ${revokedAt} pages at the revocation`);
    t.ok(reads <= revokedAt + 2, 'a page or two that were refused were read, for each stream one');
    while ((await server.connectionCount()) > 0) await delay(10);
    t.pass('who does not read loses the connection');
    stalled.destroy();
    await server.close();
  });
}

test('the live stream sends what happens, goes on after a cut, and ends with the server', async (t) => {
  const stream = await openStream();
  t.equal(stream.response.headers['content-type'], 'text/event-stream');
  store.audit.record(auditEvent({ path: '/first' }));
  const first = await stream.nextEvent();
  t.match(first, { event: 'audit_event', id: /^[0-9]+$/ });
  t.match(JSON.parse(first?.data ?? ''), { type: 'audit_event', path: '/first' });
  await call('POST', '/v1/vaults', { body: { display_name: 'v' } });
  t.match(JSON.parse((await stream.nextEvent())?.data ?? ''), { type: 'admin_event', action: 'vault.create' });
  stream.close();

  for (let index = 0; index < 250; index += 1) store.audit.record(auditEvent({ path: `/while-away/${index}` }));
  const resumed = await openStream('', { 'last-event-id': first?.id ?? '' });
  t.equal((await resumed.nextEvent())?.event, 'admin_event', 'nothing is skipped');
  for (let index = 0; index < 250; index += 1) {
    t.equal(JSON.parse((await resumed.nextEvent())?.data ?? '').path, `/while-away/${index}`);
  }
  resumed.close();

  const filtered = await openStream('?session_id=sesn_b');
  store.audit.record(auditEvent({ sessionId: 'sesn_a' }));
  store.audit.record(auditEvent({ sessionId: 'sesn_b', path: '/wanted' }));
  t.match(JSON.parse((await filtered.nextEvent())?.data ?? ''), { session_id: 'sesn_b', path: '/wanted' });
  t.match((await filtered.iterator.next()).value, { comment: 'keep-alive' }, 'a comment keeps a quiet stream open');
  filtered.close();

  const bad = await call('GET', '/v1/audit_events/stream', { headers: { 'last-event-id': 'x' } });
  t.match({ status: bad.status, error: bad.body.error }, { status: 400, error: { param: 'last-event-id' } });

  const { body: scoped } = await call('POST', '/v1/admin_tokens', { body: { name: 'a', scope: 'auditor' } });
  const watched = await openStream('', {}, scoped.token as string);
  await call('DELETE', `/v1/admin_tokens/${scoped.id}`);
  let event = await watched.nextEvent();
  while (event !== null) event = await watched.nextEvent();
  t.ok(watched.response.complete, 'a stream ends soon after its token was deleted');

  const last = await openStream();
  const closed = api.close();
  t.equal(await last.nextEvent(), null, 'and with the server');
  await closed;
});
