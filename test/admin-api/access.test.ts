// Who may call: tokens, scopes, failed logins, the Host check, the socket, and requests that are none.
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import t, { test, type Test } from 'tap';
import { createLoginLimiter } from '../../admin-api/login-limiter.ts';
import { createAdminServer } from '../../admin-api/server.ts';
import { ADMIN_FAILED_LOGINS_PER_MINUTE_MAX } from '../../model/limits.ts';
import { authWith, digestOf, send, startAdminApi, type Answer } from '../support/admin-api.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const api = await startAdminApi(t);
const { baseUrl, call, clock, digests, another } = api;

function checkError(
  t: Test,
  answer: Answer,
  expected: { status: number; type: string; code: string; name?: string },
): void {
  const { status, type, code } = expected;
  t.match(
    { status: answer.status, body: answer.body },
    { status, body: { type: 'error', error: { type, code } } },
    expected.name ?? code,
  );
  t.equal(answer.headers.get('request-id'), answer.body.request_id);
}

const UNAUTHENTICATED = { status: 401, type: 'authentication_error', code: 'unauthenticated' };

/** Sends bytes and returns all that comes back until the server closes. */
async function exchangeRaw(bytes: string): Promise<string> {
  const socket = connect(Number(new URL(baseUrl).port), '127.0.0.1');
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.write(bytes);
  await once(socket, 'close');
  return Buffer.concat(chunks).toString('latin1');
}

test('a token is needed everywhere but on the public paths', async (t) => {
  for (const path of ['/healthz', '/readyz', '/v1/ca.pem', '/v1/ca-bundle.pem', '/docs', '/openapi.json']) {
    t.equal((await call('GET', path, { token: null })).status, 200, path);
  }
  for (const path of ['/v1/vaults', '/v1/sessions', '/metrics', '/v1/audit_events', '/v1/nowhere', '/']) {
    checkError(t, await call('GET', path, { token: null }), { ...UNAUTHENTICATED, name: path });
  }
  checkError(t, await call('DELETE', '/healthz', { token: null }), {
    ...UNAUTHENTICATED,
    name: 'a method that is none',
  });
  t.equal((await call('GET', '/v1/ca.pem')).text, 'CA PEM\n');
  t.equal((await call('GET', '/v1/ca-bundle.pem')).text, 'BUNDLE PEM\n');
});

test('x-api-key and Authorization: Bearer both carry the token', async (t) => {
  const get = (headers: Record<string, string>) => call('GET', '/v1/vaults', { token: null, headers });
  t.equal((await get({ 'x-api-key': api.token })).status, 200);
  t.equal((await get({ authorization: `Bearer ${api.token}` })).status, 200);
  t.equal((await get({ authorization: `bearer ${api.token}` })).status, 200, 'the scheme in any case');
  t.equal(
    (await get({ 'x-api-key': 'wrong', authorization: `Bearer ${api.token}` })).status,
    200,
    'one of the two is right',
  );
  checkError(t, await get({ authorization: api.token }), UNAUTHENTICATED);
  checkError(
    t,
    await get({ authorization: `Basic ${Buffer.from(`x:${api.token}`).toString('base64')}` }),
    UNAUTHENTICATED,
  );
  checkError(t, await get({ 'x-api-key': api.token.slice(0, -1) }), UNAUTHENTICATED);
  checkError(t, await get({ 'x-api-key': `${api.token}x` }), UNAUTHENTICATED);
  checkError(t, await get({ 'x-api-key': '' }), UNAUTHENTICATED);
});

test('a configured token can be replaced while the server runs', async (t) => {
  digests.push(digestOf('the next token of the operator, long enough'));
  const next = { token: 'the next token of the operator, long enough' };
  t.equal((await call('GET', '/v1/vaults', next)).status, 200, 'both are good while both are given');
  t.equal((await call('GET', '/v1/vaults')).status, 200);
  digests.pop();
  checkError(t, await call('GET', '/v1/vaults', next), UNAUTHENTICATED);
});

test('scoped tokens may do what their scope says, and no more', async (t) => {
  const vault = (await call('POST', '/v1/vaults', { body: { display_name: 'v' } })).body.id as string;
  const credential = (await call('POST', `/v1/vaults/${vault}/credentials`, { body: { auth: authWith() } })).body
    .id as string;
  const session = (await call('POST', '/v1/sessions', { body: { vault_ids: [] } })).body.id as string;
  const ended = (await call('POST', '/v1/sessions', { body: { vault_ids: [] } })).body.id as string;
  const environment = (await call('POST', '/v1/environments', { body: { name: 'e' } })).body.id as string;
  const doomed = (await call('POST', '/v1/admin_tokens', { body: { name: 'd', scope: 'auditor' } })).body.id as string;
  const all = ['admin', 'broker', 'auditor'];
  const rows: readonly (readonly [method: string, path: string, allowed: readonly string[], body?: unknown])[] = [
    ['GET', '/v1/vaults', ['admin', 'auditor']],
    ['GET', `/v1/vaults/${vault}`, ['admin', 'auditor']],
    ['GET', `/v1/vaults/${vault}/credentials`, ['admin', 'auditor']],
    ['GET', `/v1/vaults/${vault}/credentials/${credential}`, ['admin', 'auditor']],
    ['GET', '/v1/environments', ['admin', 'auditor']],
    ['GET', `/v1/environments/${environment}`, ['admin', 'auditor']],
    ['GET', '/v1/sessions', all],
    ['GET', `/v1/sessions/${session}`, all],
    ['GET', '/v1/audit_events', ['admin', 'auditor']],
    ['GET', '/v1/admin_tokens', ['admin', 'auditor']],
    ['GET', '/v1/emergency_stop', ['admin', 'auditor']],
    ['GET', '/v1/ca', ['admin', 'auditor']],
    ['GET', '/metrics', ['admin', 'auditor']],
    ['POST', '/v1/sessions', ['admin', 'broker'], { vault_ids: [vault] }],
    ['POST', `/v1/sessions/${session}`, ['admin'], { title: 't' }],
    ['POST', `/v1/sessions/${session}/rotate_token`, ['admin']],
    ['POST', `/v1/sessions/${ended}/archive`, ['admin', 'broker']],
    ['POST', '/v1/vaults', ['admin'], { display_name: 'x' }],
    ['POST', `/v1/vaults/${vault}`, ['admin'], {}],
    ['POST', `/v1/vaults/${vault}/credentials/${credential}`, ['admin'], {}],
    ['POST', '/v1/environments', ['admin'], { name: 'x' }],
    ['POST', `/v1/environments/${environment}`, ['admin'], {}],
    ['POST', `/v1/environments/${environment}/archive`, ['admin']],
    ['POST', '/v1/emergency_stop', ['admin'], { active: false }],
    ['POST', '/v1/ca/rotate', ['admin']],
    ['POST', '/v1/ca/retire', ['admin']],
    ['POST', '/v1/admin_tokens', ['admin'], { name: 'x', scope: 'admin' }],
    ['POST', `/v1/vaults/${vault}/credentials/${credential}/archive`, ['admin']],
    ['DELETE', `/v1/admin_tokens/${doomed}`, ['admin']],
    ['DELETE', `/v1/environments/${environment}`, ['admin']],
    ['DELETE', `/v1/vaults/${vault}/credentials/${credential}`, ['admin']],
    ['POST', `/v1/vaults/${vault}/archive`, ['admin']],
    ['DELETE', `/v1/vaults/${vault}`, ['admin']],
  ];
  // An admin comes last: what it deletes is not there afterwards.
  for (const scope of ['auditor', 'broker', 'admin']) {
    const { body } = await call('POST', '/v1/admin_tokens', { body: { name: scope, scope } });
    t.match(body, { type: 'admin_token', scope, name: scope, last_used_at: null, expires_at: null });
    t.match(body.token, /^kvad_[A-Za-z0-9_-]{43}$/);
    for (const [method, path, allowed, input] of rows) {
      const answer = await call(method, path, { token: body.token, body: input });
      if (allowed.includes(scope))
        t.equal(answer.status, 200, `${scope} ${method} ${path}: ${answer.text.slice(0, 200)}`);
      else
        checkError(t, answer, {
          status: 403,
          type: 'permission_error',
          code: 'insufficient_scope',
          name: `${scope} ${method} ${path}`,
        });
    }
    const listed = await call('GET', '/v1/admin_tokens');
    t.notOk(listed.text.includes(body.token), 'a token is shown once');
    const one = listed.body.data.find((entry: { id: string }) => entry.id === body.id);
    t.equal(one.last_used_at, new Date(clock.now()).toISOString());
    t.strictSame((await call('DELETE', `/v1/admin_tokens/${body.id}`)).body, {
      id: body.id,
      type: 'admin_token_deleted',
    });
    checkError(t, await call('GET', '/v1/sessions', { token: body.token }), { ...UNAUTHENTICATED, name: 'deleted' });
  }
  const brief = await call('POST', '/v1/admin_tokens', { body: { name: 'brief', scope: 'admin', expires_in: 60 } });
  t.equal((await call('GET', '/v1/vaults', { token: brief.body.token })).status, 200);
  clock.advance(60_000);
  checkError(t, await call('GET', '/v1/vaults', { token: brief.body.token }), { ...UNAUTHENTICATED, name: 'expired' });
});

test('failed logins are limited per address, a correct token never is', async (t) => {
  clock.advance(61_000);
  const wrong = { token: 'wrong' };
  for (let index = 0; index < ADMIN_FAILED_LOGINS_PER_MINUTE_MAX; index += 1) {
    t.equal((await call('GET', '/v1/vaults', wrong)).status, 401);
  }
  const limited = await call('GET', '/v1/vaults', wrong);
  checkError(t, limited, { status: 429, type: 'rate_limit_error', code: 'too_many_failed_logins' });
  t.equal(limited.headers.get('retry-after'), '60');
  t.equal(limited.headers.get('x-should-retry'), 'false');
  t.equal((await call('GET', '/v1/vaults')).status, 200, 'the correct token is heard');
  checkError(t, await call('GET', '/v1/vaults', { token: null }), { ...UNAUTHENTICATED, name: 'no token is no guess' });
  clock.advance(60_000);
  checkError(t, await call('GET', '/v1/vaults', wrong), { ...UNAUTHENTICATED, name: 'a minute later' });
});

async function statusForHost(path: string, host: string): Promise<number> {
  const request = httpRequest(baseUrl + path, { headers: { host, 'x-api-key': api.token } });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}

test('a Host of another name is refused, health aside', async (t) => {
  for (const host of [
    'localhost',
    'LOCALHOST:7081',
    'localhost.',
    '127.0.0.1:7081',
    '[::1]:7081',
    '10.1.2.3',
    'Admin.Keyveil.Example:9',
  ]) {
    t.equal(await statusForHost('/v1/vaults', host), 200, host);
  }
  for (const host of [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'xadmin.keyveil.example',
    'a b',
  ]) {
    t.equal(await statusForHost('/v1/vaults', host), 421, host);
    t.equal(await statusForHost('/docs', host), 421, `${host} on a public path`);
    t.equal(await statusForHost('/healthz', host), 200, `${host} on /healthz`);
    t.equal(await statusForHost('/readyz', host), 200, `${host} on /readyz`);
  }
  const empty = await exchangeRaw('GET /v1/vaults HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n');
  t.match(empty, /^HTTP\/1\.1 421 /);
  t.match(await exchangeRaw('GET /v1/vaults HTTP/1.0\r\n\r\n'), /^HTTP\/1\.1 421 [^]*"admin_host_refused"/);
});

test('paths, methods and bodies that are not known', async (t) => {
  checkError(t, await call('GET', '/v1/nowhere'), { status: 404, type: 'not_found_error', code: 'not_found' });
  checkError(t, await call('GET', '/v1/vaults/%zz'), {
    status: 400,
    type: 'invalid_request_error',
    code: 'invalid_request',
  });
  checkError(t, await call('GET', `/v1/vaults/${'x'.repeat(500)}`), {
    status: 404,
    type: 'not_found_error',
    code: 'not_found',
  });
  const put = await call('PUT', '/v1/vaults/vlt_x', { body: {} });
  checkError(t, put, { status: 405, type: 'invalid_request_error', code: 'method_not_allowed' });
  t.equal(put.headers.get('allow'), 'DELETE, GET, HEAD, POST');
  t.equal((await call('OPTIONS', '/v1/vaults')).headers.get('access-control-allow-origin'), null, 'no CORS');

  const post = (body: string, headers: Record<string, string> = {}) => call('POST', '/v1/vaults', { body, headers });
  const secret = 'sk-never-to-be-quoted';
  const broken: readonly string[] = [
    `{"display_name":"${secret}`,
    secret,
    `{"display_name":"x",}`,
    `{'${secret}':1}`,
    `{"a":"${secret}\n"}`,
    '{"__proto__":{"x":1}}',
  ];
  for (const body of broken) {
    const answer = await post(body);
    checkError(t, answer, { status: 400, type: 'invalid_request_error', code: 'invalid_json', name: body });
    t.notMatch(answer.text, /never|quoted|display_name/);
  }
  checkError(t, await post('x=1', { 'content-type': 'application/x-www-form-urlencoded' }), {
    status: 415,
    type: 'invalid_request_error',
    code: 'unsupported_media_type',
  });
  checkError(t, await post('{}', { 'content-type': 'text/plain' }), {
    status: 415,
    type: 'invalid_request_error',
    code: 'unsupported_media_type',
  });
  t.equal((await post('{"display_name":"x"}', { 'content-type': 'application/json; charset=utf-8' })).status, 200);
  const large = await post(JSON.stringify({ display_name: 'x'.repeat(1024 * 1024) }));
  checkError(t, large, { status: 413, type: 'request_too_large', code: 'request_too_large' });
  t.equal((await post(JSON.stringify({ display_name: 'x', metadata: { k: 'v' } }))).status, 200);

  t.match(await exchangeRaw('NONSENSE\r\n\r\n'), /^HTTP\/1\.1 400 [^]*request-id: req_[^]*"code":"invalid_request"/);
  t.match(
    await exchangeRaw(`GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`),
    /^HTTP\/1\.1 431 [^]*"code":"header_too_large"/,
  );
  const beta = { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'managed-agents-2026-04-01' };
  t.equal((await call('POST', '/v1/vaults?beta=true', { body: { display_name: 'x' }, headers: beta })).status, 200);
});

test('the Unix socket needs no token and knows no Host', async (t) => {
  const server = createAdminServer({ ...api.options, trust: 'socket' });
  t.teardown(() => server.close());
  const path = join(api.directory, 'admin.sock');
  await server.listen({ path });
  const request = httpRequest({
    socketPath: path,
    path: '/v1/vaults',
    method: 'POST',
    headers: { host: 'anything.example', 'content-type': 'application/json' },
  });
  request.end('{"display_name":"by socket"}');
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  t.equal(response.statusCode, 200);
  const { body } = await call('GET', '/v1/audit_events?limit=1');
  t.match(body.data[0], {
    type: 'admin_event',
    actor: 'socket',
    action: 'vault.create',
    request_id: response.headers['request-id'],
  });
});

test('readiness tells what is missing, metrics can be public', async (t) => {
  const idle = await another({ isProxyListening: () => false, metricsPublic: true });
  checkError(t, await send(`${idle.baseUrl}/readyz`, 'GET', {}), {
    status: 503,
    type: 'overloaded_error',
    code: 'store_unavailable',
  });
  t.equal((await send(`${idle.baseUrl}/healthz`, 'GET', {})).status, 200);
  const metrics = await send(`${idle.baseUrl}/metrics`, 'GET', {});
  t.equal(metrics.text, 'keyveil_requests_total 1\n');
  t.equal(metrics.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');

  const cause = new Error('disk gone: sk-not-for-the-sender');
  const broken = await another({
    store: {
      ...api.store.control,
      check: () => Promise.reject(cause),
      vaults: { ...api.store.control.vaults, list: () => Promise.reject(cause) },
    },
  });
  const unready = await send(`${broken.baseUrl}/readyz`, 'GET', {});
  checkError(t, unready, { status: 503, type: 'overloaded_error', code: 'store_unavailable' });
  const failed = await send(`${broken.baseUrl}/v1/vaults`, 'GET', { token: api.token });
  checkError(t, failed, { status: 500, type: 'api_error', code: 'internal_error' });
  t.notMatch(unready.text + failed.text, /disk|sk-not/);
  t.ok(
    api.logLines.some((line) => line.includes(failed.body.request_id) && line.includes('internal_error')),
    'logged under its id',
  );
});

test('a request that comes while the server closes gets an answer in the envelope', async (t) => {
  const server = createAdminServer(api.options);
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  server.addHook('preClose', () => held);
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  await send(`${url}/healthz`, 'GET', {});
  const closed = server.close();
  const answer = await send(`${url}/v1/vaults`, 'GET', { token: api.token });
  checkError(t, answer, { status: 503, type: 'overloaded_error', code: 'shutting_down' });
  release();
  await closed;
});

test('log lines hold the pattern of a path and nothing that was sent', async (t) => {
  await call('GET', '/v1/vaults/sk-in-a-path?page=sk-in-a-query');
  const line = api.logLines.at(-1) ?? '';
  t.match(JSON.parse(line), {
    level: 'debug',
    method: 'GET',
    path: '/v1/vaults/:vault_id',
    status: 404,
    requestId: /^req_/,
  });
  t.notOk(api.logLines.some((entry) => entry.includes('sk-in-a') || entry.includes(api.token)));
});

test('with a certificate it speaks TLS, and nothing in clear', async (t) => {
  const authority = createTestAuthority();
  const { baseUrl: url } = await another({ tls: authority.leafFor(['127.0.0.1']) });
  t.match(url, /^https:/);
  const request = httpsRequest(`${url}/v1/vaults`, { ca: authority.caPem, headers: { 'x-api-key': api.token } });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  t.equal(response.statusCode, 200);
  request.destroy();
  await t.rejects(send(url.replace('https:', 'http:') + '/healthz', 'GET', {}));
});

test('failed logins are counted per IPv4 address and per /64 of IPv6, for a bounded number of them', (t) => {
  const limiter = createLoginLimiter(clock);
  const fail = (address: string, times: number): number => {
    let wait = 0;
    for (let count = 0; count < times; count += 1) wait = limiter.noteFailure(address);
    return wait;
  };
  const max = ADMIN_FAILED_LOGINS_PER_MINUTE_MAX;
  t.equal(fail('10.0.0.1', max), 0);
  t.equal(fail('10.0.0.1', 1), 60);
  t.equal(fail('10.0.0.2', 1), 0, 'another address');
  t.equal(fail('2001:db8::1', max), 0);
  t.equal(fail('2001:db8:0:0:ffff::2', 1), 60, 'the same /64');
  t.equal(fail('2001:db8:0:1::1', 1), 0, 'another /64');
  t.equal(fail('::ffff:10.0.0.3', 1), 0);
  clock.advance(30_000);
  t.equal(fail('10.0.0.1', 1), 30);
  for (let index = 0; index < 10_000; index += 1) limiter.noteFailure(`10.1.${index >>> 8}.${index & 255}`);
  t.equal(fail('10.0.0.1', 1), 0, 'the oldest address is forgotten first');
  t.end();
});
