// The official SDK of the Claude API against Keyveil, with nothing changed but baseURL and apiKey.
import Anthropic from '@anthropic-ai/sdk';
import t, { test } from 'tap';
import { startAdminApi } from '../support/admin-api.ts';

const HOUR_MS = 3_600_000;
const { sdk, store, clock, baseUrl, token } = await startAdminApi(t);

/** The clock's time on the wire. */
function nowText(): string {
  return new Date(clock.now()).toISOString();
}

/** The status that a call was refused with; 0 when it was answered. */
async function refusedWith(call: Promise<unknown>): Promise<number | undefined> {
  try {
    await call;
    return 0;
  } catch (error) {
    if (error instanceof Anthropic.APIError) return error.status as number | undefined;
    throw error;
  }
}

test('beta.vaults creates, retrieves, updates, archives and deletes', async (t) => {
  const vault = await sdk.beta.vaults.create({ display_name: 'Example vault', metadata: { team: 'a', keep: 'k' } });
  t.match(vault.id, /^vlt_[0-9a-z]{26}$/);
  t.strictSame(
    { ...vault, id: 'vlt' },
    {
      id: 'vlt',
      type: 'vault',
      display_name: 'Example vault',
      metadata: { team: 'a', keep: 'k' },
      created_at: nowText(),
      updated_at: nowText(),
      archived_at: null,
    },
  );
  t.strictSame(await sdk.beta.vaults.retrieve(vault.id), vault);

  clock.advance(HOUR_MS);
  const updated = await sdk.beta.vaults.update(vault.id, { metadata: { team: null, more: 'm' } });
  t.equal(updated.display_name, 'Example vault', 'what is omitted is kept');
  t.strictSame(updated.metadata, { keep: 'k', more: 'm' });
  t.equal(updated.updated_at, nowText());
  t.equal(updated.created_at, vault.created_at);
  const renamed = await sdk.beta.vaults.update(vault.id, { display_name: 'Renamed' });
  t.equal(renamed.display_name, 'Renamed');

  const archived = await sdk.beta.vaults.archive(vault.id);
  t.equal(archived.archived_at, nowText());
  clock.advance(HOUR_MS);
  t.strictSame(await sdk.beta.vaults.archive(vault.id), archived, 'a second archive changes nothing');
  t.strictSame((await sdk.beta.vaults.list()).data, [], 'archived vaults are left out of lists');
  t.strictSame((await sdk.beta.vaults.list({ include_archived: true })).data, [archived]);
  t.equal(await refusedWith(sdk.beta.vaults.update(vault.id, { display_name: 'x' })), 400);

  t.strictSame(await sdk.beta.vaults.delete(vault.id), { id: vault.id, type: 'vault_deleted' });
  t.equal(await refusedWith(sdk.beta.vaults.retrieve(vault.id)), 404);
});

test('a list of 250 vaults is walked page by page, newest first, while more are added', async (t) => {
  const made: string[] = [];
  for (let index = 0; index < 250; index += 1) {
    made.push((await store.control.vaults.create({ displayName: `v${index}`, metadata: {} })).id);
  }
  const seen: string[] = [];
  for await (const vault of sdk.beta.vaults.list()) {
    seen.push(vault.id);
    if (seen.length % 60 === 0) await sdk.beta.vaults.create({ display_name: 'added meanwhile' });
  }
  t.strictSame(seen, made.reverse());

  const first = await sdk.beta.vaults.list({ limit: 100 });
  t.equal(first.data.length, 100);
  t.ok(first.hasNextPage());
  const second = await first.getNextPage();
  t.equal(second.data.length, 100);
  t.equal(new Set([...first.data, ...second.data].map((vault) => vault.id)).size, 200);
});

test('beta.vaults.credentials does all that it does for environment variables', async (t) => {
  const { id: vaultId } = await sdk.beta.vaults.create({ display_name: 'v' });
  const created = await sdk.beta.vaults.credentials.create(vaultId, {
    display_name: 'Notion',
    metadata: { a: '1', b: '2' },
    auth: {
      type: 'environment_variable',
      secret_name: 'NOTION_API_KEY',
      secret_value: 'ntn_real_value_0123456789',
      networking: { type: 'limited', allowed_hosts: ['API.Notion.com.', '*.Example.COM', 'api.notion.com'] },
    },
  });
  t.match(created, { type: 'vault_credential', vault_id: vaultId, display_name: 'Notion', archived_at: null });
  t.match(created.id, /^vcrd_/);
  const { placeholder, ...auth } = created.auth as unknown as Record<string, unknown>;
  t.match(placeholder, /^kvph_[0-9A-Za-z]{32}$/);
  t.strictSame(auth, {
    type: 'environment_variable',
    secret_name: 'NOTION_API_KEY',
    networking: { type: 'limited', allowed_hosts: ['api.notion.com', '*.example.com'] },
    injection_location: { header: true, body: false },
    mountable: true,
    secret_version: 1,
    rotated_at: null,
    last_used_at: null,
  });

  const params = { vault_id: vaultId };
  const { warnings: _warnings, ...plain } = created as typeof created & { warnings: string[] };
  t.strictSame(await sdk.beta.vaults.credentials.retrieve(created.id, params), plain);

  clock.advance(HOUR_MS);
  const rotated = await sdk.beta.vaults.credentials.update(created.id, {
    ...params,
    auth: { type: 'environment_variable', secret_value: 'ntn_rotated_value_0123456789' },
  });
  t.match(rotated.auth, { secret_version: 2, rotated_at: nowText(), placeholder });

  const updated = await sdk.beta.vaults.credentials.update(created.id, {
    ...params,
    display_name: null,
    metadata: { a: null, c: '3' },
    auth: {
      type: 'environment_variable',
      networking: { type: 'unrestricted' },
      injection_location: { body: true },
    },
  });
  t.equal(updated.display_name, null);
  t.strictSame(updated.metadata, { b: '2', c: '3' });
  t.match(updated.auth, {
    networking: { type: 'unrestricted' },
    injection_location: { header: true, body: true },
    secret_version: 2,
    placeholder,
  });

  const second = await sdk.beta.vaults.credentials.create(vaultId, {
    auth: {
      type: 'environment_variable',
      secret_name: 'SECOND',
      secret_value: 'second value that is long',
      networking: { type: 'unrestricted' },
      injection_location: { body: true },
    },
  });
  t.match(second.auth, { injection_location: { header: false, body: true } });
  const ids: string[] = [];
  for await (const credential of sdk.beta.vaults.credentials.list(vaultId, { limit: 1 })) ids.push(credential.id);
  t.strictSame(ids, [second.id, created.id]);

  const archived = await sdk.beta.vaults.credentials.archive(created.id, params);
  t.equal(archived.archived_at, nowText());
  t.equal((await sdk.beta.vaults.credentials.list(vaultId)).data.length, 1);
  t.equal((await sdk.beta.vaults.credentials.list(vaultId, { include_archived: true })).data.length, 2);
  t.strictSame(await sdk.beta.vaults.credentials.delete(created.id, params), {
    id: created.id,
    type: 'vault_credential_deleted',
  });

  const { id: otherVault } = await sdk.beta.vaults.create({ display_name: 'other' });
  const misplaced = sdk.beta.vaults.credentials.retrieve(second.id, { vault_id: otherVault });
  t.equal(await refusedWith(misplaced), 404, 'a credential under another vault is not found');

  await sdk.beta.vaults.archive(vaultId);
  const cascaded = await sdk.beta.vaults.credentials.retrieve(second.id, params);
  t.equal(cascaded.archived_at, nowText(), 'a vault takes its credentials along');
  await sdk.beta.vaults.delete(vaultId);
  t.equal(await refusedWith(sdk.beta.vaults.credentials.retrieve(second.id, params)), 404);
});

test('beta.environments creates, retrieves, updates, lists, archives and deletes', async (t) => {
  const plain = await sdk.beta.environments.create({ name: 'plain' });
  t.strictSame(
    { ...plain, id: 'env' },
    {
      id: 'env',
      type: 'environment',
      name: 'plain',
      description: null,
      config: {
        type: 'cloud',
        networking: { type: 'unrestricted' },
        packages: { type: 'packages', apt: [], cargo: [], gem: [], go: [], npm: [], pip: [] },
        allowed_private_cidrs: [],
      },
      scope: 'organization',
      metadata: {},
      created_at: nowText(),
      updated_at: nowText(),
      archived_at: null,
    },
  );
  const limited = await sdk.beta.environments.create({
    name: 'limited',
    description: 'd',
    scope: 'organization',
    config: {
      type: 'cloud',
      networking: { type: 'limited', allowed_hosts: ['A.example', 'b.example'], allow_package_managers: true },
      packages: { apt: [], npm: null },
    },
    metadata: { a: '1' },
  });
  t.match(limited.config, {
    networking: {
      type: 'limited',
      allowed_hosts: ['a.example', 'b.example'],
      allow_package_managers: true,
      allow_mcp_servers: false,
    },
  });
  t.strictSame(await sdk.beta.environments.retrieve(limited.id), limited);

  const updated = await sdk.beta.environments.update(limited.id, {
    config: { type: 'cloud', networking: { type: 'limited', allowed_hosts: ['c.example'] } },
    metadata: { a: null, b: '2' },
  });
  t.match(updated, { name: 'limited', description: 'd', metadata: { b: '2' } });
  t.match(updated.config, { networking: { allowed_hosts: ['c.example'], allow_package_managers: true } });
  const kept = await sdk.beta.environments.update(limited.id, {
    config: { type: 'cloud', networking: { type: 'limited', allow_package_managers: false, allowed_hosts: null } },
    description: null,
  });
  t.match(kept.config, { networking: { allowed_hosts: ['c.example'], allow_package_managers: false } });
  t.equal(kept.description, null);

  const names: string[] = [];
  for await (const environment of sdk.beta.environments.list({ limit: 1 })) names.push(environment.name);
  t.strictSame(names, ['limited', 'plain']);
  const archived = await sdk.beta.environments.archive(limited.id);
  t.type(archived.archived_at, 'string');
  t.equal(await refusedWith(sdk.beta.environments.update(limited.id, { name: 'x' })), 400);
  t.strictSame(await sdk.beta.environments.delete(limited.id), { id: limited.id, type: 'environment_deleted' });
});

test("the SDK's typed errors come with the request's id", async (t) => {
  const vault = await sdk.beta.vaults.create({ display_name: 'v' });
  const credential = {
    auth: {
      type: 'environment_variable',
      secret_name: 'TWICE',
      secret_value: 'some value of good length',
      networking: { type: 'unrestricted' },
    },
  } as const;
  await sdk.beta.vaults.credentials.create(vault.id, credential);

  const failures: readonly [() => Promise<unknown>, abstract new (...args: never[]) => Error, string][] = [
    [() => sdk.beta.vaults.create({ display_name: '' }), Anthropic.BadRequestError, 'invalid_request_error'],
    [() => sdk.beta.vaults.retrieve('vlt_none'), Anthropic.NotFoundError, 'not_found_error'],
    [() => sdk.beta.vaults.credentials.create(vault.id, credential), Anthropic.ConflictError, 'conflict_error'],
    [
      () => new Anthropic({ baseURL: baseUrl, apiKey: 'wrong' }).beta.vaults.list(),
      Anthropic.AuthenticationError,
      'authentication_error',
    ],
  ];
  for (const [failure, type, word] of failures) {
    const error = await failure().then(
      () => null,
      (thrown: unknown) => thrown,
    );
    t.ok(error instanceof type, `${type.name} is thrown`);
    t.match(error, { requestID: /^req_/, error: { type: 'error', error: { type: word } } });
  }

  const { type: _type, ...viaBearer } = { type: 0, baseURL: baseUrl, apiKey: null, authToken: token };
  t.ok((await new Anthropic(viaBearer).beta.vaults.list()).data.length > 0, 'Authorization: Bearer does as well');
});
