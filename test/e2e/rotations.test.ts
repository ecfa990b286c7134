// Rotations that take a while: of the master key, cut off half-way and taken up again; of the CA, with clients of both roots.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { nextMasterKeyPathOf, openKeys } from '../../daemon/keys.ts';
import { Secret } from '../../model/secret.ts';
import { dataPathsOf } from '../../store/data-directory.ts';
import { openConnection } from '../../store/database.ts';
import { openStore, type Store } from '../../store/open-store.ts';
import { readHead, startTestDaemon } from '../support/daemon.ts';
import {
  createMemoryLogger,
  createTemporaryDirectory,
  newCredential,
  newSession,
  SESSION_SETTINGS,
} from '../support/store.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const VAULTS = 20;
const PER_VAULT = 20;
const TRIES = 10;

const valueOf = (vault: number, number: number): string => `value-${vault}-${number}-that-outlives-a-rotation`;

async function open(directory: string): Promise<Store> {
  const { ring, source } = openKeys({ dataDir: directory, masterKey: null, masterKeysPrevious: null });
  return openStore({
    directory,
    keys: ring,
    keySource: source,
    clock: Date,
    logger: createMemoryLogger().logger,
    defaultNetworking: { type: 'unrestricted' },
    auditRetention: { days: 30, bytesMax: 2 ** 30 },
  });
}

async function fill(directory: string): Promise<void> {
  const store = await open(directory);
  const { vaults, credentials } = store.control;
  for (let vault = 0; vault < VAULTS; vault += 1) {
    const { id } = await vaults.create({ displayName: `v${vault}`, metadata: {} });
    for (let number = 0; number < PER_VAULT; number += 1) {
      const secretValue = Secret.fromText(valueOf(vault, number));
      await credentials.create(newCredential(id, { secretName: `KEY_${vault}_${number}`, secretValue }));
    }
  }
  await store.close();
}

/** Every value as a session would be given it, by name. */
async function readAllValues(directory: string): Promise<Map<string, string>> {
  const store = await open(directory);
  const policies = store.openPolicies();
  try {
    const { items } = await store.control.vaults.list({ limit: 100, after: null, includeArchived: false });
    const vaultIds = items.map(({ id }) => id);
    const { session } = await store.control.sessions.create(newSession(vaultIds), SESSION_SETTINGS);
    const policy = await policies.read(session.id);
    return new Map(policy?.credentials.map((each) => [each.secretName, each.open().reveal().toString()]));
  } finally {
    await policies.close();
    await store.close();
  }
}

/** Credentials by the key that they are sealed with. */
function countByKey(directory: string): number[] {
  const database = openConnection(dataPathsOf(directory).controlDatabase, { readonly: true });
  try {
    return database
      .prepare<[], number>('SELECT count(*) FROM credentials GROUP BY sealing_key ORDER BY 1')
      .pluck()
      .all();
  } finally {
    database.close();
  }
}

/** Runs the command, and kills it as soon as some values are under the new key if it is to be cut off. */
async function rotate(directory: string, isCutOff: boolean): Promise<number | null> {
  const arguments_ = [MAIN, 'master-key', 'rotate', '--data-dir', directory];
  const child = spawn(process.execPath, arguments_, { stdio: ['ignore', 'ignore', 'inherit'] });
  const gone = once(child, 'exit');
  while (isCutOff && child.exitCode === null && child.signalCode === null) {
    if (countByKey(directory).length > 1) child.kill('SIGKILL');
    await new Promise((resolve) => setImmediate(resolve));
  }
  return ((await gone) as [number | null])[0];
}

test('a rotation of the master key that was killed half-way is taken up again', async (t) => {
  const directory = join(createTemporaryDirectory(t), 'data');
  mkdirSync(directory, { mode: 0o700 });
  await fill(directory);
  const { masterKey } = dataPathsOf(directory);
  const oldKey = readFileSync(masterKey, 'latin1');
  const wanted = new Map(
    Array.from({ length: VAULTS * PER_VAULT }, (_, index) => {
      const [vault, number] = [Math.floor(index / PER_VAULT), index % PER_VAULT];
      return [`KEY_${vault}_${number}`, valueOf(vault, number)];
    }),
  );
  const sorted = (values: ReadonlyMap<string, string>): string[] => [...values].map((each) => each.join('=')).sort();
  // Once in a while the command is done before the kill reaches it.
  for (let tries = 0; tries < TRIES && countByKey(directory).length < 2; tries += 1) await rotate(directory, true);
  t.equal(countByKey(directory).length, 2, `values are under two keys: ${countByKey(directory).join(' and ')}`);
  t.ok(existsSync(nextMasterKeyPathOf(directory)));
  t.strictSame(sorted(await readAllValues(directory)), sorted(wanted), 'all of them open meanwhile');

  t.equal(await rotate(directory, false), 0);
  t.strictSame(countByKey(directory), [VAULTS * PER_VAULT], 'one key');
  t.notOk(existsSync(nextMasterKeyPathOf(directory)));
  t.not(readFileSync(masterKey, 'latin1'), oldKey);
  t.strictSame(sorted(await readAllValues(directory)), sorted(wanted), 'and all of them open with it');
});

test('a client that trusts only the old root works until that is retired, one with the new bundle goes on', async (t) => {
  const authority = createTestAuthority();
  const api = await startUpstream({ leaf: authority.leafFor(['api.test', 'late.test']) });
  const overrides = { 'api.test': api.port, 'late.test': api.port };
  const keyveil = await startTestDaemon({ authority, overrides });
  t.teardown(async () => {
    await keyveil.close();
    await api.close();
  });
  const vaultId = await keyveil.createVault();
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  const ask = async (ca: string, host = 'api.test'): Promise<string> => {
    try {
      const tls = await keyveil.tunnel(session, `${host}:443`, { ca });
      tls.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      const head = await readHead(tls);
      tls.destroy();
      return head.split('\r\n', 1)[0] ?? '';
    } catch (error) {
      return String(error);
    }
  };
  const step = async (name: string): Promise<void> => {
    t.equal((await keyveil.admin('POST', `/v1/ca/${name}`)).status, 200, name);
  };
  const oldRoot = await keyveil.caPem();
  const served = /^HTTP\/1\.1 200/;
  t.match(await ask(oldRoot), served);

  await step('rotate');
  const both = await keyveil.caPem();
  t.equal(both.split('BEGIN CERTIFICATE').length - 1, 2, 'the export holds both roots');
  for (const host of ['api.test', 'late.test']) {
    t.match(await ask(oldRoot, host), served, `${host}: the old root, while it signs`);
    t.match(await ask(both, host), served, `${host}: both roots`);
  }
  await keyveil.restart();
  t.match(await ask(oldRoot), served, 'after a restart as well');
  const open = await keyveil.tunnel(session, 'api.test:443', { ca: oldRoot });

  await step('retire');
  t.notMatch(await ask(oldRoot), served, 'the old root alone is not enough any more');
  for (const host of ['api.test', 'late.test']) t.match(await ask(both, host), served, `${host}: the new bundle`);
  t.match(await ask(await keyveil.caPem()), served, 'the new root alone');
  open.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
  t.match(await readHead(open), served, 'a connection that was open goes on');
  open.destroy();
});
