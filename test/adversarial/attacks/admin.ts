// The admin API: a web page in the operator's browser, tokens of small scope, and bodies that are traps.
import { readFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import {
  openAdversaryScene,
  readAnswer,
  type AdversaryScene,
  type AttackCase,
  type AttackClass,
} from '../../support/adversary.ts';

/** A scene with a token of each scope. */
export interface AdminScene extends AdversaryScene {
  readonly tokens: Readonly<Record<'admin' | 'broker' | 'auditor', string>>;
}

export async function openAdminScene(): Promise<AdminScene> {
  const scene = await openAdversaryScene();
  const create = async (scope: string): Promise<string> =>
    (await scene.keyveil.admin('POST', '/v1/admin_tokens', { name: scope, scope })).body['token'] as string;
  const [broker, auditor] = [await create('broker'), await create('auditor')];
  const admin = readFileSync(join(scene.keyveil.directory, 'data/admin-token'), 'latin1').trim();
  return Object.assign(scene, { tokens: { admin, broker, auditor } });
}

interface AdminRequest {
  readonly line: string;
  readonly scope?: 'admin' | 'broker' | 'auditor' | null;
  readonly host?: string;
  readonly fields?: readonly string[];
  readonly body?: string;
  readonly type?: string | null;
}

function send(scene: AdminScene, request: AdminRequest): Promise<string> {
  const { line, scope = 'admin', host = '127.0.0.1', fields = [], body, type = 'application/json' } = request;
  const all = [
    `${line} HTTP/1.1`,
    `Host: ${host}`,
    'Connection: close',
    ...(scope === null ? [] : [`x-api-key: ${scene.tokens[scope]}`]),
    ...fields,
    ...(body === undefined
      ? []
      : [...(type === null ? [] : [`content-type: ${type}`]), `content-length: ${String(Buffer.byteLength(body))}`]),
  ];
  const socket = connectTcp(scene.keyveil.daemon.adminAddress.port, '127.0.0.1');
  const answer = readAnswer(socket);
  socket.write(`${all.join('\r\n')}\r\n\r\n${body ?? ''}`);
  return answer;
}

type AdminCase = AttackCase<AdminScene>;

function admin(
  name: string,
  expected: RegExp,
  request: AdminRequest | ((scene: AdminScene) => AdminRequest),
): AdminCase {
  return {
    name,
    expected,
    attack: (scene) => send(scene, typeof request === 'function' ? request(scene) : request),
  };
}

const code = (status: number, word: string): RegExp => new RegExp(`^HTTP/1\\.1 ${String(status)} [^]*"code":"${word}"`);
const HOST = code(421, 'admin_host_refused');
const MEDIA = code(415, 'unsupported_media_type');
const LOGIN = code(401, 'unauthenticated');
const SCOPE = code(403, 'insufficient_scope');
const JSON_FAULT = code(400, 'invalid_json');
const NOT_FOUND = code(404, 'not_found');
const vault = JSON.stringify({ display_name: 'made by an attack' });
const post = (rest: Partial<AdminRequest>): AdminRequest => ({ line: 'POST /v1/vaults', body: vault, ...rest });

/** A refusal in which nothing invites another origin. */
const WITHOUT_CORS = /^HTTP\/1\.1 401 (?![^]*access-control-allow)[^]*"code":"unauthenticated"/i;

const credentialBody = (secret_name: string): string =>
  JSON.stringify({
    auth: {
      type: 'environment_variable',
      secret_name,
      secret_value: 'x'.repeat(20),
      networking: { type: 'unrestricted' },
    },
  });

async function flood(scene: AdminScene): Promise<string> {
  const wrong = Array.from({ length: 40 }, () =>
    send(scene, { line: 'GET /v1/vaults', scope: null, fields: ['x-api-key: wrong'] }),
  );
  const answers = await Promise.all(wrong);
  const limited = answers.filter((answer) => answer.startsWith('HTTP/1.1 429 '));
  const right = await send(scene, { line: 'GET /v1/vaults' });
  return `${String(limited.length >= 9)} ${right}`;
}

/** After the attacks the vaults are those of before. */
export async function checkUntouched(t: Test, scene: AdminScene): Promise<void> {
  const { body } = await scene.keyveil.admin('GET', '/v1/vaults?limit=100&include_archived=true');
  const names = (body['data'] as { display_name: string; archived_at: unknown }[]).map((each) => [
    each.display_name,
    each.archived_at,
  ]);
  t.strictSame(
    names.filter(([name]) => name === 'a' || name === 'b'),
    [
      ['b', null],
      ['a', null],
    ],
  );
  t.notOk(names.some(([name]) => name === 'made by an attack'));
}

export const ADMIN: AttackClass<AdminScene> = {
  name: 'admin',
  cases: [
    admin('a rebound name', HOST, { line: 'GET /v1/vaults', host: 'evil.test' }),
    admin('a rebound name with the right port', HOST, ({ keyveil }) => ({
      line: 'GET /v1/vaults',
      host: `evil.test:${String(keyveil.daemon.adminAddress.port)}`,
    })),
    admin('a name that begins with localhost', HOST, { line: 'GET /v1/vaults', host: 'localhost.evil.test' }),
    admin('a name that ends in localhost', HOST, { line: 'GET /v1/vaults', host: 'evil.localhost' }),
    admin('a user before localhost', HOST, { line: 'GET /v1/vaults', host: 'localhost@evil.test' }),
    admin('a rebound name for the CA', HOST, { line: 'GET /v1/ca.pem', host: 'evil.test', scope: null }),
    admin('a form from another site', MEDIA, post({ type: 'application/x-www-form-urlencoded' })),
    admin('plain text from another site', MEDIA, post({ type: 'text/plain' })),
    admin('multipart from another site', MEDIA, post({ type: 'multipart/form-data; boundary=x' })),
    admin('no content type', MEDIA, post({ type: null })),
    admin('a content type that only holds JSON', MEDIA, post({ type: 'text/plain; x=application/json' })),
    admin('a content type that begins like JSON', MEDIA, post({ type: 'application/jsonp' })),
    admin('a preflight', WITHOUT_CORS, {
      line: 'OPTIONS /v1/vaults',
      scope: null,
      fields: ['Origin: https://evil.test', 'Access-Control-Request-Method: POST'],
    }),
    admin('another origin without a token', WITHOUT_CORS, {
      line: 'GET /v1/vaults',
      scope: null,
      fields: ['Origin: https://evil.test'],
    }),
    admin('the token in a cookie', LOGIN, (scene) => ({
      line: 'GET /v1/vaults',
      scope: null,
      fields: [`Cookie: x-api-key=${scene.tokens.admin}`],
    })),
    admin('the token in the query', LOGIN, (scene) => ({
      line: `GET /v1/vaults?api_key=${scene.tokens.admin}`,
      scope: null,
    })),
    admin('the token in Basic', LOGIN, (scene) => ({
      line: 'GET /v1/vaults',
      scope: null,
      fields: [`Authorization: Basic ${Buffer.from(`admin:${scene.tokens.admin}`).toString('base64')}`],
    })),
    admin('two tokens in one field', LOGIN, (scene) => ({
      line: 'GET /v1/vaults',
      scope: null,
      fields: [`x-api-key: wrong, ${scene.tokens.admin}`],
    })),
    admin("a session's token", LOGIN, (scene) => ({
      line: 'GET /v1/vaults',
      scope: null,
      fields: [`x-api-key: ${scene.tokenA}`],
    })),
    admin('a method in a field', LOGIN, ({ vaultA }) => ({
      line: `POST /v1/vaults/${vaultA}`,
      scope: null,
      fields: ['X-HTTP-Method-Override: DELETE'],
    })),
    admin('a method in a field, with a token', /^HTTP\/1\.1 200 [^]*"type":"vault"/, ({ vaultA }) => ({
      line: `POST /v1/vaults/${vaultA}`,
      body: '{}',
      fields: ['X-HTTP-Method-Override: DELETE'],
    })),
    admin('a method that is not there', code(405, 'method_not_allowed'), ({ vaultA }) => ({
      line: `PUT /v1/vaults/${vaultA}`,
      body: '{}',
    })),
    admin('TRACE', code(405, 'method_not_allowed'), { line: 'TRACE /v1/vaults' }),
    admin('a CONNECT', /^$/, { line: 'CONNECT evil.test:443' }),
    admin('an absolute URL of another host', HOST, { line: 'GET http://evil.test/v1/vaults' }),
    admin('an absolute URL whose Host is another', HOST, { line: 'GET http://127.0.0.1/v1/vaults', host: 'evil.test' }),
    admin('an absolute URL with a user', HOST, { line: 'GET http://127.0.0.1@evil.test/v1/vaults' }),
    admin('dots in the path, without a token', LOGIN, {
      line: 'GET /healthz/../v1/vaults',
      scope: null,
    }),
    admin('encoded dots in the path, without a token', LOGIN, {
      line: 'GET /healthz/%2e%2e/v1/vaults',
      scope: null,
    }),
    admin('an encoded slash in the path', NOT_FOUND, { line: 'GET /v1%2fvaults' }),
    admin('two slashes', NOT_FOUND, { line: 'GET //v1/vaults' }),
    admin('dots as an id', /^HTTP\/1\.1 404 /, { line: 'GET /v1/vaults/..%2f..%2fadmin_tokens' }),
    admin('a NUL as an id', NOT_FOUND, { line: 'GET /v1/vaults/%00' }),
    admin('a broken escape', code(400, 'invalid_request'), { line: 'GET /v1/vaults/%zz' }),
    admin('a path in the other case', NOT_FOUND, { line: 'GET /V1/Vaults' }),
    admin(
      'a body that is too large',
      code(413, 'request_too_large'),
      post({ body: JSON.stringify({ display_name: 'x'.repeat(1_100_000) }) }),
    ),
    admin('fields that are too large', /^HTTP\/1\.1 431 /, {
      line: 'GET /v1/vaults',
      fields: [`X-A: ${'x'.repeat(20_000)}`],
    }),
    admin('a length and chunks', /^HTTP\/1\.1 400 /, {
      line: 'POST /v1/vaults',
      fields: ['transfer-encoding: chunked'],
      body: vault,
    }),
    admin(
      'a prototype',
      JSON_FAULT,
      post({ body: '{"display_name":"made by an attack","__proto__":{"scope":"admin"}}' }),
    ),
    admin(
      'a prototype, escaped',
      JSON_FAULT,
      post({ body: '{"display_name":"made by an attack","\\u005f_proto__":{}}' }),
    ),
    admin(
      'a constructor',
      code(400, 'unknown_field'),
      post({ body: '{"display_name":"made by an attack","constructor":{"prototype":{}}}' }),
    ),
    admin(
      'a prototype in metadata',
      JSON_FAULT,
      post({ body: '{"display_name":"made by an attack","metadata":{"__proto__":"x"}}' }),
    ),
    admin('deep lists', /^HTTP\/1\.1 400 /, post({ body: '['.repeat(400_000) + ']'.repeat(400_000) })),
    admin(
      'deep objects',
      /^HTTP\/1\.1 400 /,
      post({ body: `{"display_name":${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}}` }),
    ),
    admin('deep lists that never end', JSON_FAULT, post({ body: '['.repeat(1_000_000) })),
    admin('no UTF-8', JSON_FAULT, post({ body: '{"display_name":"\\ud800' })),
    admin('a lone surrogate', /^HTTP\/1\.1 400 /, post({ body: '{"display_name":"\\ud800"}' })),
    admin('a number for a name', code(400, 'invalid_field'), post({ body: '{"display_name":1e999}' })),
    admin(
      'an unknown field',
      code(400, 'unknown_field'),
      post({ body: '{"display_name":"made by an attack","archived_at":null}' }),
    ),
    admin('SQL as an id', NOT_FOUND, { line: `GET /v1/vaults/${encodeURIComponent("x' OR 1=1 --")}` }),
    admin('SQL as a filter', code(400, 'invalid_field'), {
      line: `GET /v1/audit_events?host=${encodeURIComponent("' OR 1=1 --")}`,
    }),
    admin('SQL as a session filter', /^HTTP\/1\.1 200 [^]*"data":\[\]/, {
      line: `GET /v1/audit_events?session_id=${encodeURIComponent('%')}`,
    }),
    admin('SQL as a cursor', code(400, 'invalid_page'), {
      line: `GET /v1/vaults?page=${Buffer.from('{"seq":"1 OR 1=1"}').toString('base64url')}`,
    }),
    admin('a cursor of noise', code(400, 'invalid_page'), { line: 'GET /v1/vaults?page=AAAA' }),
    admin('a negative limit', /^HTTP\/1\.1 400 /, { line: 'GET /v1/vaults?limit=-1' }),
    admin('a limit of everything', /^HTTP\/1\.1 400 /, { line: 'GET /v1/vaults?limit=1e9' }),
    admin('two limits', /^HTTP\/1\.1 400 /, { line: 'GET /v1/vaults?limit=1&limit=100' }),
    admin("another vault's credential", NOT_FOUND, ({ vaultB, credentialA }) => ({
      line: `GET /v1/vaults/${vaultB}/credentials/${credentialA}`,
    })),
    admin('a rotation through another vault', NOT_FOUND, ({ vaultB, credentialA }) => ({
      line: `POST /v1/vaults/${vaultB}/credentials/${credentialA}`,
      body: '{"auth":{"secret_value":"stolen by an attacker"}}',
    })),
    admin('a deletion through another vault', NOT_FOUND, ({ vaultB, credentialA }) => ({
      line: `DELETE /v1/vaults/${vaultB}/credentials/${credentialA}`,
    })),
    admin('a session as a vault', NOT_FOUND, ({ sessionA }) => ({ line: `GET /v1/vaults/${sessionA.id}` })),
    admin('a vault as a session', NOT_FOUND, ({ vaultA }) => ({ line: `GET /v1/sessions/${vaultA}` })),
    admin('a credential as a vault of a session', NOT_FOUND, ({ credentialA }) => ({
      line: 'POST /v1/sessions',
      body: JSON.stringify({ vault_ids: [credentialA] }),
    })),
    admin('a broker makes a token', SCOPE, {
      line: 'POST /v1/admin_tokens',
      scope: 'broker',
      body: '{"name":"x","scope":"admin"}',
    }),
    admin('a broker rotates a value', SCOPE, ({ vaultA, credentialA }) => ({
      line: `POST /v1/vaults/${vaultA}/credentials/${credentialA}`,
      scope: 'broker',
      body: '{"auth":{"secret_value":"stolen by a broker"}}',
    })),
    admin('a broker widens a credential', SCOPE, ({ vaultA, credentialA }) => ({
      line: `POST /v1/vaults/${vaultA}/credentials/${credentialA}`,
      scope: 'broker',
      body: '{"auth":{"networking":{"type":"unrestricted"}}}',
    })),
    admin("a broker takes a session's token", SCOPE, ({ sessionA }) => ({
      line: `POST /v1/sessions/${sessionA.id}/rotate_token`,
      scope: 'broker',
    })),
    admin('a broker reads the audit log', SCOPE, { line: 'GET /v1/audit_events', scope: 'broker' }),
    admin('an auditor opens a session', SCOPE, ({ vaultA }) => ({
      line: 'POST /v1/sessions',
      scope: 'auditor',
      body: JSON.stringify({ vault_ids: [vaultA] }),
    })),
    admin('an auditor makes a credential', SCOPE, ({ vaultA }) => ({
      line: `POST /v1/vaults/${vaultA}/credentials`,
      scope: 'auditor',
      body: credentialBody('AUDITED'),
    })),
    admin('an auditor deletes a vault', SCOPE, ({ vaultA }) => ({
      line: `DELETE /v1/vaults/${vaultA}`,
      scope: 'auditor',
    })),
    admin('an auditor stops everything', SCOPE, {
      line: 'POST /v1/emergency_stop',
      scope: 'auditor',
      body: '{"active":true}',
    }),
    admin('an auditor lifts nothing', SCOPE, ({ sessionA }) => ({
      line: `POST /v1/sessions/${sessionA.id}/resume`,
      scope: 'auditor',
    })),
    admin('a name that is reserved', code(400, 'secret_name_reserved'), ({ vaultA }) => ({
      line: `POST /v1/vaults/${vaultA}/credentials`,
      body: credentialBody('ld_preload'),
    })),
    admin('a name that breaks out of a shell', /^HTTP\/1\.1 400 /, ({ vaultA }) => ({
      line: `POST /v1/vaults/${vaultA}/credentials`,
      body: credentialBody('A=1;rm -rf'),
    })),
    admin('an upgrade', /^HTTP\/1\.1 200 /, {
      line: 'GET /v1/vaults',
      fields: ['Upgrade: websocket', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Version: 13'],
    }),
    {
      name: 'a flood of wrong tokens locks nobody out who has the right one',
      expected: /^true HTTP\/1\.1 200 /,
      attack: flood,
    },
    admin('a wrong token after it, with another address in a field', code(429, 'too_many_failed_logins'), {
      line: 'GET /v1/vaults',
      scope: null,
      fields: ['x-api-key: wrong', 'X-Forwarded-For: 203.0.113.9'],
    }),
  ],
};
