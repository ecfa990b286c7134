// A program that writes to a store as fast as it can, until it is killed; prints `vault credential` for each answered write.
import { Secret } from '../../model/secret.ts';
import { createKeyRing } from '../../store/key-ring.ts';
import { openStore } from '../../store/open-store.ts';
import { createMemoryLogger, newCredential } from './store.ts';

const EVENTS_PER_CREDENTIAL = 50;
const [directory = '', key = ''] = process.argv.slice(2);
const store = await openStore({
  directory,
  logger: createMemoryLogger().logger,
  keySource: 'the arguments',
  keys: createKeyRing(Secret.fromBytes(Buffer.from(key, 'hex'))),
  clock: Date,
  defaultNetworking: { type: 'unrestricted' },
  auditRetention: { days: 30, bytesMax: 1e9 },
});
const { vaults, credentials } = store.control;

function recordUse(credentialId: string, id: string): void {
  store.audit.record({
    id,
    createdAt: Date.now(),
    sessionId: null,
    method: 'GET',
    scheme: 'https',
    host: 'a.example',
    port: 443,
    path: '/',
    httpVersion: '1.1',
    status: 200,
    outcome: 'forwarded',
    reason: null,
    durationMs: 1,
    requestBytes: 1,
    responseBytes: 1,
    swaps: [{ credentialId, secretName: 'API_KEY', secretVersion: 1, location: 'header', count: 1 }],
    misses: [],
    veils: [],
  });
}

for (let n = 0; ; n += 1) {
  const vault = await vaults.create({ displayName: 'v', metadata: {} });
  const made = await credentials.create(newCredential(vault.id));
  if (n % 3 === 0)
    await credentials.update(vault.id, made.id, { secretValue: Secret.fromText('rotated by the child') });
  for (let i = 0; i < EVENTS_PER_CREDENTIAL; i += 1) recordUse(made.id, `aud_${process.pid}_${n}_${i}`);
  process.stdout.write(`${vault.id} ${made.id}\n`);
  await new Promise((resolve) => setImmediate(resolve));
}
