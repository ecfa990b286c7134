// Sessions through the API: what is mounted, what fails, what is warned about, and where the token shows.
import Database from 'better-sqlite3';
import { join } from 'node:path';
import t, { test } from 'tap';
import { CA_BUNDLE_VARIABLES, PROXY_VARIABLES } from '../../model/reserved-names.ts';
import { authWith, readDataDirectory, send, startAdminApi } from '../support/admin-api.ts';

const api = await startAdminApi(t);
const { call, clock, another } = api;

async function createVault(): Promise<string> {
  return (await call('POST', '/v1/vaults', { body: { display_name: 'v' } })).body.id as string;
}

async function createCredential(vaultId: string, changes: Readonly<Record<string, unknown>> = {}) {
  const answer = await call('POST', `/v1/vaults/${vaultId}/credentials`, { body: { auth: authWith(changes) } });
  return answer.body as { id: string; auth: { placeholder: string } };
}

const createSession = (body: object) => call('POST', '/v1/sessions', { body });

async function countSessions(): Promise<number> {
  return (await call('GET', '/v1/sessions?limit=100&include_archived=true')).body.data.length as number;
}

test('a session answers with the variables of its sandbox, the token but once', async (t) => {
  const vaultId = await createVault();
  const credential = await createCredential(vaultId);
  const { body: session } = await createSession({
    vault_ids: [vaultId],
    title: 't',
    metadata: { a: '1' },
    ca_directory: '/run/ca/',
  });
  const { startup_context: context, ...plain } = session;
  t.match(session.id, /^sesn_/);
  t.strictSame(
    { ...plain, id: 'sesn' },
    {
      id: 'sesn',
      type: 'session',
      status: 'active',
      vault_ids: [vaultId],
      environment_id: null,
      title: 't',
      metadata: { a: '1' },
      ca_directory: '/run/ca/',
      denial_limit: null,
      created_at: '2026-03-01T10:00:00.000Z',
      updated_at: '2026-03-01T10:00:00.000Z',
      expires_at: '2026-03-08T10:00:00.000Z',
      suspended_at: null,
      archived_at: null,
      warnings: [],
      mounts: [{ secret_name: 'NOTION_API_KEY', vault_id: vaultId, credential_id: credential.id }],
    },
  );
  const variables = context.environment_variables;
  const proxy = variables.HTTPS_PROXY as string;
  t.match(proxy, new RegExp(`^http://${session.id}:[A-Za-z0-9_-]{43}@127\\.0\\.0\\.1:7080$`));
  for (const name of PROXY_VARIABLES) t.equal(variables[name], proxy, name);
  for (const name of CA_BUNDLE_VARIABLES) t.equal(variables[name], '/run/ca/ca-bundle.pem', name);
  t.match(variables, {
    NO_PROXY: 'localhost,127.0.0.1,::1',
    no_proxy: 'localhost,127.0.0.1,::1',
    NODE_USE_ENV_PROXY: '1',
    NODE_EXTRA_CA_CERTS: '/run/ca/ca.pem',
    GIT_HTTP_PROXY_AUTHMETHOD: 'basic',
    NOTION_API_KEY: credential.auth.placeholder,
  });
  t.equal(Object.keys(variables).at(-1), 'NOTION_API_KEY', "the platform's variables come first");

  const read = await call('GET', `/v1/sessions/${session.id}`);
  const expected = Object.entries(variables).filter(([name]) => !PROXY_VARIABLES.includes(name));
  t.strictSame(Object.entries(read.body.startup_context.environment_variables), expected);
  const token = new URL(proxy).password;
  const rotated = await call('POST', `/v1/sessions/${session.id}/rotate_token`);
  const next = new URL(rotated.body.startup_context.environment_variables.https_proxy as string).password;
  t.match(next, /^[A-Za-z0-9_-]{43}$/);
  t.not(next, token);
  const everything = [
    await call('GET', '/v1/sessions'),
    await call('POST', `/v1/sessions/${session.id}`, { body: {} }),
    await call('POST', `/v1/sessions/${session.id}/archive`),
  ];
  const bytes = readDataDirectory(api.directory);
  for (const secret of [token, next]) {
    t.notOk(
      everything.some((answer) => answer.text.includes(secret)),
      'no other answer has the token',
    );
    t.notOk(bytes.includes(secret), 'only its hash is stored');
  }
  t.match(everything[2]?.body, { status: 'archived' });
});

test('the first vault that has a name wins', async (t) => {
  const [first, second] = [await createVault(), await createVault()];
  const inFirst = await createCredential(first, { secret_name: 'SAME' });
  const inSecond = await createCredential(second, { secret_name: 'SAME' });
  const other = await createCredential(second, { secret_name: 'OTHER' });
  for (const [order, winner] of [
    [[first, second], inFirst],
    [[second, first], inSecond],
  ] as const) {
    const { body } = await createSession({ vault_ids: order });
    t.equal(body.startup_context.environment_variables.SAME, winner.auth.placeholder);
    t.strictSame(
      body.mounts.map((mount: { credential_id: string }) => mount.credential_id).sort(),
      [winner.id, other.id].sort(),
    );
  }
});

test('a credential that an older system left fails the mount, and nothing is stored', async (t) => {
  const [shadowing, vaultId] = [await createVault(), await createVault()];
  await createCredential(shadowing);
  const good = await createCredential(vaultId, { secret_name: 'GOOD' });
  const bad = await createCredential(vaultId);
  const database = new Database(join(api.directory, 'keyveil.db'));
  database.prepare('UPDATE credentials SET placeholder = NULL, inject_header = NULL WHERE id = ?').run(bad.id);
  database.close();
  const before = await countSessions();
  for (const vault_ids of [[vaultId], [shadowing, vaultId]]) {
    const answer = await createSession({ vault_ids });
    t.equal(answer.status, 400);
    t.strictSame(answer.body.error, {
      type: 'invalid_request_error',
      code: 'credential_not_mountable',
      param: 'vault_ids',
      message: `Credential ${bad.id} (NOTION_API_KEY) in vault ${vaultId} has no placeholder or injection location and cannot be mounted. Archive it and create it again.`,
    });
  }
  t.equal(await countSessions(), before);
  const path = `/v1/vaults/${vaultId}/credentials/${bad.id}`;
  t.match((await call('GET', path)).body.auth, { mountable: false, placeholder: null, injection_location: null });
  const updated = await call('POST', path, { body: { display_name: 'x' } });
  t.match({ status: updated.status, code: updated.body.error.code }, { status: 400, code: 'credential_not_mountable' });
  await call('POST', `${path}/archive`);
  t.match((await createSession({ vault_ids: [vaultId] })).body.mounts, [{ credential_id: good.id }]);
});

test('with interception off, a session whose vaults hold a credential fails', async (t) => {
  const vaultId = await createVault();
  const off = await another({ sessionSettings: { ...api.options.sessionSettings, interceptionOn: false } });
  const create = (vault_ids: string[]) =>
    send(`${off.baseUrl}/v1/sessions`, 'POST', { token: api.token, body: { vault_ids } });
  t.equal((await create([vaultId])).status, 200, 'an empty vault is fine');
  const credential = await createCredential(vaultId);
  const before = await countSessions();
  const answer = await create([vaultId]);
  t.match(
    { status: answer.status, error: answer.body.error },
    { status: 400, error: { code: 'mitm_disabled', param: 'vault_ids' } },
  );
  t.equal(await countSessions(), before);
  await call('POST', `/v1/vaults/${vaultId}/credentials/${credential.id}/archive`);
  t.equal((await create([vaultId])).status, 200, 'an archived credential is none');
});

test('every warning of a mount', async (t) => {
  const vaultId = await createVault();
  await createCredential(vaultId, {
    secret_name: 'COVERED',
    networking: { type: 'limited', allowed_hosts: ['api.notion.com', '*.example.org', 'pinned.example.com'] },
  });
  await createCredential(vaultId, { secret_name: 'ANYWHERE', networking: { type: 'unrestricted' } });
  await createCredential(vaultId, {
    secret_name: 'LATER_RESERVED',
    networking: { type: 'limited', allowed_hosts: ['api.notion.com'] },
  });
  const reserving = await another({
    sessionSettings: { ...api.options.sessionSettings, isReserved: (name) => name === 'LATER_RESERVED' },
  });
  const warnings = async (baseUrl: string, body: object): Promise<string[]> => {
    const answer = await send(`${baseUrl}/v1/sessions`, 'POST', {
      token: api.token,
      body: { vault_ids: [vaultId], ...body },
    });
    t.equal(answer.status, 200);
    return answer.body.warnings.map((warning: string) => warning.split(':')[0]) as string[];
  };
  t.strictSame(await warnings(api.baseUrl, {}), ['credential_host_passthrough', 'credential_unrestricted']);
  const config = { networking: { type: 'limited', allowed_hosts: ['api.notion.com'] } };
  const { body: environment } = await call('POST', '/v1/environments', { body: { name: 'e', config } });
  t.strictSame(await warnings(reserving.baseUrl, { environment_id: environment.id }), [
    'credential_host_unreachable',
    'credential_host_unreachable',
    'credential_host_passthrough',
    'name_reserved',
  ]);
});

test('sessions expire, are suspended and resumed', async (t) => {
  const { body: brief } = await createSession({ vault_ids: [], expires_in: 60 });
  const { body: endless } = await createSession({ vault_ids: [], expires_in: null });
  t.equal(endless.expires_at, null);
  const statusOf = async (id: string) => (await call('GET', `/v1/sessions/${id}`)).body.status as string;
  clock.advance(59_999);
  t.equal(await statusOf(brief.id), 'active');
  clock.advance(1);
  t.equal(await statusOf(brief.id), 'expired');
  t.equal(await statusOf(endless.id), 'active');
  await api.store.control.sessions.suspend(endless.id, 'too many refusals');
  t.equal(await statusOf(endless.id), 'suspended');
  const resumed = await call('POST', `/v1/sessions/${endless.id}/resume`);
  t.match(resumed.body, { status: 'active', suspended_at: null });
});
