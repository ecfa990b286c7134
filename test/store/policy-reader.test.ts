// The data plane's reads: always the database as it is now, the same object while nothing changed, and deny when in doubt.
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { t, test } from 'tap';
import { POLICY_CACHE_SESSIONS_MAX } from '../../model/limits.ts';
import { Secret } from '../../model/secret.ts';
import { openConnection } from '../../store/database.ts';
import { openPolicyReader } from '../../store/policy-reader.ts';
import { newCredential, newSession, openTestStore, SESSION_SETTINGS } from '../support/store.ts';

const opened = await openTestStore(t);
const { vaults, credentials, environments, sessions, emergencyStop } = opened.store.control;
const { clock } = opened;
const policies = opened.store.openPolicies();
t.teardown(() => policies.close());
const byHand = openConnection(join(opened.directory, 'keyveil.db'), { readonly: false });
t.teardown(() => byHand.close());

async function makeSession(overrides = {}) {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const credential = await credentials.create(newCredential(vault.id));
  const { session, token } = await sessions.create(newSession([vault.id], overrides), SESSION_SETTINGS);
  return { vault, credential, session, token };
}

async function readPolicy(id: string) {
  const policy = await policies.read(id);
  if (policy === null) throw new Error('no policy');
  return policy;
}

test('a policy holds what the data plane needs', async (t) => {
  const { vault, credential, session, token } = await makeSession({ denialLimit: 5 });
  const policy = await readPolicy(session.id);
  const tokenHash = createHash('sha256').update(token).digest();
  t.match(policy, { sessionId: session.id, status: 'active', expiresAt: null, tokenHash, environmentId: null });
  t.match(policy, { denialLimit: 5, activeCredentialCount: 1, emergencyStop: { active: false, reason: null } });
  const [only] = policy.credentials;
  t.match(only, {
    id: credential.id,
    vaultId: vault.id,
    placeholder: credential.placeholder,
    header: true,
    body: false,
  });
  t.equal(only?.coverage.covers('api.example.com'), true);
  t.equal(only?.coverage.covers('evil.example'), false);
  t.equal(only?.open().reveal().toString(), 'a value of some length');
  t.equal(only?.open(), only?.open(), 'opened once');
  t.equal(await policies.findSessionId(tokenHash), session.id);
  t.equal(await policies.findSessionId(Buffer.alloc(32)), null);
  t.equal(await policies.read('sesn_none'), null);
});

test('reads give the same object until something of the session changes', async (t) => {
  const { vault, credential, session } = await makeSession();
  const policy = await readPolicy(session.id);
  t.equal(await readPolicy(session.id), policy);
  const version = policies.version();
  t.equal(policies.version(), version);
  await vaults.create({ displayName: 'unrelated', metadata: {} });
  t.not(policies.version(), version);
  t.equal(await readPolicy(session.id), policy, 'a commit elsewhere');
  const second = await credentials.create(newCredential(vault.id, { secretName: 'SECOND' }));
  const wider = await readPolicy(session.id);
  t.not(wider, policy);
  t.equal(
    wider.credentials.find(({ id }) => id === credential.id),
    policy.credentials[0],
    'what did not change is kept',
  );
  const before = policy.credentials[0]?.open();
  await credentials.update(vault.id, credential.id, { secretValue: Secret.fromText('rotated value of it') });
  const rotated = (await readPolicy(session.id)).credentials.find(({ id }) => id === credential.id);
  t.equal(rotated?.open().reveal().toString(), 'rotated value of it');
  t.equal(rotated?.secretVersion, 2);
  t.equal(before?.reveal().toString(), 'a value of some length', 'a request in flight keeps what it opened');
  await credentials.archive(vault.id, second.id);
  const narrower = await readPolicy(session.id);
  t.strictSame(narrower.archived, [{ credentialId: second.id, secretName: 'SECOND', placeholder: second.placeholder }]);
  t.equal(narrower.credentials.length, 1);
  await credentials.update(vault.id, credential.id, {
    networking: { type: 'unrestricted' },
    injectionLocation: { body: true },
  });
  const open = (await readPolicy(session.id)).credentials[0];
  t.match(open, { header: true, body: true });
  t.equal(open?.coverage.covers('any.example'), true);
});

test('states change by commit and by the clock alone', async (t) => {
  const { session } = await makeSession({ expiresAt: clock.now() + 1000 });
  const active = await readPolicy(session.id);
  t.equal(active.status, 'active');
  await sessions.suspend(session.id, 'x');
  t.equal((await readPolicy(session.id)).status, 'suspended');
  await sessions.resume(session.id);
  clock.advance(999);
  t.equal((await readPolicy(session.id)).status, 'active');
  clock.advance(1);
  const expired = await readPolicy(session.id);
  t.equal(expired.status, 'expired');
  t.equal(await readPolicy(session.id), expired);
  clock.advance(-1000);
  t.equal((await readPolicy(session.id)).status, 'active', 'a clock set back');
  await sessions.archive(session.id);
  t.equal((await readPolicy(session.id)).status, 'archived');
  await emergencyStop.set({ active: true, reason: 'leak' });
  t.strictSame((await readPolicy(session.id)).emergencyStop, { active: true, reason: 'leak' });
  await emergencyStop.set({ active: false, reason: null });
  byHand.prepare('DELETE FROM sessions WHERE id = ?').run(session.id);
  t.equal(await policies.read(session.id), null);
});

test('an environment decides, and one that can not be read denies everything', async (t) => {
  const environment = await environments.create({
    name: 'e',
    description: null,
    networking: { type: 'limited', allowedHosts: ['a.example'], allowPackageManagers: false },
    allowedPrivateCidrs: ['10.0.0.0/8'],
    metadata: {},
  });
  const { session } = await makeSession({ environmentId: environment.id });
  const policy = await readPolicy(session.id);
  t.equal(policy.admission.covers('a.example'), true);
  t.equal(policy.admission.covers('b.example'), false);
  t.equal(policy.allowedPrivateCidrs.length, 1);
  await environments.archive(environment.id);
  t.equal((await readPolicy(session.id)).admission.covers('a.example'), true, 'an archived one goes on');
  const damage = [
    "networking = '{'",
    `networking = '{"type":"limited","allowedHosts":["a.example"]}'`,
    `networking = '{"type":"other"}'`,
    "allowed_private_cidrs = '{'",
    `allowed_private_cidrs = '["10.0.0.0/8","nonsense"]'`,
  ];
  for (const edit of damage) {
    byHand.exec('SAVEPOINT before');
    byHand.exec('RELEASE before');
    const saved = byHand
      .prepare('SELECT networking, allowed_private_cidrs FROM environments WHERE id = ?')
      .get(environment.id);
    byHand.exec(`UPDATE environments SET ${edit} WHERE id = '${environment.id}'`);
    const denied = await readPolicy(session.id);
    t.equal(denied.admission.covers('a.example'), false, edit);
    t.strictSame(denied.allowedPrivateCidrs, []);
    byHand
      .prepare(
        'UPDATE environments SET networking = @networking, allowed_private_cidrs = @allowed_private_cidrs WHERE id = @id',
      )
      .run({ ...(saved as object), id: environment.id });
  }
  t.equal((await readPolicy(session.id)).admission.covers('a.example'), true);
  byHand.exec(`DELETE FROM environments WHERE id = '${environment.id}'`);
  t.equal((await readPolicy(session.id)).admission.covers('a.example'), false, 'one that is gone');
  const narrow = openPolicyReader({
    path: join(opened.directory, 'keyveil.db'),
    keys: opened.keys,
    clock,
    defaultNetworking: { type: 'limited', allowedHosts: ['d.example'], allowPackageManagers: false },
  });
  t.teardown(() => narrow.close());
  const byDefault = await makeSession();
  t.equal((await narrow.read(byDefault.session.id))?.admission.covers('d.example'), true);
  t.equal((await narrow.read(byDefault.session.id))?.admission.covers('e.example'), false);
});

test('a row that can not be mounted counts, and a damaged session is refused', async (t) => {
  const { credential, session } = await makeSession();
  byHand.exec(`UPDATE credentials SET inject_body = NULL WHERE id = '${credential.id}'`);
  const policy = await readPolicy(session.id);
  t.equal(policy.credentials.length, 0);
  t.equal(policy.activeCredentialCount, 1);
  byHand.exec(`UPDATE sessions SET vault_ids = '{' WHERE id = '${session.id}'`);
  await t.rejects(async () => policies.read(session.id), { code: 'store_unavailable', status: 503 });
  byHand.exec('ALTER TABLE sessions RENAME TO gone');
  const fresh = openPolicyReader;
  t.throws(() =>
    fresh({
      path: join(opened.directory, 'keyveil.db'),
      keys: opened.keys,
      clock,
      defaultNetworking: { type: 'unrestricted' },
    }),
  );
  await t.rejects(async () => policies.read(session.id), { code: 'store_unavailable' });
  await t.rejects(policies.findSessionId(Buffer.alloc(32)), { code: 'store_unavailable' });
  byHand.exec('ALTER TABLE gone RENAME TO sessions');
});

test('opened values are dropped when unused, replaced or gone', async (t) => {
  const { vault, credential, session } = await makeSession();
  const first = (await readPolicy(session.id)).credentials[0]?.open();
  const open = async () => (await readPolicy(session.id)).credentials[0]?.open();
  policies.sweep();
  t.equal(await open(), first, 'in use');
  clock.advance(59_999);
  policies.sweep();
  t.equal(await open(), first);
  clock.advance(60_000);
  policies.sweep();
  const second = await open();
  t.not(second, first, 'unused for a minute');
  clock.advance(-60_000);
  policies.sweep();
  const third = await open();
  t.not(third, second, 'a clock set back keeps nothing for longer');
  await vaults.create({ displayName: 'unrelated', metadata: {} });
  policies.sweep();
  t.equal(await open(), third, 'a commit elsewhere drops nothing');
  await credentials.update(vault.id, credential.id, { networking: { type: 'unrestricted' } });
  policies.sweep();
  t.not(await open(), third, 'sealed anew');
  const reader = opened.store.openPolicies();
  const mine = (await reader.read(session.id))?.credentials[0]?.open();
  await reader.close();
  t.strictSame(mine?.reveal(), Buffer.alloc(22), 'closing overwrites');
});

test('a commit of another connection is seen by the very next read, ten thousand times', async (t) => {
  const { session, credential } = await makeSession();
  byHand.pragma('synchronous = OFF');
  const update = byHand.prepare('UPDATE sessions SET denial_limit = ? WHERE id = ?');
  let stale = 0;
  for (let n = 0; n < 10_000; n += 1) {
    update.run(n, session.id);
    if ((await readPolicy(session.id)).denialLimit !== n) stale += 1;
  }
  t.equal(stale, 0);
  byHand.pragma('synchronous = FULL');
  t.equal((await readPolicy(session.id)).credentials[0]?.id, credential.id);
});

test('the cache is bounded and forgets what was used longest ago', async (t) => {
  const { session } = await makeSession();
  const kept = await readPolicy(session.id);
  byHand.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${POLICY_CACHE_SESSIONS_MAX})
    INSERT INTO sessions (id, token_hash, vault_ids, metadata, ca_directory, mounts, warnings, created_at, updated_at)
    SELECT 'many_' || i, randomblob(32), '[]', '{}', '/', '[]', '[]', 1, 1 FROM n`);
  const other = await readPolicy('many_1');
  for (let n = 2; n <= POLICY_CACHE_SESSIONS_MAX; n += 1) {
    await readPolicy(`many_${n}`);
    if (n % 1000 === 0) t.equal(await readPolicy(session.id), kept);
  }
  t.not(await readPolicy('many_1'), other, 'the oldest was forgotten');
  t.equal(await readPolicy(session.id), kept);
});

test('reads made together share one look at the database, and every later one looks again', async (t) => {
  const { session } = await makeSession();
  const expire = (at: number) => byHand.prepare('UPDATE sessions SET expires_at = ? WHERE id = ?').run(at, session.id);
  const read = () => (policies.read(session.id) as { expiresAt: number | null } | null)?.expiresAt;
  const seen: unknown[] = [];
  policies.together(() => {
    expire(clock.now() + 1000);
    seen.push(read());
    expire(clock.now() + 2000);
    seen.push(read());
  });
  t.strictSame(seen, [clock.now() + 1000, clock.now() + 1000], 'the look is taken by the first read');
  t.equal(read(), clock.now() + 2000);
  policies.together(() => seen.push(read()));
  t.equal(seen.at(-1), clock.now() + 2000);
  t.throws(() => {
    policies.together(() => {
      read();
      throw new Error('work failed');
    });
  }, /work failed/);
  expire(clock.now() + 3000);
  t.equal(read(), clock.now() + 3000, 'also after a work that failed');
});
