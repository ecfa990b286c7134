// Random sequences of control-plane calls against a model in memory, and readers beside writers.
import fc from 'fast-check';
import t, { test } from 'tap';
import { runAdminLoad } from '../support/admin-load.ts';
import { readDataDirectory, startAdminApi, type Answer } from '../support/admin-api.ts';
import {
  activeCredentials,
  createControlModel,
  judgeNewCredential,
  listed,
  type ControlModel,
  type ModelCredential,
  type ModelVault,
} from '../support/control-model.ts';

const api = await startAdminApi(t);
const SECRET_MARK = 'canary-value-';
const answers: string[] = [];
let secretsMade = 0;

async function call(method: string, path: string, body?: unknown): Promise<Answer> {
  const answer = await api.call(method, path, { body });
  answers.push(answer.text);
  return answer;
}

function newSecret(): string {
  secretsMade += 1;
  return `${SECRET_MARK}${secretsMade}"\\é`;
}

interface Step {
  readonly kind: number;
  readonly pick: number;
  readonly name: string;
  readonly flag: boolean;
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.nat({ max: 13 }),
  pick: fc.nat({ max: 1000 }),
  name: fc.constantFrom('ALPHA', 'BETA', 'GAMMA', 'delta', 'PATH'),
  flag: fc.boolean(),
});

const at = <Item>(items: readonly Item[], pick: number): Item | undefined => items[pick % Math.max(items.length, 1)];

type Expected = readonly [status: number, code?: string];

function expectStatus(answer: Answer, [status, code]: Expected): void {
  if (answer.status === status && (code === undefined || answer.body.error?.code === code)) return;
  throw new Error(`The model says ${status} ${code ?? ''}; the API: ${answer.status} ${answer.text}`);
}

async function checkLists(model: ControlModel, flag: boolean): Promise<void> {
  const query = `?limit=100&include_archived=${flag}`;
  const ids = (answer: Answer) => answer.body.data.map((entry: { id: string }) => entry.id) as string[];
  const mine = new Set(model.vaults.map((vault) => vault.id));
  const vaults = ids(await call('GET', `/v1/vaults${query}`)).filter((id) => mine.has(id));
  const expected = listed(model.vaults, flag);
  if (vaults.join() !== expected.join()) throw new Error('The list of vaults is not that of the model.');
  const vault = model.vaults.at(-1);
  if (vault === undefined) return;
  const credentials = ids(await call('GET', `/v1/vaults/${vault.id}/credentials${query}`));
  if (credentials.join() !== listed(vault.credentials, flag).join())
    throw new Error('The list of credentials differs.');
}

function compareCredential(answer: Answer, credential: ModelCredential): void {
  const { auth } = answer.body;
  const hosts = auth.networking.allowed_hosts ?? null;
  const actual = [auth.secret_version, auth.injection_location.header, auth.injection_location.body, hosts];
  const expected = [credential.version, credential.header, credential.body, credential.hosts];
  if (JSON.stringify(actual) !== JSON.stringify(expected)) throw new Error(`Credential differs: ${answer.text}`);
}

/** A change of a credential: what is sent, whether it is allowed, and what it makes of the model. */
interface Change {
  readonly auth: unknown;
  readonly isAllowed?: boolean;
  readonly apply: (credential: ModelCredential) => void;
}

type MakeChange = (credential: ModelCredential, step: Step) => Change;

const rotate: MakeChange = () => ({
  auth: { secret_value: newSecret() },
  apply: (credential) => (credential.version += 1),
});

const relocate: MakeChange = (credential, { pick, flag }) => {
  const injection_location = pick % 2 === 0 ? { header: flag } : { body: flag };
  const merged = { header: credential.header, body: credential.body, ...injection_location };
  return {
    auth: { injection_location },
    isAllowed: merged.header || merged.body,
    apply: (target) => Object.assign(target, merged),
  };
};

const renetwork: MakeChange = (_credential, { pick, flag }) => {
  const hosts = flag ? [`h${pick % 3}.example.com`, '*.example.org'] : null;
  const networking = hosts === null ? { type: 'unrestricted' } : { type: 'limited', allowed_hosts: hosts };
  return { auth: { networking }, apply: (credential) => (credential.hosts = hosts) };
};

const changes: Readonly<Record<number, MakeChange>> = { 6: rotate, 7: relocate, 8: renetwork };

async function createCredential(vault: ModelVault, name: string): Promise<void> {
  const networking = { type: 'unrestricted' };
  const auth = { type: 'environment_variable', secret_name: name, secret_value: newSecret(), networking };
  const answer = await call('POST', `/v1/vaults/${vault.id}/credentials`, { auth });
  const expected: Expected = name === 'PATH' ? [400, 'secret_name_reserved'] : judgeNewCredential(vault, name);
  expectStatus(answer, expected);
  if (expected[0] !== 200) return;
  const fresh = { name, archived: false, version: 1, header: true, body: false, hosts: null };
  vault.credentials.push({ id: answer.body.id, ...fresh });
}

async function changeCredential(url: string, credential: ModelCredential, change: Change): Promise<void> {
  const answer = await call('POST', url, { auth: change.auth });
  if (credential.archived) expectStatus(answer, [400, 'archived']);
  else if (change.isAllowed === false) expectStatus(answer, [400, 'invalid_field']);
  else {
    expectStatus(answer, [200]);
    change.apply(credential);
  }
}

async function stepCredential(vault: ModelVault, one: Step): Promise<void> {
  const { kind, pick, name, flag } = one;
  if (kind === 4 || kind === 5) {
    await createCredential(vault, name);
    return;
  }
  const credential = at(vault.credentials, pick);
  if (credential === undefined) return;
  const url = `/v1/vaults/${vault.id}/credentials/${credential.id}`;
  const change = changes[kind]?.(credential, one);
  if (change !== undefined) await changeCredential(url, credential, change);
  else if (kind === 9) {
    expectStatus(await call('POST', `${url}/archive`), [200]);
    credential.archived = true;
  } else if (flag) {
    expectStatus(await call('DELETE', url), [200]);
    vault.credentials.splice(vault.credentials.indexOf(credential), 1);
    expectStatus(await call('GET', url), [404, 'not_found']);
    return;
  }
  const read = await call('GET', url);
  expectStatus(read, [200]);
  compareCredential(read, credential);
}

async function createVault(model: ControlModel, name: string): Promise<void> {
  const answer = await call('POST', '/v1/vaults', { display_name: name });
  expectStatus(answer, [200]);
  model.vaults.push({ id: answer.body.id, name, archived: false, metadata: new Map(), credentials: [] });
}

async function updateVault(vault: ModelVault, { pick, name, flag }: Step): Promise<void> {
  const url = `/v1/vaults/${vault.id}`;
  const metadata = { [name]: flag ? `v${pick}` : null };
  const answer = await call('POST', url, { display_name: `${name}${pick}`, metadata });
  expectStatus(answer, vault.archived ? [400, 'archived'] : [200]);
  if (vault.archived) return;
  vault.name = `${name}${pick}`;
  if (flag) vault.metadata.set(name, `v${pick}`);
  else vault.metadata.delete(name);
  const { body } = await call('GET', url);
  const actual = JSON.stringify([body.display_name, Object.entries(body.metadata).sort()]);
  if (actual !== JSON.stringify([vault.name, [...vault.metadata].sort()])) throw new Error('The vault differs.');
}

async function endVault(model: ControlModel, vault: ModelVault, { kind, pick, flag }: Step): Promise<void> {
  const url = `/v1/vaults/${vault.id}`;
  if (kind === 2 && flag) {
    expectStatus(await call('POST', `${url}/archive`), [200]);
    vault.archived = true;
    for (const credential of vault.credentials) credential.archived = true;
  } else if (kind === 3 && pick % 3 === 0) {
    expectStatus(await call('DELETE', url), [200]);
    model.vaults.splice(model.vaults.indexOf(vault), 1);
    expectStatus(await call('GET', url), [404, 'not_found']);
  }
}

async function mountVault(vault: ModelVault): Promise<void> {
  const answer = await call('POST', '/v1/sessions', { vault_ids: [vault.id] });
  expectStatus(answer, vault.archived ? [400, 'vault_archived'] : [200]);
  if (vault.archived) return;
  const names = answer.body.mounts.map((mount: { secret_name: string }) => mount.secret_name).sort();
  const expected = activeCredentials(vault).map((credential) => credential.name);
  if (names.join() !== expected.sort().join()) throw new Error('The mounts differ.');
}

async function takeStep(model: ControlModel, one: Step): Promise<void> {
  const vault = at(model.vaults, one.pick);
  if (one.kind === 0 || vault === undefined) await createVault(model, one.name);
  else if (one.kind === 1) await updateVault(vault, one);
  else if (one.kind <= 3) await endVault(model, vault, one);
  else if (one.kind <= 10) await stepCredential(vault, one);
  else if (one.kind === 11) await checkLists(model, one.flag);
  else await mountVault(vault);
}

test('random sequences of calls answer as the model does', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async (steps) => {
      const model = createControlModel();
      for (const one of steps) await takeStep(model, one);
    }),
    { numRuns: 10, endOnFailure: true },
  );
  t.ok(secretsMade > 3, `${secretsMade} secrets were stored`);
  const places = {
    answers: answers.join('\n'),
    logs: api.logLines.join('\n'),
    files: readDataDirectory(api.directory),
  };
  for (const [place, text] of Object.entries(places)) t.notOk(text.includes(SECRET_MARK), `no secret in ${place}`);
});

test('a secret is not quoted by any refusal', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.json({ maxDepth: 3 }), fc.nat({ max: 4 }), async (junk, place) => {
      const mark = `${SECRET_MARK}refused`;
      const secret = { secret_value: mark, token: mark, [`x${place}`]: mark };
      const bodies = [
        { auth: { ...secret, type: 'environment_variable', extra: JSON.parse(junk) } },
        { auth: secret, display_name: JSON.parse(junk) },
        `{"auth":{"secret_value":"${mark}",${junk}`,
        `"${mark}${junk}`,
        { auth: { type: mark, networking: { type: mark, allowed_hosts: [mark] }, injection_location: mark } },
      ];
      const answer = await call('POST', '/v1/vaults/vlt_none/credentials', bodies[place]);
      if (answer.status < 400 || answer.status >= 500) throw new Error(`Status ${answer.status}`);
      if (answer.text.includes(SECRET_MARK)) throw new Error(answer.text);
    }),
    { numRuns: 100 },
  );
  t.notOk(api.logLines.some((line) => line.includes(SECRET_MARK)));
});

test('writers and readers side by side lose and repeat nothing', async (t) => {
  const result = await runAdminLoad(api, { workers: 12, durationMs: 1500 });
  t.strictSame(result.faults, []);
  t.ok(result.calls > 50, `${result.calls} calls`);
});
