// Micro-benchmarks of what a request passes through: scanner, veil, policy read, leaf. Prints one line of JSON for each.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createLeafKey, mintLeaf } from '../ca/leaf.ts';
import { openRoot } from '../ca/root.ts';
import type { Logger } from '../model/ports.ts';
import { Secret } from '../model/secret.ts';
import { compileSwapPlan } from '../proxy/swap/plan.ts';
import { swapHeaders } from '../proxy/swap/headers.ts';
import { compileVeil } from '../proxy/veil/compile.ts';
import { createKeyRing } from '../store/key-ring.ts';
import { openStore } from '../store/open-store.ts';
import { createMemorySealedItems } from '../test/support/memory-sealed-items.ts';
import { newCredential, newSession, SESSION_SETTINGS } from '../test/support/store.ts';

const HOST = 'api.example.com';
const CREDENTIALS = 10;
const MIB = 1024 * 1024;
const ROUNDS = 7;
const ROUND_MS = 150;

interface Work {
  readonly figure: string;
  readonly unit: string;
  /** From the microseconds of CPU time that one call takes. */
  readonly value: (microseconds: number) => number;
  readonly call: () => unknown;
}

const plain = (microseconds: number): number => microseconds;
const gigabytesPerSecond = (bytes: number) => (microseconds: number) => bytes / microseconds / 1000;

/** CPU microseconds per call, so that other programs on the machine count little. */
async function measure(call: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  const endsAt = performance.now() + ROUND_MS;
  let calls = 0;
  while (performance.now() < endsAt) {
    for (let index = 0; index < 10; index += 1) {
      const result = call();
      if (result instanceof Promise) await result;
    }
    calls += 10;
  }
  const used = process.cpuUsage(before);
  return (used.user + used.system) / calls;
}

const directory = mkdtempSync(join(tmpdir(), 'keyveil-micro-'));
const clock = { now: () => Date.now() };
const silent = (): void => undefined;
const logger: Logger = { debug: silent, info: silent, warn: silent, error: silent };
const store = await openStore({
  directory,
  keys: createKeyRing(Secret.fromBytes(randomBytes(32))),
  keySource: 'the benchmark',
  clock,
  logger,
  defaultNetworking: { type: 'unrestricted' },
  auditRetention: { days: 30, bytesMax: 2 ** 31 },
});
const vault = await store.control.vaults.create({ displayName: 'micro', metadata: {} });
for (let index = 0; index < CREDENTIALS; index += 1) {
  const secretValue = Secret.fromText(`sk-micro-${index}-0123456789abcdefghijklmnopqrstuvwxyz`);
  await store.control.credentials.create(newCredential(vault.id, { secretName: `KEY_${index}`, secretValue }));
}
const { session } = await store.control.sessions.create(newSession([vault.id]), SESSION_SETTINGS);
const policies = store.openPolicies();
const policy = await policies.read(session.id);
const plan = policy === null ? null : compileSwapPlan(policy, { host: HOST, scheme: 'https' });
const veil = policy === null ? null : compileVeil(policy, HOST);
if (plan === null || veil === null) throw new Error('The session has nothing to swap.');

const text = Buffer.alloc(MIB, '{"id":"item_0123456789","name":"the quick brown fox","tags":["lazy","dog"]},');
const small = Buffer.from(JSON.stringify({ ok: true, text: 'x'.repeat(100) }));
const { placeholder } = plan.entries[0] as { placeholder: string };
const headers = ['Host', HOST, 'User-Agent', 'bench/1', 'Accept', '*/*', 'Authorization', `Bearer ${placeholder}`];
const root = await openRoot(createMemorySealedItems(), { clock, hostName: 'bench' });
const leafKey = createLeafKey();
let hosts = 0;
let writes = 0;

const works: readonly Work[] = [
  {
    figure: 'placeholder scanner, 1 MiB of JSON',
    unit: 'GB/s',
    value: gigabytesPerSecond(MIB),
    call: () => plan.scanner.find(text, 0),
  },
  {
    figure: 'swap of a header block with one placeholder',
    unit: 'µs',
    value: plain,
    call: () => swapHeaders(headers, plan, 'header'),
  },
  {
    figure: 'veil of ten credentials, 1 MiB of JSON',
    unit: 'GB/s',
    value: gigabytesPerSecond(MIB),
    call: () => veil.find(text),
  },
  { figure: 'veil of ten credentials, 122 bytes', unit: 'µs', value: plain, call: () => veil.find(small) },
  { figure: 'policy read, nothing committed since', unit: 'µs', value: plain, call: () => policies.read(session.id) },
  {
    figure: 'policy read after a commit (commit included)',
    unit: 'µs',
    value: plain,
    call: async () => {
      await store.control.vaults.update(vault.id, { displayName: `micro ${(writes += 1)}` });
      return policies.read(session.id);
    },
  },
  {
    figure: 'leaf certificate minted and signed',
    unit: 'µs',
    value: plain,
    call: () => mintLeaf(`host-${(hosts += 1)}.example.com`, { issuer: root.signer(), key: leafKey, now: clock.now() }),
  },
];

for (const { figure, unit, value, call } of works) {
  await measure(call);
  const values: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) values.push(value(await measure(call)));
  process.stdout.write(`${JSON.stringify({ subject: 'keyveil', figure, unit, values })}\n`);
}
await policies.close();
await store.close();
rmSync(directory, { recursive: true, force: true });
