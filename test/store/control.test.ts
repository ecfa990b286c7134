// The control plane's stores: every rule, and lists that stay right while rows come and go.
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import fc from 'fast-check';
import { t, test } from 'tap';
import type { Page, PageQuery } from '../../model/vault.ts';
import { Secret } from '../../model/secret.ts';
import { openConnection } from '../../store/database.ts';
import { newCredential, newSession, openTestStore, SESSION_SETTINGS, WHOLE_LIST } from '../support/store.ts';

const opened = await openTestStore(t);
const { vaults, credentials, environments, sessions, adminTokens, emergencyStop } = opened.store.control;
const { clock } = opened;
const limited = (allowedHosts: string[]) => ({ type: 'limited' as const, allowedHosts, allowPackageManagers: false });
const byHand = openConnection(join(opened.directory, 'keyveil.db'), { readonly: false });
t.teardown(() => byHand.close());

test('vaults are created, read, patched, archived and deleted', async (t) => {
  const vault = await vaults.create({ displayName: 'One', metadata: { team: 'a', old: 'x' } });
  t.match(vault.id, /^vlt_/);
  t.equal(vault.createdAt, clock.now());
  clock.advance(5);
  const updated = await vaults.update(vault.id, { metadata: { old: null, new: 'y' } });
  t.strictSame(updated, { ...vault, metadata: { team: 'a', new: 'y' }, updatedAt: clock.now() });
  t.equal((await vaults.update(vault.id, { displayName: 'Two' })).displayName, 'Two');
  await credentials.create(newCredential(vault.id));
  const archived = await vaults.archive(vault.id);
  t.equal(archived.archivedAt, clock.now());
  clock.advance(5);
  t.strictSame(await vaults.archive(vault.id), archived, 'archiving again changes nothing');
  const [credential] = (await credentials.list(vault.id, WHOLE_LIST)).items;
  t.equal(credential?.archivedAt, archived.archivedAt, 'credentials are archived with it');
  await t.rejects(vaults.update(vault.id, { displayName: 'x' }), { code: 'archived' });
  await t.rejects(credentials.create(newCredential(vault.id)), { code: 'archived' });
  await vaults.delete(vault.id);
  await t.rejects(vaults.get(vault.id), { code: 'not_found', status: 404 });
  await t.rejects(vaults.delete(vault.id), { code: 'not_found' });
  await t.rejects(credentials.list(vault.id, WHOLE_LIST), { code: 'not_found' });
});

test('a credential keeps its placeholder and counts its versions', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const made = await credentials.create(newCredential(vault.id, { placeholderPrefix: 'ntn_', displayName: 'Notion' }));
  t.match(made.placeholder, /^ntn_kvph_[0-9A-Za-z]{32}$/);
  t.match(made, { secretVersion: 1, rotatedAt: null, lastUsedAt: null, displayName: 'Notion' });
  t.strictSame(await credentials.get(vault.id, made.id), made);
  clock.advance(1000);
  const rotated = await credentials.update(vault.id, made.id, { secretValue: Secret.fromText('another value here') });
  t.match(rotated, { placeholder: made.placeholder, secretVersion: 2, rotatedAt: clock.now() });
  const patched = await credentials.update(vault.id, made.id, {
    displayName: null,
    metadata: { a: 'b' },
    networking: { type: 'unrestricted' },
    injectionLocation: { body: true },
  });
  t.match(patched, { displayName: null, secretVersion: 2, injectionLocation: { header: true, body: true } });
  t.strictSame(patched.networking, { type: 'unrestricted' });
  await t.rejects(credentials.update(vault.id, made.id, { injectionLocation: { header: false, body: false } }), {
    code: 'invalid_field',
    param: 'auth.injection_location',
  });
  const other = await vaults.create({ displayName: 'other', metadata: {} });
  await t.rejects(credentials.get(other.id, made.id), { code: 'not_found', message: /credential/ });
  await t.rejects(credentials.get('vlt_none', made.id), { code: 'not_found', message: /vault/ });
  await t.rejects(credentials.create(newCredential('vlt_none')), { code: 'not_found' });
  const archived = await credentials.archive(vault.id, made.id);
  t.equal(archived.archivedAt, clock.now());
  clock.advance(1);
  t.strictSame(await credentials.archive(vault.id, made.id), archived);
  await t.rejects(credentials.update(vault.id, made.id, { displayName: 'x' }), { code: 'archived' });
  await credentials.delete(vault.id, made.id);
  await t.rejects(credentials.delete(vault.id, made.id), { code: 'not_found' });
});

test('a name is taken only while its credential is active, and a vault holds twenty', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const first = await credentials.create(newCredential(vault.id, { secretName: 'KEY_0' }));
  await t.rejects(credentials.create(newCredential(vault.id, { secretName: 'KEY_0' })), {
    code: 'secret_name_taken',
    status: 409,
    param: 'auth.secret_name',
  });
  for (let n = 1; n < 20; n += 1) await credentials.create(newCredential(vault.id, { secretName: `KEY_${n}` }));
  await t.rejects(credentials.create(newCredential(vault.id, { secretName: 'KEY_20' })), { code: 'vault_full' });
  await credentials.archive(vault.id, first.id);
  await credentials.create(newCredential(vault.id, { secretName: 'KEY_0' }));
});

test('a value with control characters never gets into headers', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const value = () => Secret.fromText('two\nlines of a value');
  const code = 'secret_value_not_header_safe';
  await t.rejects(credentials.create(newCredential(vault.id, { secretValue: value() })), { code });
  const bodyOnly = { header: false, body: true };
  const made = await credentials.create(
    newCredential(vault.id, { secretValue: value(), injectionLocation: bodyOnly, secretName: 'PEM' }),
  );
  await t.rejects(credentials.update(vault.id, made.id, { injectionLocation: { header: true } }), { code });
  const safe = await credentials.create(newCredential(vault.id));
  await t.rejects(credentials.update(vault.id, safe.id, { secretValue: value() }), { code });
  t.strictSame(await credentials.get(vault.id, safe.id), safe, 'a refused update keeps everything');
  const both = { secretValue: value(), injectionLocation: bodyOnly };
  t.equal((await credentials.update(vault.id, safe.id, both)).secretVersion, 2);
});

test('a row of an older system can be read and archived, not updated', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const made = await credentials.create(newCredential(vault.id));
  byHand.prepare('UPDATE credentials SET placeholder = NULL, inject_header = NULL WHERE id = ?').run(made.id);
  const row = await credentials.get(vault.id, made.id);
  t.match(row, { placeholder: null, injectionLocation: null });
  await t.rejects(credentials.update(vault.id, made.id, { displayName: 'x' }), { code: 'credential_not_mountable' });
  await t.rejects(sessions.create(newSession([vault.id]), SESSION_SETTINGS), {
    code: 'credential_not_mountable',
    message: `Credential ${made.id} (API_KEY) in vault ${vault.id} has no placeholder or injection location and cannot be mounted. Archive it and create it again.`,
  });
  t.ok((await credentials.archive(vault.id, made.id)).archivedAt);
});

test('a row that has lost its value is mounted, as one that can not be opened is', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const made = await credentials.create(newCredential(vault.id));
  byHand.prepare('UPDATE credentials SET sealed_value = NULL, sealing_key = NULL WHERE id = ?').run(made.id);
  const { session } = await sessions.create(newSession([vault.id]), SESSION_SETTINGS);
  t.match(session.mounts, [{ secretName: 'API_KEY', credentialId: made.id }]);
  t.strictSame(session.warnings, [], 'no length is known to warn of');
});

test('environments merge networking and are not deleted under an active session', async (t) => {
  const made = await environments.create({
    name: 'e',
    description: null,
    networking: { type: 'limited', allowedHosts: ['a.example'], allowPackageManagers: true },
    allowedPrivateCidrs: ['10.0.0.0/8'],
    metadata: {},
  });
  t.strictSame(await environments.get(made.id), made);
  const merged = await environments.update(made.id, { networking: { allowedHosts: ['b.example'] }, description: 'd' });
  t.match(merged, { description: 'd', networking: { allowedHosts: ['b.example'], allowPackageManagers: true } });
  t.match(await environments.update(made.id, { name: 'renamed' }), { ...merged, name: 'renamed' });
  const open = { networking: { type: 'unrestricted' as const }, allowedPrivateCidrs: [], name: 'f', description: null };
  t.match(await environments.update(made.id, open), { ...open, description: null });
  t.equal((await environments.list(WHOLE_LIST)).items[0]?.id, made.id);
  const expiresAt = clock.now() + 1000;
  const session = await sessions.create(newSession([], { environmentId: made.id, expiresAt }), SESSION_SETTINGS);
  await t.rejects(environments.delete(made.id), { code: 'environment_in_use', status: 409 });
  const archived = await environments.archive(made.id);
  t.strictSame(await environments.archive(made.id), archived);
  await t.rejects(environments.update(made.id, { name: 'x' }), { code: 'archived' });
  await t.rejects(sessions.create(newSession([], { environmentId: made.id }), SESSION_SETTINGS), {
    code: 'environment_archived',
    param: 'environment_id',
  });
  await t.rejects(environments.delete(made.id), { code: 'environment_in_use' }, 'an archived one is still in use');
  clock.advance(1000);
  await environments.delete(made.id);
  await t.rejects(environments.delete(made.id), { code: 'not_found' });
  t.equal((await sessions.get(session.session.id)).environmentId, made.id, 'an expired session keeps its record');
  await t.rejects(sessions.create(newSession([], { environmentId: 'env_x' }), SESSION_SETTINGS), {
    code: 'not_found',
    param: 'environment_id',
  });
});

test('sessions mount in the order of their vaults, or are not stored', async (t) => {
  const [one, two] = await Promise.all(['1', '2'].map((displayName) => vaults.create({ displayName, metadata: {} })));
  if (one === undefined || two === undefined) throw new Error('no vaults');
  const first = await credentials.create(newCredential(one.id));
  const second = await credentials.create(newCredential(two.id, { networking: { type: 'unrestricted' } }));
  const made = await sessions.create(newSession([two.id, one.id], { title: 'T', denialLimit: 3 }), SESSION_SETTINGS);
  t.match(made.session, { title: 'T', denialLimit: 3, vaultIds: [two.id, one.id] });
  const { placeholder } = second;
  t.strictSame(made.session.mounts, [{ secretName: 'API_KEY', placeholder, vaultId: two.id, credentialId: second.id }]);
  t.match(made.session.warnings, [/^credential_unrestricted/]);
  t.strictSame(await sessions.get(made.session.id), made.session);
  const reversed = await sessions.create(newSession([one.id, two.id]), SESSION_SETTINGS);
  t.equal(reversed.session.mounts[0]?.credentialId, first.id);
  const before = (await sessions.list(WHOLE_LIST)).items.length;
  const off = { ...SESSION_SETTINGS, interceptionOn: false };
  await t.rejects(sessions.create(newSession([one.id]), off), { code: 'mitm_disabled' });
  await t.rejects(sessions.create(newSession([one.id, 'vlt_none']), SESSION_SETTINGS), {
    code: 'not_found',
    param: 'vault_ids',
  });
  await vaults.archive(two.id);
  await t.rejects(sessions.create(newSession([two.id]), SESSION_SETTINGS), { code: 'vault_archived' });
  t.equal((await sessions.list(WHOLE_LIST)).items.length, before);
});

test('a session is patched, gets a new token, is suspended, resumed and archived', async (t) => {
  const { session, token } = await sessions.create(newSession([], { title: 'a' }), SESSION_SETTINGS);
  t.match(token, /^[A-Za-z0-9_-]{43}$/);
  const hash = (text: string) => createHash('sha256').update(text).digest();
  const readHash = () => byHand.prepare('SELECT token_hash FROM sessions WHERE id = ?').pluck().get(session.id);
  t.strictSame(readHash(), hash(token));
  t.match(await sessions.update(session.id, { metadata: { k: 'v' } }), { title: 'a', expiresAt: null });
  const expiresAt = clock.now() + 60_000;
  t.match(await sessions.update(session.id, { title: null, expiresAt }), { title: null, expiresAt });
  const renewed = await sessions.rotateToken(session.id);
  t.strictSame(readHash(), hash(renewed.token));
  await t.rejects(sessions.resume(session.id), { code: 'session_not_suspended' });
  const suspended = await sessions.suspend(session.id, 'too many denials');
  t.equal(suspended.suspendedAt, clock.now());
  clock.advance(1);
  t.strictSame(await sessions.suspend(session.id, 'again'), suspended);
  t.equal((await sessions.resume(session.id)).suspendedAt, null);
  const archived = await sessions.archive(session.id);
  t.strictSame(await sessions.archive(session.id), archived);
  await t.rejects(sessions.rotateToken(session.id), { code: 'archived' });
  await t.rejects(sessions.update('sesn_none', {}), { code: 'not_found' });
});

test('admin tokens are found by their text until they expire, and their use is noted', async (t) => {
  const made = await adminTokens.create({ name: 'ci', scope: 'broker', expiresAt: clock.now() + 100_000 });
  t.match(made.token, /^kvad_[A-Za-z0-9_-]{43}$/);
  t.match(await adminTokens.find(made.token), { id: made.adminToken.id, scope: 'broker', lastUsedAt: clock.now() });
  const noted = clock.now();
  clock.advance(59_000);
  t.equal((await adminTokens.find(made.token))?.lastUsedAt, noted, 'noted once a minute');
  clock.advance(1000);
  t.equal((await adminTokens.find(made.token))?.lastUsedAt, clock.now());
  t.equal((await adminTokens.list(WHOLE_LIST)).items[0]?.lastUsedAt, clock.now());
  t.equal(await adminTokens.find('kvad_wrong'), null);
  clock.advance(40_000);
  t.equal(await adminTokens.find(made.token), null, 'expired');
  await adminTokens.delete(made.adminToken.id);
  await t.rejects(adminTokens.delete(made.adminToken.id), { code: 'not_found' });
  const endless = await adminTokens.create({ name: 'x', scope: 'admin', expiresAt: null });
  t.match(await adminTokens.find(endless.token), { name: 'x' });
});

test('the emergency stop is kept, and a lost row stops', async (t) => {
  t.strictSame(await emergencyStop.get(), { active: false, reason: null });
  t.strictSame(await emergencyStop.set({ active: true, reason: 'leak' }), { active: true, reason: 'leak' });
  await emergencyStop.set({ active: false, reason: null });
  byHand.exec('DELETE FROM emergency_stop');
  t.strictSame(await emergencyStop.get(), { active: true, reason: null });
  t.strictSame(await emergencyStop.set({ active: false, reason: null }), { active: false, reason: null });
});

test('settings are plain values', async (t) => {
  const { settings } = opened.store;
  t.equal(await settings.get('a'), null);
  await settings.put('a', '1');
  await settings.put('a', '2');
  t.equal(await settings.get('a'), '2');
  await settings.delete('a');
  t.equal(await settings.get('a'), null);
});

test('columns that another hand damaged are shown as what is enforced', async (t) => {
  const vault = await vaults.create({ displayName: 'v', metadata: { a: 'b' } });
  const credential = await credentials.create(newCredential(vault.id));
  const environment = await environments.create({
    name: 'e',
    description: null,
    networking: limited([]),
    allowedPrivateCidrs: [],
    metadata: {},
  });
  const { session } = await sessions.create(newSession([vault.id]), SESSION_SETTINGS);
  for (const text of ['{', '[]', '7', '{"type":"limited"}', '{"type":"limited","allowedHosts":[7]}', 'null']) {
    byHand.prepare('UPDATE vaults SET metadata = ? WHERE id = ?').run(text, vault.id);
    byHand.prepare('UPDATE credentials SET networking = ? WHERE id = ?').run(text, credential.id);
    byHand
      .prepare('UPDATE environments SET networking = ?, allowed_private_cidrs = ? WHERE id = ?')
      .run(text, text, environment.id);
    byHand
      .prepare('UPDATE sessions SET mounts = ?, warnings = ?, vault_ids = ? WHERE id = ?')
      .run(text, text, text, session.id);
    t.equal(Object.keys((await vaults.get(vault.id)).metadata).includes('allowedHosts'), false);
    t.strictSame((await credentials.get(vault.id, credential.id)).networking, { type: 'limited', allowedHosts: [] });
    t.match(await environments.get(environment.id), { networking: limited([]), allowedPrivateCidrs: [] });
    t.match(await sessions.get(session.id), { mounts: [], warnings: [], vaultIds: [] });
  }
  byHand.prepare('UPDATE sessions SET mounts = ? WHERE id = ?').run('[{"secretName":1},null]', session.id);
  t.strictSame((await sessions.get(session.id)).mounts, []);
  const made = await sessions.create(newSession([], { environmentId: environment.id }), SESSION_SETTINGS);
  t.strictSame(made.session.mounts, [], 'an environment that denies all can be used');
});

test('a page that no list has given is refused', async (t) => {
  for (let n = 0; n < 3; n += 1)
    await environments.create({
      name: 'e',
      description: null,
      networking: limited([]),
      allowedPrivateCidrs: [],
      metadata: {},
    });
  const { next } = await environments.list({ limit: 1, after: null, includeArchived: true });
  t.type(next, 'string');
  for (const after of ['', 'x', 'dmF1bHRzOjA', `${next}=`, `${next} `]) {
    await t.rejects(environments.list({ limit: 1, after, includeArchived: true }), {
      code: 'invalid_page',
      param: 'page',
    });
  }
  await t.rejects(
    vaults.list({ limit: 1, after: next, includeArchived: true }),
    { code: 'invalid_page' },
    'of another list',
  );
});

async function collect(
  list: (query: PageQuery) => Promise<Page<{ id: string }>>,
  between: (page: number) => Promise<void>,
) {
  const ids: string[] = [];
  let after: string | null = null;
  let page = 0;
  do {
    const result: Page<{ id: string }> = await list({ limit: 3, after, includeArchived: false });
    ids.push(...result.items.map(({ id }) => id));
    after = result.next;
    page += 1;
    if (page < 20) await between(page);
  } while (after !== null);
  return ids;
}

test('pages neither skip nor repeat while rows are added, archived and deleted', async (t) => {
  const actions = fc.array(fc.record({ kind: fc.constantFrom('add', 'archive', 'delete'), at: fc.nat(50) }), {
    maxLength: 6,
  });
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 14 }), fc.array(actions, { maxLength: 6 }), async (count, script) => {
      const vault = await vaults.create({ displayName: 'pages', metadata: {} });
      const made: string[] = [];
      const add = async () => {
        if (made.length >= 19) return;
        made.push((await credentials.create(newCredential(vault.id, { secretName: `K${made.length}` }))).id);
      };
      for (let n = 0; n < count; n += 1) await add();
      const original = [...made];
      const gone = new Set<string>();
      const listed = await collect(
        (query) => credentials.list(vault.id, query),
        async (page) => {
          for (const { kind, at } of script[page - 1] ?? []) {
            const id = made[at % Math.max(made.length, 1)];
            if (kind === 'add' || id === undefined) await add();
            else if (!gone.has(id)) {
              gone.add(id);
              await (kind === 'archive' ? credentials.archive(vault.id, id) : credentials.delete(vault.id, id));
            }
          }
        },
      );
      const kept = original.filter((id) => !gone.has(id));
      t.strictSame([...new Set(listed)], listed, 'none twice');
      t.strictSame(
        kept.filter((id) => !listed.includes(id)),
        [],
        'none that stayed is missing',
      );
      t.strictSame(
        listed,
        [...original].reverse().filter((id) => listed.includes(id)),
        'newest first',
      );
    }),
    { numRuns: 12 },
  );
});

test('the check answers, and says so when the key no longer fits', async (t) => {
  await opened.store.control.check();
  byHand.exec('UPDATE canary SET sealed_value = zeroblob(200)');
  await t.rejects(opened.store.control.check(), { name: 'StartError', message: /the test does not fit/ });
});

test('a database that fails is store_unavailable', async (t) => {
  byHand.exec('ALTER TABLE settings RENAME TO gone');
  await t.rejects(opened.store.settings.get('a'), { code: 'store_unavailable', status: 503 });
  await t.rejects(opened.store.settings.put('a', 'b'), { code: 'store_unavailable' });
});
