// Fills a data directory with so many credentials and sessions, through the product's own store.
import { mkdirSync } from 'node:fs';
import process from 'node:process';
import { openKeys } from '../../daemon/keys.ts';
import type { Logger } from '../../model/ports.ts';
import { Secret } from '../../model/secret.ts';
import { openStore } from '../../store/open-store.ts';
import { newCredential, newSession, SESSION_SETTINGS } from '../../test/support/store.ts';

const CREDENTIALS_PER_VAULT = 20;

const [directory = '', credentials = '0', sessions = '0'] = process.argv.slice(2);
const silent = (): void => undefined;
const logger: Logger = { debug: silent, info: silent, warn: silent, error: silent };
mkdirSync(directory, { recursive: true, mode: 0o700 });
const keys = openKeys({ dataDir: directory, masterKey: null, masterKeysPrevious: [] });
const store = await openStore({
  directory,
  keys: keys.ring,
  keySource: keys.source,
  clock: { now: () => Date.now() },
  logger,
  defaultNetworking: { type: 'unrestricted' },
  auditRetention: { days: 30, bytesMax: 2 ** 31 },
});
const vaultIds: string[] = [];
for (let count = 0; count < Number(credentials); count += CREDENTIALS_PER_VAULT) {
  const vault = await store.control.vaults.create({ displayName: `fill ${count}`, metadata: {} });
  vaultIds.push(vault.id);
  for (let index = 0; index < CREDENTIALS_PER_VAULT; index += 1) {
    const secretValue = Secret.fromText(`fill-value-of-some-length-${count}-${index}`);
    await store.control.credentials.create(newCredential(vault.id, { secretName: `FILL_${index}`, secretValue }));
  }
}
for (let count = 0; count < Number(sessions); count += 1) {
  const vaultId = vaultIds[count % vaultIds.length] as string;
  await store.control.sessions.create(newSession([vaultId]), SESSION_SETTINGS);
}
await store.close();
process.stdout.write('FILLED\n');
