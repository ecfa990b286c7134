// One secret of each shape and every kind of token and key, through every feature and every error path: nothing of them
// may lie anywhere afterwards. And the search itself is tried: what is leaked on purpose is found in every place.
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { test, type Test } from 'tap';
import { openConnection } from '../../store/database.ts';
import { createCanarySecrets, findLeaks, textNeedles, type Evidence, type Needles } from '../support/canary.ts';
import { keysOf, masterKeyIn } from '../support/canary-keys.ts';
import { beginUpload } from '../support/canary-upload.ts';
import {
  exchange,
  misuseToken,
  openSession,
  plantCredentials,
  runCommand,
  runCommands,
  sendRefusals,
  useCredential,
  type Planted,
} from '../support/canary-drive.ts';
import { openCanaryScene, type CanaryScene } from '../support/canary-scene.ts';
import { basicLogin, type TestSession } from '../support/operator.ts';

/** Places in which a leak is planted, and all of which the run must have searched. */
const PLACES = [
  'admin answers',
  'proxy answers',
  'command output',
  'audit stream',
  'log',
  'keyveil.db',
  'keyveil.db-wal',
  'audit.db',
  'audit.db-wal',
  'backup',
  'command lines',
  'environments',
  'open files',
];

const isLinux = process.platform === 'linux';

const READ_PATHS = [
  ...['/metrics', '/openapi.json', '/docs', '/healthz', '/readyz', '/v1/ca', '/v1/ca.pem', '/v1/ca-bundle.pem'],
  ...['/v1/vaults?include_archived=true', '/v1/sessions?include_archived=true', '/v1/environments'],
  ...['/v1/admin_tokens', '/v1/audit_events?limit=100', '/v1/emergency_stop'],
];

/** Without what is the same in the same kind of place. */
function distinct(evidence: readonly Evidence[]): Evidence[] {
  return [...new Map(evidence.map((each) => [each.place + each.bytes.toString('latin1'), each])).values()];
}

/** Follows the audit stream until `stop`. */
function followAudit(scene: CanaryScene): { stop(): void } {
  const chunks: Buffer[] = [];
  const headers = { 'x-api-key': scene.adminToken };
  const path = '/v1/audit_events/stream';
  const request = httpRequest({ port: scene.keyveil.adminPort, host: '127.0.0.1', path, headers }, (response) => {
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('error', () => undefined);
  });
  request.on('error', () => undefined);
  request.end();
  return {
    stop() {
      request.destroy();
      scene.keep('audit stream', path, Buffer.concat(chunks));
    },
  };
}

/** An edit of a row as an intruder would make it. */
function editRow(dataDirectory: string, sql: string, ...values: readonly string[]): void {
  const database = openConnection(join(dataDirectory, 'keyveil.db'), { readonly: false });
  database.prepare(sql).run(...values);
  database.close();
}

interface Life {
  readonly scene: CanaryScene;
  readonly session: TestSession;
  readonly vaultId: string;
  readonly planted: readonly Planted[];
}

/** Rotation, an edit from outside, the stop, archive, deletion, and a new token, which it gives. */
async function liveAndDie(t: Test, { scene, session, vaultId, planted }: Life): Promise<string> {
  const { admin } = scene;
  const of = (name: string): Planted => planted.find((each) => each.name === `KEY_${name}`) as Planted;
  const pathOf = (name: string): string => `/v1/vaults/${vaultId}/credentials/${of(name).id}`;
  const get = (name: string): Promise<string> => {
    const fields = [`X-Key: ${of(name).placeholder}`];
    return exchange(scene, session, { host: 'echo.test', request: 'GET /say/fields', fields });
  };
  await admin('POST', pathOf('PLAIN'), { body: { auth: { secret_value: `rotated-${of('PLAIN').value}` } } });
  t.match(await get('PLAIN'), /^HTTP\/1\.1 200 /);
  const sql = `UPDATE credentials SET networking = '{"type":"unrestricted"}' WHERE id = ?`;
  editRow(scene.keyveil.dataDirectory, sql, of('SPECIAL').id);
  t.match(await get('SPECIAL'), /^HTTP\/1\.1 502 .*credential_unreadable/s);
  await admin('POST', '/v1/emergency_stop', { body: { active: true, reason: 'canary' } });
  t.match(await get('PLAIN'), /^HTTP\/1\.1 503 .*emergency_stop/s);
  await admin('POST', '/v1/emergency_stop', { body: { active: false } });
  await admin('POST', `${pathOf('LONG')}/archive`);
  t.match(await get('LONG'), /credential_archived/);
  await admin('DELETE', pathOf('HUGE'));
  t.match(await get('HUGE'), /^HTTP\/1\.1 200 /);
  const renewed = await admin('POST', `/v1/sessions/${session.id}/rotate_token`, { isOneTime: true });
  const variables = renewed.body.startup_context.environment_variables as Record<string, string>;
  return new URL(variables['HTTPS_PROXY'] as string).password;
}

test('no secret, token or key is anywhere after a run through everything', { skip: !isLinux }, async (t) => {
  const scene = await openCanaryScene();
  t.teardown(() => scene.close());
  const { keyveil, admin } = scene;
  const { dataDirectory } = keyveil;
  const secrets = createCanarySecrets();
  const audit = followAudit(scene);

  const vaultId = (await admin('POST', '/v1/vaults', { body: { display_name: 'canary' } })).body.id as string;
  const planted = await plantCredentials(scene, vaultId, secrets);
  const session = await openSession(scene, [vaultId]);
  const scoped = await admin('POST', '/v1/admin_tokens', { body: { name: 'a', scope: 'auditor' }, isOneTime: true });
  const tokens: Record<string, string> = {
    'admin token': scene.adminToken,
    'scoped token': scoped.body.token,
    'session token': session.token,
  };
  for (const text of [...Object.values(secrets), ...Object.values(tokens)]) {
    const statuses = await sendRefusals(scene, { vaultId, credentialId: planted[0]?.id ?? '', text });
    const wrong = statuses.filter((status) => status < 400 || status >= 500);
    // The admin token is a good login where it is sent as one, and `1`-like texts are good filters.
    t.ok(wrong.every((status) => status === 200) && wrong.length <= 3, `${statuses.length} refusals: ${wrong.join()}`);
  }
  for (const each of planted) await useCredential(scene, session, each);
  t.ok(
    scene.full.received.some(({ body }) => body.includes(secrets['huge'] as string)),
    'the longest one was used',
  );
  t.ok(scene.full.messages.some((text) => text.includes(secrets['plain'] as string)));
  await misuseToken(scene, session);
  const upload = await beginUpload(scene, session, planted[1]?.placeholder ?? '');
  upload.end();

  const renewed = await liveAndDie(t, { scene, session, vaultId, planted });
  tokens['renewed session token'] = renewed;
  await misuseToken(scene, { ...session, token: renewed, authorization: basicLogin(session.id, renewed) });
  await admin('POST', `/v1/sessions/${session.id}/archive`);
  await admin('POST', '/v1/ca/rotate');
  const commands = await runCommands(scene, secrets);
  t.strictSame(commands, [0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0]);
  const credentials = `/v1/vaults/${vaultId}/credentials`;
  for (const path of [...READ_PATHS, credentials, `/v1/sessions/${session.id}`]) {
    t.equal((await admin('GET', path)).status, 200, path);
  }
  audit.stop();

  const running = scene.collect();
  const keys = keysOf(dataDirectory, masterKeyIn(dataDirectory));
  t.equal(Object.keys(keys).length, 3, 'the master key, and the old and the next key of the CA');
  t.equal(await keyveil.stop(), 0);
  const stopped = scene.collect();
  const texts = Object.entries({ ...secrets, ...tokens });
  const needles: Needles = texts.reduce((sum, [name, text]) => ({ ...sum, ...textNeedles(name, text) }), keys);
  const ofSecrets = Object.fromEntries(Object.entries(needles).filter(([name]) => !name.includes('token')));
  const all = distinct([...upload.evidence, ...running, ...stopped]);
  const isOneTime = ({ place }: Evidence): boolean => place === 'one-time answers';
  t.strictSame(
    findLeaks(
      all.filter((each) => !isOneTime(each)),
      needles,
    ),
    [],
  );
  t.strictSame(findLeaks(all.filter(isOneTime), ofSecrets), [], 'an answer with a token has no secret');
  const places = new Set(all.map(({ place }) => place));
  t.comment(`${String(all.length)} pieces in ${[...places].join(', ')}`);
  t.strictSame(
    PLACES.filter((place) => !places.has(place)),
    [],
    'every place was searched',
  );
  t.ok(all.filter(({ place }) => place === 'proxy answers').length > 100);
});

test('a leak that is planted is found in every place', { skip: !isLinux }, async (t) => {
  const hook = new URL('../support/leaky-hook.mjs', import.meta.url);
  const scene = await openCanaryScene({ NODE_OPTIONS: `--import=${hook.href}` });
  t.teardown(() => scene.close());
  const { admin, keyveil } = scene;
  const secret = createCanarySecrets()['plain'] as string;
  const audit = followAudit(scene);
  const vaultId = (await admin('POST', '/v1/vaults', { body: { display_name: secret } })).body.id as string;
  await plantCredentials(scene, vaultId, { plain: secret });
  const session = await openSession(scene, [vaultId]);
  // The sandbox does not know the value; a path that holds it all the same is written down as it is.
  await exchange(scene, session, { host: 'other.test', request: `GET /${secret}` });
  await exchange(scene, session, { host: 'other.test', request: 'GET /say/fields', fields: [`X-Key: ${secret}`] });
  while (!(await admin('GET', '/v1/audit_events')).text.includes(secret))
    await new Promise((done) => setTimeout(done, 50));
  await runCommand(scene, ['vault', 'list']);
  await runCommand(scene, ['backup', join(scene.backupDirectory, 'keyveil.db')]);
  audit.stop();
  const running = scene.collect();
  await keyveil.stop();
  const leaks = findLeaks(distinct([...running, ...scene.collect()]), textNeedles('plain', secret));
  for (const place of [...PLACES, 'temporary files']) {
    t.ok(
      leaks.some((leak) => leak.startsWith(`${place} (`)),
      place,
    );
  }
});

test('a leak is found in every spelling, and a part of a long one too', async (t) => {
  const of = (bytes: string): Evidence[] => [{ place: 'somewhere', label: '', bytes: Buffer.from(bytes) }];
  for (const [name, value] of Object.entries(createCanarySecrets())) {
    const needles = textNeedles(name, value);
    const spellings = [
      ...[value, encodeURIComponent(value), JSON.stringify(value), Buffer.from(value).toString('hex')],
      ...['', '-', '--'].map((before) => Buffer.from(`${before}${value}---`).toString('base64')),
      ...['', '-', '--'].map((before) => Buffer.from(`${before}${value}---`).toString('base64url')),
    ];
    for (const spelling of spellings) t.ok(findLeaks(of(`x ${spelling} x`), needles).length > 0, name);
    t.strictSame(findLeaks(of('nothing of it'), needles), []);
    if (value.length > 200) t.ok(findLeaks(of(value.slice(0, 60)), needles).length > 0);
  }
});
