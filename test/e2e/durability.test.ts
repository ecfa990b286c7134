// What survives when the daemon is killed, and what nobody finds in its files and its log: over the built command line.
import { createPrivateKey } from 'node:crypto';
import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { test, type Test } from 'tap';
import { openKeys } from '../../daemon/keys.ts';
import { openStore } from '../../store/open-store.ts';
import { startDaemonProcess, type DaemonProcess } from '../support/daemon-process.ts';
import { byteForms, formsIn, valueForms } from '../support/encodings.ts';
import { readAll, readHead, type TestSession } from '../support/operator.ts';
import { createMemoryLogger } from '../support/store.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const WRITES = 100;
const WRITERS = 8;
const KILL_AFTER = 45;
const VAULTS = 5;

interface Scene {
  readonly keyveil: DaemonProcess;
  readonly api: TestUpstream;
}

async function openScene(t: Test): Promise<Scene> {
  const authority = createTestAuthority();
  const api = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    // What an upstream echoes must not be recorded either.
    respond: (request, response) => response.end(`${request.header('x-key') ?? ''} ${request.body.toString()}`),
  });
  const keyveil = await startDaemonProcess({ authority, overrides: { 'api.test': api.port } });
  t.teardown(async () => {
    await keyveil.close();
    await api.close();
  });
  return { keyveil, api };
}

/** One request of a session; gives what the upstream received in `X-Key`. */
async function ask(scene: Scene, session: TestSession, placeholder: string): Promise<string | undefined> {
  const { keyveil, api } = scene;
  const arrived = api.next();
  const tls = await keyveil.tunnel(session, 'api.test:443');
  return askIn(tls, { placeholder, arrived });
}

async function askIn(
  tls: TLSSocket,
  { placeholder, arrived }: { placeholder: string; arrived: ReturnType<TestUpstream['next']> },
): Promise<string | undefined> {
  tls.write(`GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: ${placeholder}\r\nConnection: close\r\n\r\n`);
  await readHead(tls);
  tls.destroy();
  return (await arrived).header('x-key');
}

interface Written {
  readonly vaultId: string;
  readonly id: string;
  readonly placeholder: string;
  readonly value: string;
  /** The same credential was also given this value, and that was answered. */
  rotatedTo: string | null;
}

/** Writes until the daemon is gone; `answered` holds what it had said yes to. */
async function writeMany(
  keyveil: DaemonProcess,
  vaultIds: readonly string[],
  onAnswer: (count: number) => void,
): Promise<Written[]> {
  const answered: Written[] = [];
  let next = 0;
  let count = 0;
  const write = async (): Promise<void> => {
    for (let number = next++; number < WRITES; number = next++) {
      const vaultId = vaultIds[number % VAULTS] as string;
      const value = `value-of-write-${number}-before-the-kill`;
      const networking = { type: 'limited', allowed_hosts: ['api.test'] };
      const made = await keyveil.createCredential(vaultId, {
        secret_name: `KEY_${number}`,
        secret_value: value,
        networking,
      });
      const written: Written = { vaultId, ...made, value, rotatedTo: null };
      answered.push(written);
      onAnswer((count += 1));
      if (number % 3 !== 0) continue;
      const path = `/v1/vaults/${vaultId}/credentials/${made.id}`;
      const rotated = `${value}-rotated`;
      const answer = await keyveil.admin('POST', path, {
        auth: { type: 'environment_variable', secret_value: rotated },
      });
      if (answer.status === 200) written.rotatedTo = rotated;
    }
  };
  // A writer ends with the connection error that the kill makes of its last write.
  await Promise.allSettled(Array.from({ length: WRITERS }, write));
  return answered;
}

test('after kill -9 amid a hundred writes, every answered one is there and the session still works', async (t) => {
  const scene = await openScene(t);
  const { keyveil } = scene;
  const vaultIds = await Promise.all(Array.from({ length: VAULTS }, (_, index) => keyveil.createVault(`v${index}`)));
  const session = await keyveil.createSession({ vault_ids: vaultIds });
  const answered = await writeMany(keyveil, vaultIds, (count) => {
    if (count === KILL_AFTER) void keyveil.kill();
  });
  await keyveil.kill();
  t.ok(answered.length >= KILL_AFTER && answered.length < WRITES, `${answered.length} writes were answered`);

  await keyveil.start();
  const wrong: string[] = [];
  for (const { vaultId, id, placeholder, rotatedTo } of answered) {
    const { status, body } = await keyveil.admin('GET', `/v1/vaults/${vaultId}/credentials/${id}`);
    const auth = body['auth'] as Record<string, unknown> | undefined;
    const isThere = status === 200 && auth?.['placeholder'] === placeholder;
    if (!isThere || (rotatedTo !== null && auth['secret_version'] !== 2)) wrong.push(`${id}: ${JSON.stringify(body)}`);
  }
  t.same(wrong, [], 'what was answered is stored');
  for (const { placeholder, value, rotatedTo } of answered) {
    const received = await ask(scene, session, placeholder);
    // A rotation that was under way may have been stored without having been answered.
    const good = rotatedTo === null ? [value, `${value}-rotated`] : [rotatedTo];
    if (!good.includes(received ?? '')) wrong.push(`${placeholder} became ${String(received)}`);
  }
  t.same(wrong, [], 'and opens to the value that was written');
  const { body } = await keyveil.admin('GET', '/v1/vaults?limit=100');
  t.equal((body['data'] as unknown[]).length, VAULTS);
});

/** Names of all files below a directory with their bytes as Latin-1, but for the two that hold a key by purpose. */
function readFiles(directory: string): Map<string, string> {
  const files = new Map<string, string>();
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    const name = relative(directory, path);
    if (entry.isFile() && name !== 'master.key' && name !== 'admin-token')
      files.set(name, readFileSync(path, 'latin1'));
  }
  return files;
}

interface Needle {
  readonly name: string;
  readonly forms: Readonly<Record<string, string>>;
}

function search(places: ReadonlyMap<string, string>, needles: readonly Needle[]): string[] {
  return [...places].flatMap(([place, text]) =>
    needles.flatMap(({ name, forms }) => formsIn(text, forms).map((form) => `${name} as ${form} in ${place}`)),
  );
}

/** The CA's private key in every shape it could lie around in, read from a stopped daemon's store. */
async function keyNeedles(dataDirectory: string): Promise<Needle[]> {
  const { ring, source } = openKeys({ dataDir: dataDirectory, masterKey: null, masterKeysPrevious: null });
  const store = await openStore({
    directory: dataDirectory,
    keys: ring,
    keySource: source,
    clock: Date,
    logger: createMemoryLogger().logger,
    defaultNetworking: { type: 'unrestricted' },
    auditRetention: { days: 30, bytesMax: 1e9 },
  });
  const names = await store.sealedItems.list('ca/');
  const texts = await Promise.all(names.map(async (name) => (await store.sealedItems.get(name))?.reveal().toString()));
  await store.close();
  const blocks =
    texts.join('\n').match(/-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]+-----END [A-Z ]*PRIVATE KEY-----/g) ?? [];
  return blocks.flatMap((pem, index) => {
    const key = createPrivateKey(pem);
    const scalar = Buffer.from(key.export({ format: 'jwk' }).d as string, 'base64url');
    const sec1 = key.export({ type: 'sec1', format: 'der' });
    // The lines of the PEM differ with its line length: the DER's base64 at any alignment finds each whole one.
    const lines = pem.split('\n').filter((line) => line.length > 20 && !line.startsWith('-'));
    return [
      { name: `CA key ${index}: scalar`, forms: byteForms(scalar) },
      { name: `CA key ${index}: SEC 1`, forms: byteForms(sec1) },
      { name: `CA key ${index}: PEM`, forms: Object.fromEntries(lines.map((line, at) => [`line ${at}`, line])) },
    ];
  });
}

/** Requests that swap, miss, are refused, and fail to log in. */
async function useEverywhere({ keyveil }: Scene, session: TestSession, placeholders: [string, string]): Promise<void> {
  const [first, second] = placeholders;
  const exchanges = [
    `GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nX-Key: ${first}\r\nAuthorization: Basic ${Buffer.from(`u:${second}`).toString('base64')}\r\n\r\n`,
    `POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: ${second.length}\r\n\r\n${second}`,
    `GET / HTTP/1.1\r\nHost: wrong.test\r\nConnection: close\r\nX-Key: ${first}\r\n\r\n`,
    `GET /?k=${first} HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n`,
  ];
  for (const exchange of exchanges) {
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write(exchange);
    await readAll(tls);
  }
  await keyveil.connect(
    { authorization: `Basic ${Buffer.from('x:wrong-token-0006').toString('base64')}` },
    'api.test:443',
  );
}

test('no secret value, token or private key is in any file of the data directory or in the log', async (t) => {
  const scene = await openScene(t);
  const { keyveil } = scene;
  const values = ['sk-live/first+value="0001"', 'second-välue-0002-🔑', 'third-rotated-away-value-0003'];
  const vaultId = await keyveil.createVault();
  const create = (number: number) =>
    keyveil.createCredential(vaultId, {
      secret_name: `KEY_${number}`,
      secret_value: values[number],
      networking: { type: 'limited', allowed_hosts: ['api.test'] },
      injection_location: { header: true, body: true },
    });
  const [{ placeholder: first }, { placeholder: second }, third] = [await create(0), await create(1), await create(2)];
  const path = `/v1/vaults/${vaultId}/credentials/${third.id}`;
  const rotated = 'fourth-value-that-replaced-it-0004';
  await keyveil.admin('POST', path, { auth: { type: 'environment_variable', secret_value: rotated } });
  const refused = { auth: { type: 'environment_variable', secret_name: 'BAD', secret_value: 'refused\nvalue-0005' } };
  t.equal((await keyveil.admin('POST', `/v1/vaults/${vaultId}/credentials`, refused)).status, 400);
  const adminToken = (await keyveil.admin('POST', '/v1/admin_tokens', { name: 'ci', scope: 'admin' })).body['token'];
  const session = await keyveil.createSession({ vault_ids: [vaultId] });

  await useEverywhere(scene, session, [first, second]);
  t.equal(await ask(scene, session, third.placeholder), rotated);

  const [, token = ''] = Buffer.from(session.authorization.slice('Basic '.length), 'base64').toString().split(':');
  const configured = readFileSync(join(keyveil.dataDirectory, 'admin-token'), 'latin1').trim();
  const needles: Needle[] = [
    ...[...values, rotated, 'refused\nvalue-0005', 'wrong-token-0006'].map((value) => ({
      name: value,
      forms: valueForms(value),
    })),
    { name: 'session token', forms: byteForms(Buffer.from(token)) },
    { name: 'bytes of the session token', forms: byteForms(Buffer.from(token, 'base64url')) },
    { name: 'configured admin token', forms: byteForms(Buffer.from(configured)) },
    { name: 'scoped admin token', forms: byteForms(Buffer.from(adminToken as string)) },
  ];
  t.ok(token.length > 40 && configured.length >= 32 && (adminToken as string).startsWith('kvad_'));
  const places = () => readFiles(keyveil.dataDirectory).set('the log', keyveil.log.join('\n'));
  t.ok([...places().keys()].some((name) => name.startsWith('keyveil.db')));
  t.same(search(places(), needles), [], 'while it runs');
  await keyveil.kill();
  t.same(search(places(), needles), [], 'after it was killed');
  await keyveil.start();
  t.equal(await keyveil.stop(), 0);
  t.same(search(places(), needles), [], 'after it was stopped');
  t.ok(
    keyveil.log.some((line) => line.includes('"level":"debug"')),
    'the log is at its most verbose level',
  );

  const keys = await keyNeedles(keyveil.dataDirectory);
  t.equal(keys.length, 3, 'the CA has one key');
  t.same(search(places(), keys), [], 'the private key of the CA');

  const all = [...needles, ...keys];
  for (const { name, forms } of all) {
    for (const [form, text] of Object.entries(forms)) {
      const planted = join(keyveil.dataDirectory, 'planted');
      writeFileSync(planted, `before ${text} after`, 'latin1');
      const found = search(new Map([['planted', readFileSync(planted, 'latin1')]]), all);
      rmSync(planted);
      if (!found.includes(`${name} as ${form} in planted`)) t.fail(`a planted ${name} as ${form} is not found`);
    }
  }
  appendFileSync(join(keyveil.dataDirectory, 'keyveil.db'), values[0] as string);
  t.not(search(places(), all).length, 0, 'a leak into the database is found');
});
