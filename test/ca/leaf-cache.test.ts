// The leaf cache: real handshakes for every kind of host, one mint per host, its bound, renewal, rotation, resumption.
import { execFile } from 'node:child_process';
import { createPublicKey, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ConnectionOptions } from 'node:tls';
import { promisify } from 'node:util';
import { test, type Test } from 'tap';
import { createCaExport } from '../../ca/bundle.ts';
import { createLeafCache, TICKET_KEY_BYTES, type LeafCacheOptions } from '../../ca/leaf-cache.ts';
import { openRoot } from '../../ca/root.ts';
import type { LeafSource } from '../../model/ports.ts';
import { createManualClock } from '../support/manual-clock.ts';
import { createMemorySealedItems } from '../support/memory-sealed-items.ts';
import { skipWithout } from '../support/programs.ts';
import { handshake, openTlsHost } from '../support/tls-host.ts';

const HALF_DAY_MS = 43_200_000;
const label = 'a'.repeat(63);
const longest = `${label}.${label}.${label}.${'a'.repeat(61)}`;
const hosts = ['api.example.com', longest, '192.0.2.7', '[2001:db8::7]'];

// The clients' clocks are the machine's, so the authority's starts there (or before it, where it is to be moved).
async function openAuthority(options: Partial<LeafCacheOptions> & { readonly startsMsAgo?: number } = {}) {
  const { startsMsAgo = 0, ...cacheOptions } = options;
  const clock = createManualClock(Date.now() - startsMsAgo);
  const root = await openRoot(createMemorySealedItems(), { clock, hostName: 'test' });
  const cache = createLeafCache(root, { clock, ...cacheOptions });
  return { clock, root, cache, files: createCaExport(root, { publicRoots: [] }) };
}

async function serve(t: Test, cache: LeafSource, host: string) {
  const server = await openTlsHost(() => cache.contextFor(host));
  t.teardown(() => server.close());
  return server;
}

test('a client that trusts ca.pem completes a handshake with every kind of host', async (t) => {
  const { cache, files } = await openAuthority();
  for (const host of hosts) {
    const { port } = await serve(t, cache, host);
    const result = await handshake(host, { port, ca: files.caPem() });
    t.equal(result.text, 'served', host);
    t.equal(result.protocol, 'TLSv1.3');
    const older = await handshake(host, { port, ca: files.caPem(), maxVersion: 'TLSv1.2' });
    t.equal(older.protocol, 'TLSv1.2');
    await t.rejects(handshake('other.example.com', { port, ca: files.caPem() }), {
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
    });
    await t.rejects(handshake(host, { port }), { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
  }
});

test('the cheapest of the strong ciphers that a client offers is taken', async (t) => {
  const { cache, files } = await openAuthority();
  const { port } = await serve(t, cache, 'api.example.com');
  const cipherFor = async (options: Omit<ConnectionOptions, 'port'>): Promise<string> =>
    (await handshake('api.example.com', { port, ca: files.caPem(), ...options })).cipher;
  t.equal(await cipherFor({}), 'TLS_AES_128_GCM_SHA256');
  t.equal(
    await cipherFor({ ciphers: 'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256' }),
    'TLS_AES_256_GCM_SHA384',
  );
  t.equal(await cipherFor({ maxVersion: 'TLSv1.2' }), 'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256');
  await t.rejects(cipherFor({ maxVersion: 'TLSv1.2', ciphers: 'NULL-SHA256:@SECLEVEL=0' }));
});

test('the server sends its leaf alone, and nothing older than TLS 1.2', async (t) => {
  const { cache } = await openAuthority();
  const server = await serve(t, cache, 'api.example.com');
  const unverified = { port: server.port, rejectUnauthorized: false, ca: [] };
  t.equal((await handshake('api.example.com', unverified)).chainLength, 0);
  const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
  await t.rejects(handshake('api.example.com', { ...unverified, ...old }));
  t.match(server.lastError(), /unsupported protocol/);
});

const PYTHON_CLIENT = `
import json, socket, ssl, sys
bundle, hosts = sys.argv[1], json.loads(sys.argv[2])
context = ssl.create_default_context(cafile=bundle)
context.verify_flags |= ssl.VERIFY_X509_STRICT
for host, port in hosts:
    with socket.create_connection(('127.0.0.1', port)) as raw:
        with context.wrap_socket(raw, server_hostname=host) as secure:
            print(secure.recv(16).decode())
`;

test("Python's strict verification accepts every kind of host", { skip: skipWithout('python3') }, async (t) => {
  const { cache, files } = await openAuthority();
  const bundle = join(t.testdir(), 'ca-bundle.pem');
  writeFileSync(bundle, files.bundlePem());
  const pairs: [string, number][] = [];
  for (const host of hosts) pairs.push([host.replaceAll(/[[\]]/g, ''), (await serve(t, cache, host)).port]);
  const { stdout } = await promisify(execFile)('python3', ['-c', PYTHON_CLIENT, bundle, JSON.stringify(pairs)]);
  t.equal(stdout, 'served\n'.repeat(hosts.length));
});

test('calls for one host mint once, hosts mint one per turn of the loop, and a hit answers at once', async (t) => {
  const { cache } = await openAuthority();
  const first = cache.contextFor('a.example');
  t.equal(cache.contextFor('a.example'), first, 'the same mint');
  const second = cache.contextFor('b.example');
  const third = cache.contextFor('c.example');
  t.same(cache.stats(), { entries: 0, hits: 0, mints: 0 });
  const context = await first;
  t.equal(cache.stats().mints, 1, 'other work can run before the next mint');
  t.equal(cache.contextFor('a.example'), context);
  t.not(await second, context);
  await third;
  t.same(cache.stats(), { entries: 3, hits: 1, mints: 3 });
});

test('the least recently used host makes room', async (t) => {
  const { cache } = await openAuthority({ entriesMax: 3 });
  for (const host of ['a.example', 'b.example', 'c.example']) await cache.contextFor(host);
  t.notOk(cache.contextFor('a.example') instanceof Promise);
  await cache.contextFor('d.example');
  t.equal(cache.stats().entries, 3);
  t.notOk(cache.contextFor('a.example') instanceof Promise, 'used since');
  const again = cache.contextFor('b.example');
  t.type(again, Promise, 'the oldest use is gone');
  await again;
  t.equal(cache.stats().entries, 3);
  t.equal(cache.stats().mints, 5);
});

test('a leaf is renewed at half its life, and when the clock was set back', async (t) => {
  const { cache, clock } = await openAuthority();
  const first = await cache.contextFor('a.example');
  clock.advance(7 * HALF_DAY_MS - 1);
  t.equal(cache.contextFor('a.example'), first);
  clock.advance(1);
  const renewal = cache.contextFor('a.example');
  t.type(renewal, Promise);
  const renewed = await renewal;
  t.not(renewed, first);
  t.equal(cache.contextFor('a.example'), renewed);
  clock.advance(-HALF_DAY_MS);
  t.equal(cache.contextFor('a.example'), renewed, 'still a half day inside its validity');
  clock.advance(-1);
  t.type(cache.contextFor('a.example'), Promise, 'a client with this clock might refuse it soon');
  await cache.contextFor('a.example');
  t.equal(cache.stats().entries, 1);
});

test('a failed mint reaches all who wait for it, and the next call tries again', async (t) => {
  const { root, clock } = await openAuthority();
  let isBroken = true;
  const signer = root.signer();
  const broken = { ...signer, privateKey: createPublicKey(signer.privateKey) };
  const cache = createLeafCache({ signer: () => (isBroken ? broken : signer) }, { clock });
  const results = await Promise.allSettled(
    ['a.example', 'a.example', 'b.example'].map(async (host) => cache.contextFor(host)),
  );
  t.same(
    results.map((result) => result.status),
    ['rejected', 'rejected', 'rejected'],
  );
  isBroken = false;
  t.ok(await cache.contextFor('a.example'));
  t.same(cache.stats(), { entries: 1, hits: 0, mints: 1 });
});

test('a client with the old ca.pem works until the old root is retired, one with both works throughout', async (t) => {
  const { root, cache, files } = await openAuthority();
  const { port } = await serve(t, cache, 'api.example.com');
  const shake = (ca: string) => handshake('api.example.com', { port, ca });
  const oldPem = files.caPem();
  await shake(oldPem);

  await root.rotate();
  const bothPem = files.caPem();
  t.equal((await shake(oldPem)).text, 'served');
  t.equal((await shake(bothPem)).text, 'served');
  t.equal(cache.stats().mints, 1, 'the signer is still the same');

  await root.retire();
  t.equal((await shake(bothPem)).text, 'served');
  t.equal((await shake(files.caPem())).text, 'served');
  await t.rejects(shake(oldPem), { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
  t.equal(cache.stats().mints, 2);
  t.equal(cache.stats().entries, 1, 'leaves of the old root are gone');
});

test('a mint that waits while the root changes is signed by the new one', async (t) => {
  const [before, after] = [await openAuthority(), await openAuthority()];
  let root = before.root;
  const cache = createLeafCache({ signer: () => root.signer() }, { clock: before.clock });
  const pending = cache.contextFor('api.example.com');
  root = after.root;
  const context = await pending;
  t.equal(cache.contextFor('api.example.com'), context);
  const { port } = await serve(t, { contextFor: () => context }, 'api.example.com');
  t.equal((await handshake('api.example.com', { port, ca: after.files.caPem() })).text, 'served');
});

for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
  test(`a ${version} session is resumed for its host, past a renewal and in another process`, async (t) => {
    const ticketKeys = randomBytes(TICKET_KEY_BYTES);
    const { root, cache, clock, files } = await openAuthority({ ticketKeys, startsMsAgo: 8 * HALF_DAY_MS });
    const sibling = createLeafCache(root, { clock, ticketKeys });
    const stranger = createLeafCache(root, { clock });
    const [own, inSibling, inStranger] = await Promise.all(
      [cache, sibling, stranger].map((source) => serve(t, source, 'api.example.com')),
    );
    const otherHost = await serve(t, cache, 'other.example.com');
    const options = { ca: files.caPem(), minVersion: version, maxVersion: version };
    const first = await handshake('api.example.com', { ...options, port: own?.port as number });
    t.equal(first.isSessionReused, false);
    const session = first.session as Buffer;
    const resume = async (port: number | undefined, host = 'api.example.com') =>
      (await handshake(host, { ...options, port: port as number, session })).isSessionReused;

    t.equal(await resume(own?.port), true);
    t.equal(await resume(inSibling?.port), true, 'with the same ticket keys');
    t.equal(await resume(inStranger?.port), false, 'with others a full handshake is made');
    t.equal(await resume(otherHost.port, 'other.example.com'), false, 'a session belongs to one host');
    clock.advance(7 * HALF_DAY_MS);
    t.equal(await resume(own?.port), true, 'with the renewed leaf');
    t.equal(cache.stats().mints, 3);
  });
}
