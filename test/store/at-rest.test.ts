// What lies on the disk: sealed, bound to its place, purged when it is replaced, and readable under the right key alone.
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'tap';
import { Secret } from '../../model/secret.ts';
import { openConnection, type Database } from '../../store/database.ts';
import { createKeyRing } from '../../store/key-ring.ts';
import { openStore } from '../../store/open-store.ts';
import { createPurger } from '../../store/purge.ts';
import { bindCredential, encodeFields, rewrap, seal, unseal } from '../../store/seal.ts';
import {
  createMemoryLogger,
  createRandomKeyRing,
  newCredential,
  newSession,
  openTestStore,
  SESSION_SETTINGS,
} from '../support/store.ts';

function connect(t: { teardown(work: () => unknown): void }, directory: string): Database {
  const database = openConnection(join(directory, 'keyveil.db'), { readonly: false });
  t.teardown(() => database.close());
  return database;
}

test('a sealed value opens with its key and its place alone', async (t) => {
  const keys = createRandomKeyRing();
  const place = encodeFields(['a', 'bc']);
  const sealed = seal(keys, Secret.fromText('the value'), place);
  t.equal(unseal(keys, sealed, place).reveal().toString(), 'the value');
  t.notSame(encodeFields(['ab', 'c']), place, 'fields are told apart');
  t.throws(() => unseal(keys, sealed, encodeFields(['ab', 'c'])), { name: 'UnsealError' });
  t.throws(() => unseal(createRandomKeyRing(), sealed, place), { name: 'UnsealError', message: /key/ });
  for (let at = 0; at < sealed.bytes.length; at += 1) {
    const bytes = Buffer.from(sealed.bytes);
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    t.throws(() => unseal(keys, { ...sealed, bytes }, place), { name: 'UnsealError' });
    t.throws(() => unseal(keys, { ...sealed, bytes: sealed.bytes.subarray(0, at) }, place), { name: 'UnsealError' });
  }
  t.notSame(seal(keys, Secret.fromText('the value'), place).bytes, sealed.bytes);
});

test('no placeholder and an empty one are told apart', async (t) => {
  const row = {
    vaultId: 'v',
    credentialId: 'c',
    secretVersion: 1,
    secretName: 'N',
    networking: '{}',
    header: 1,
    body: 0,
  };
  const bound = [null, '', '0'].map((placeholder) => bindCredential({ ...row, placeholder }).toString('hex'));
  t.equal(new Set(bound).size, 3);
});

test('rewrapping changes the key and keeps the value', async (t) => {
  const [before, after] = [randomBytes(32), randomBytes(32)];
  const copy = (bytes: Buffer) => Secret.fromBytes(Buffer.from(bytes));
  const place = encodeFields(['x']);
  const sealed = seal(createKeyRing(copy(before)), Secret.fromText('v'), place);
  const renewed = rewrap(createKeyRing(copy(after), [copy(before)]), sealed, place);
  t.equal(
    unseal(createKeyRing(copy(after)), renewed, place)
      .reveal()
      .toString(),
    'v',
  );
  t.throws(() => unseal(createKeyRing(copy(before)), renewed, place), { name: 'UnsealError' });
  t.match(renewed.keyId, /^[0-9a-f]{16}$/);
  t.throws(() => createKeyRing(Secret.fromBytes(randomBytes(31))), { name: 'StartError', message: /32 bytes, not 31/ });
});

test('a row that was moved or edited outside does not open', async (t) => {
  const { store, directory } = await openTestStore(t);
  const { vaults, credentials, sessions } = store.control;
  const byHand = connect(t, directory);
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const other = await vaults.create({ displayName: 'o', metadata: {} });
  const made = await credentials.create(newCredential(vault.id));
  const twin = await credentials.create(newCredential(vault.id, { secretName: 'TWIN' }));
  const { session } = await sessions.create(newSession([vault.id, other.id]), SESSION_SETTINGS);
  const policies = store.openPolicies();
  t.teardown(() => policies.close());
  const open = async (id = made.id) => {
    const policy = await policies.read(session.id);
    return policy?.credentials
      .find((credential) => credential.id === id)
      ?.open()
      .reveal()
      .toString();
  };
  t.equal(await open(), 'a value of some length');
  const saved = byHand.prepare('SELECT * FROM credentials WHERE id = ?').get(made.id) as Record<string, unknown>;
  const restore = byHand.prepare(
    `UPDATE credentials SET vault_id = @vault_id, secret_name = @secret_name, placeholder = @placeholder,
       networking = @networking, inject_header = @inject_header, inject_body = @inject_body,
       secret_version = @secret_version, sealing_key = @sealing_key, sealed_value = @sealed_value WHERE id = @id`,
  );
  const edits = [
    `vault_id = '${other.id}'`,
    "secret_name = 'OTHER'",
    "placeholder = 'kvph_00000000000000000000000000000000'",
    `networking = '{"type":"unrestricted"}'`,
    `networking = '{"type":"limited","allowedHosts":["evil.example"]}'`,
    "networking = '{'",
    'inject_header = 0',
    'inject_body = 1',
    'secret_version = 2',
    `sealed_value = (SELECT sealed_value FROM credentials WHERE id = '${twin.id}')`,
    'sealed_value = zeroblob(200)',
    'sealed_value = NULL',
    'sealing_key = NULL',
    "sealing_key = 'unknown'",
  ];
  for (const edit of edits) {
    byHand.exec(`UPDATE credentials SET ${edit} WHERE id = '${made.id}'`);
    await t.rejects(open(), { code: 'credential_unreadable', status: 502 }, edit);
    t.equal(await open(twin.id), 'a value of some length', 'another credential still opens');
    restore.run(saved);
    t.equal(await open(), 'a value of some length', 'as it was');
  }
  byHand.exec(`UPDATE credentials SET networking = '{' WHERE id = '${made.id}'`);
  const policy = await policies.read(session.id);
  t.equal(
    policy?.credentials.find(({ id }) => id === made.id)?.coverage.covers('any.example'),
    true,
    'refused anywhere',
  );
  const update = credentials.update(vault.id, made.id, { networking: { type: 'unrestricted' } });
  await t.rejects(update, { code: 'credential_unreadable' }, 'an update that must seal again says so');
  const rotated = await credentials.update(vault.id, made.id, { secretValue: Secret.fromText('rotation repairs it') });
  t.equal(rotated.secretVersion, 2);
  t.equal(await open(), 'rotation repairs it');
});

/** The bytes of every file of a directory that hold a needle, by name. */
function filesWith(directory: string, needle: Buffer): string[] {
  return readdirSync(directory).filter((name) => readFileSync(join(directory, name)).includes(needle));
}

test('replaced and archived values leave no byte in the files', async (t) => {
  const { store, directory } = await openTestStore(t);
  const { vaults, credentials } = store.control;
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const text = 'canary value that must never be found';
  const value = () => Secret.fromText(text);
  const sealedOf = (id: string): Buffer => {
    const database = openConnection(join(directory, 'keyveil.db'), { readonly: true });
    const sealed = database
      .prepare<[string], Buffer>('SELECT sealed_value FROM credentials WHERE id = ?')
      .pluck()
      .get(id);
    database.close();
    return sealed ?? Buffer.alloc(0);
  };
  const wrappedKey = (sealed: Buffer) => sealed.subarray(13, 45);
  const ciphertext = (sealed: Buffer) => sealed.subarray(-24);
  const requireGone = (sealed: Buffer, what: string) => {
    t.ok(sealed.length > 100);
    for (const part of [wrappedKey(sealed), ciphertext(sealed)]) t.strictSame(filesWith(directory, part), [], what);
  };
  const make = (secretName: string) =>
    credentials.create(newCredential(vault.id, { secretName, secretValue: value() }));
  const [rotated, renetworked, archived, deleted, cascaded] = [
    await make('A'),
    await make('B'),
    await make('C'),
    await make('D'),
    await make('E'),
  ];
  const kept = sealedOf(rotated.id);
  t.ok(filesWith(directory, ciphertext(kept)).length > 0, 'the search finds what is there');
  const before = [rotated, renetworked, archived, deleted, cascaded].map(({ id }) => sealedOf(id));
  await credentials.update(vault.id, rotated.id, { secretValue: Secret.fromText('a new value of the credential') });
  requireGone(before[0] as Buffer, 'rotation');
  await credentials.update(vault.id, renetworked.id, { networking: { type: 'unrestricted' } });
  requireGone(before[1] as Buffer, 'change of networking');
  await credentials.archive(vault.id, archived.id);
  requireGone(before[2] as Buffer, 'archive');
  await credentials.delete(vault.id, deleted.id);
  requireGone(before[3] as Buffer, 'delete');
  const last = [rotated, renetworked].map(({ id }) => sealedOf(id));
  await vaults.archive(vault.id);
  requireGone(before[4] as Buffer, 'archive of the vault');
  for (const sealed of last) requireGone(sealed, 'archive of the vault');
  t.strictSame(filesWith(directory, Buffer.from(text)), [], 'and the value itself was never there');
});

test('a purge waits for readers without holding up anybody', async (t) => {
  const { directory } = await openTestStore(t);
  const writer = connect(t, directory);
  const reader = connect(t, directory);
  const { logger, lines } = createMemoryLogger();
  const logBytes = () => readFileSync(join(directory, 'keyveil.db-wal')).length;
  const purger = createPurger(writer, logger);
  writer.exec("INSERT INTO settings VALUES ('a', 'b')");
  reader.exec('BEGIN');
  reader.prepare('SELECT * FROM settings').all();
  purger.purge();
  t.not(logBytes(), 0, 'the reader still needs the log');
  reader.exec('COMMIT');
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      if (logBytes() > 0) return;
      clearInterval(timer);
      resolve();
    }, 20);
  });
  t.pass('tried again by itself');
  writer.exec('BEGIN IMMEDIATE');
  purger.purge();
  purger.purge();
  writer.exec('COMMIT');
  t.match(lines, [{ level: 'warn', message: /trying again/ }, { level: 'warn' }]);
  purger.close();
  purger.close();
});

test('sealed items are bound to their names', async (t) => {
  const { store, directory } = await openTestStore(t);
  const items = store.sealedItems;
  t.equal(await items.get('ca/root'), null);
  await items.put('ca/root', Secret.fromText('one'));
  await items.put('ca/root', Secret.fromText('two'));
  await items.put('other', Secret.fromText('three'));
  t.equal((await items.get('ca/root'))?.reveal().toString(), 'two');
  t.strictSame(await items.list('ca/'), ['ca/root']);
  t.strictSame(await items.list(''), ['ca/root', 'other']);
  connect(t, directory).exec("UPDATE sealed_items SET name = 'ca/moved' WHERE name = 'other'");
  await t.rejects(items.get('ca/moved'), { name: 'StartError', message: /ca\/moved .* can't be opened/ });
  await items.delete('ca/root');
  await items.delete('ca/root');
  t.equal(await items.get('ca/root'), null);
});

test('another master key, or a lost canary, stops the start and changes nothing', async (t) => {
  const { store, directory, options, keys } = await openTestStore(t);
  await store.close();
  const before = readFileSync(join(directory, 'keyveil.db'));
  const wrong = { ...options, keys: createRandomKeyRing(), keySource: 'KEYVEIL_MASTER_KEY' };
  const message = new RegExp(
    `KEYVEIL_MASTER_KEY does not fit .*keyveil.db.*${keys.writing.id}.*${wrong.keys.writing.id}`,
  );
  await t.rejects(openStore(wrong), { name: 'StartError', message });
  t.strictSame(readFileSync(join(directory, 'keyveil.db')), before);
  const again = await openStore(options);
  await again.sealedItems.put('x', Secret.fromText('y'));
  await again.close();
  const byHand = connect(t, directory);
  byHand.exec('DELETE FROM canary');
  await t.rejects(openStore(options), { name: 'StartError', message: /lost its canary/ });
  byHand.exec('DELETE FROM sealed_items');
  await (await openStore(options)).close();
});

test('a fault that is none of the sealed value is passed on as it is', async (t) => {
  const { store, options, keys } = await openTestStore(t);
  const vault = await store.control.vaults.create({ displayName: 'v', metadata: {} });
  const { id } = await store.control.credentials.create(newCredential(vault.id));
  await store.sealedItems.put('ca', Secret.fromText('root'));
  let failsAfter = Infinity;
  const find = (keyId: string) => {
    failsAfter -= 1;
    if (failsAfter < 0) throw new Error('a fault');
    return keys.find(keyId);
  };
  const other = createRandomKeyRing();
  const broken = await openStore({ ...options, role: 'member', keys: { writing: other.writing, find } });
  t.teardown(() => broken.close());
  const { sealedItems, control } = broken;
  const message = 'a fault';
  failsAfter = 0;
  await t.rejects(control.check(), { message });
  await t.rejects(sealedItems.get('ca'), { message });
  await t.rejects(control.credentials.update(vault.id, id, { networking: { type: 'unrestricted' } }), { message });
  failsAfter = 1;
  await t.rejects(broken.rewrapAll(), { message });
});

test('a rotation of the master key that was cut off is taken up again', async (t) => {
  const [oldKey, newKey] = [randomBytes(32), randomBytes(32)];
  const copy = (bytes: Buffer) => Secret.fromBytes(Buffer.from(bytes));
  const { store, options, directory } = await openTestStore(t, { keys: createKeyRing(copy(oldKey)) });
  const made: { vaultId: string; id: string }[] = [];
  for (let v = 0; v < 3; v += 1) {
    const vault = await store.control.vaults.create({ displayName: 'v', metadata: {} });
    for (let n = 0; n < 20; n += 1) {
      made.push(await store.control.credentials.create(newCredential(vault.id, { secretName: `K${n}` })));
    }
  }
  await store.sealedItems.put('ca', Secret.fromText('root'));
  t.strictSame(await store.rewrapAll(), { rewrapped: 0, unreadable: [] }, 'nothing to do');
  await store.close();
  const byHand = connect(t, directory);
  const keyIds = () => byHand.prepare('SELECT DISTINCT sealing_key FROM credentials ORDER BY 1').pluck().all();
  const both = { ...options, keys: createKeyRing(copy(newKey), [copy(oldKey)]) };
  // The writer is made to fail after a first batch, as a crash would leave it.
  byHand.exec(
    `CREATE TRIGGER crash BEFORE UPDATE ON credentials WHEN old.id = '${made[55]?.id}' BEGIN SELECT raise(ABORT, 'crash'); END`,
  );
  const cut = await openStore(both);
  await t.rejects(cut.rewrapAll(), { code: 'store_unavailable' });
  await cut.close();
  t.equal(keyIds().length, 2, 'half-way');
  byHand.exec('DROP TRIGGER crash');
  await t.rejects(
    openStore({ ...options, keys: createKeyRing(copy(newKey)) }),
    { name: 'StartError' },
    'both are needed',
  );
  byHand.exec(`UPDATE credentials SET secret_name = 'EDITED' WHERE id = '${made[59]?.id}'`);
  byHand.exec("INSERT INTO sealed_items SELECT 'moved', sealing_key, sealed_value FROM sealed_items WHERE name = 'ca'");
  const resumed = await openStore(both);
  t.strictSame(await resumed.rewrapAll(), { rewrapped: 10, unreadable: [made[59]?.id, 'moved'] });
  await resumed.close();
  byHand.exec(`DELETE FROM credentials WHERE id = '${made[59]?.id}'`);
  byHand.exec("DELETE FROM sealed_items WHERE name = 'moved'");
  t.equal(keyIds().length, 1);
  const after = await openStore({ ...options, keys: createKeyRing(copy(newKey)) });
  t.equal((await after.sealedItems.get('ca'))?.reveal().toString(), 'root');
  for (const { vaultId, id } of [made[0], made[58]] as { vaultId: string; id: string }[]) {
    await after.control.credentials.update(vaultId, id, { networking: { type: 'unrestricted' } });
  }
  byHand.exec(`UPDATE credentials SET sealing_key = 'gone' WHERE id = '${made[5]?.id}'`);
  await t.rejects(after.rewrapAll(), { name: 'StartError', message: /master key gone, which was not given/ });
  byHand.exec(`UPDATE credentials SET sealing_key = NULL WHERE id = '${made[5]?.id}'`);
  t.match(await after.rewrapAll(), { unreadable: [made[5]?.id] });
  await after.close();
});
