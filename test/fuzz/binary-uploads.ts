// Sends binary uploads through the real proxy: node --import ./scripts/ts-register.mjs test/fuzz/binary-uploads.ts [count] [seed]
import { sendBinaryUploads } from '../support/binary-uploads.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

const count = Number(process.argv[2] ?? 10_000);
const seed = Number(process.argv[3] ?? Date.now() % 2 ** 32);
const authority = createTestAuthority();
const upstream = await startUpstream({ leaf: authority.leafFor(['api.test']) });
const policy = sessionPolicy([{ placeholder: placeholderOf('D'), value: 'the-real-value-of-the-key' }]);
const keyveil = await startTestProxy({ authority, overrides: { 'api.test:443': upstream.port }, policy });
const faults = await sendBinaryUploads({ keyveil, upstream, target: 'api.test:443', count, seed });
for (const fault of faults) console.error(fault);
console.log(`seed ${seed}: ${count} uploads, ${faults.length} faults`);
process.exitCode = faults.length === 0 ? 0 : 1;
await keyveil.close();
await upstream.close();
