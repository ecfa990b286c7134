// The root: its form, its creation and refusal at start, its rotation, and what clients are given.
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { test } from 'tap';
import { createCaExport } from '../../ca/bundle.ts';
import { createLeafKey, mintLeaf } from '../../ca/leaf.ts';
import { formatPem, parseCertificates, parsePemBlocks } from '../../ca/pem.ts';
import {
  createRoot,
  formatRoots,
  nextCommonName,
  parseRoots,
  rootCommonName,
  type Root,
} from '../../ca/root-material.ts';
import { openRoot } from '../../ca/root.ts';
import { buildRootCertificate } from '../../ca/x509.ts';
import { KeyveilError, StartError } from '../../model/errors.ts';
import type { Secret } from '../../model/secret.ts';
import { createManualClock } from '../support/manual-clock.ts';
import { createMemorySealedItems } from '../support/memory-sealed-items.ts';
import { skipWithout } from '../support/programs.ts';

const NOW = Date.UTC(2026, 10, 30, 12);
const DAY_MS = 86_400_000;
const ITEM = 'ca/roots';

async function openTestRoot(items = createMemorySealedItems(), clock = createManualClock(NOW)) {
  const root = await openRoot(items, { clock, hostName: 'build-7' });
  return { root, items, clock, first: root.certificates()[0] as X509Certificate };
}

test('the first start creates a root that signs itself, names host and date, and lasts ten years', async (t) => {
  const { root, first } = await openTestRoot();
  t.equal(first.subject, 'CN=Keyveil CA build-7 2026-11-30');
  t.equal(first.issuer, first.subject);
  t.ok(first.ca);
  t.ok(first.verify(first.publicKey));
  t.ok(first.checkIssued(first));
  t.equal(first.publicKey.asymmetricKeyDetails?.namedCurve, 'prime256v1');
  t.equal(Date.parse(first.validFrom), NOW - DAY_MS);
  t.equal(Date.parse(first.validTo), NOW + 3650 * DAY_MS);
  t.match(first.serialNumber, /^[4-7][0-9A-F]{31}$/, 'a positive number of 128 bits');
  t.same(root.status(), {
    signer: {
      commonName: 'Keyveil CA build-7 2026-11-30',
      fingerprint: first.fingerprint256,
      notBefore: NOW - DAY_MS,
      notAfter: NOW + 3650 * DAY_MS,
    },
    next: null,
  });
});

test('OpenSSL reads the root as it was meant', { skip: skipWithout('openssl', 'version') }, async (t) => {
  const { first } = await openTestRoot();
  const path = join(t.testdir(), 'ca.pem');
  writeFileSync(path, first.toString());
  const text = execFileSync('openssl', ['x509', '-in', path, '-noout', '-text'], { encoding: 'utf8' });
  t.match(text, /Version: 3/);
  t.match(text, /Signature Algorithm: ecdsa-with-SHA256/);
  t.match(text, /X509v3 Basic Constraints: critical\s+CA:TRUE, pathlen:0\n/);
  t.match(text, /X509v3 Key Usage: critical\s+Certificate Sign, CRL Sign\n/);
  t.match(text, /X509v3 Subject Key Identifier:/);
  t.notMatch(text, /X509v3 (?:Extended Key Usage|Subject Alternative Name)/);
  const verified = execFileSync(
    'openssl',
    ['verify', '-x509_strict', '-check_ss_sig', '-attime', seconds(NOW)].concat('-CAfile', path, path),
    {
      encoding: 'utf8',
    },
  );
  t.equal(verified, `${path}: OK\n`);
});

function seconds(ms: number): string {
  return String(ms / 1000);
}

test('a certificate that ends after 2049 says so in a GeneralizedTime', async (t) => {
  const late = createManualClock(Date.UTC(2045, 0, 1));
  const { root, first } = await openTestRoot(createMemorySealedItems(), late);
  t.equal(Date.parse(first.validTo), late.now() + 3650 * DAY_MS);
  t.ok(first.raw.includes('20541230000000Z'));
  t.ok(first.raw.includes('441231000000Z'));
  t.ok(first.verify(first.publicKey));
  late.advance(3649 * DAY_MS);
  const leaf = mintLeaf('api.example.com', { issuer: root.signer(), key: createLeafKey(), now: late.now() });
  t.equal(leaf.notAfter, Date.parse(first.validTo), 'a leaf never outlives its root');
  t.equal(Date.parse(new X509Certificate(leaf.certificatePem).validTo), leaf.notAfter);
});

test('a host name that is long, odd or empty still gives a valid common name', (t) => {
  t.equal(rootCommonName('büro mac_1', NOW), 'Keyveil CA b-ro-mac-1 2026-11-30');
  t.equal(rootCommonName('', NOW), 'Keyveil CA localhost 2026-11-30');
  const long = rootCommonName('a'.repeat(300), NOW);
  t.equal(`${long} 9999`.length, 64, 'with room for what tells two roots of a day apart');
  t.end();
});

test('a later start opens the same root, and nothing that is printed holds its key', async (t) => {
  const { items, root } = await openTestRoot();
  const again = await openTestRoot(items, createManualClock(NOW + 400 * DAY_MS));
  t.same(again.root.status(), root.status());
  const stored = items.bytes.get(ITEM)?.toString('latin1') ?? '';
  const key = parsePemBlocks(stored)[1]?.text.split('\n')[1] ?? '';
  t.equal(key.length, 64);
  const shown = JSON.stringify(again.root.status()) + createCaExport(root).caPem();
  t.notOk(shown.includes(key));
  t.equal(String(await items.get(ITEM)), '[secret]');
});

test('material that is damaged or not ours stops the start and is left as it is', async (t) => {
  const root = createRoot('Keyveil CA test', NOW);
  const other = createRoot('Keyveil CA other', NOW);
  const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
  const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const validity = { notBefore: NOW, notAfter: NOW + DAY_MS };
  const notSelfSigned = buildRootCertificate('x', {
    publicKey: stranger.publicKey,
    privateKey: root.issuer.privateKey,
    validity,
  });
  const leafKey = createLeafKey();
  const leaf = mintLeaf('api.example.com', { issuer: root.issuer, key: leafKey, now: NOW });
  const keyPem = (from: Root) => parsePemBlocks(textOf([from]))[1]?.text ?? '';
  const cases: Record<string, readonly [bytes: string, reason: RegExp]> = {
    'other bytes': ['\x00\x01\x02', /it is damaged/],
    'no bytes': ['', /it holds 0 roots/],
    'text after it': [`${textOf([root])}more`, /it is damaged/],
    'a certificate without a key': [root.certificate.toString(), /certificate followed by its key/],
    'a key without a certificate': [keyPem(root), /certificate followed by its key/],
    'a key before its certificate': [keyPem(root) + root.certificate.toString(), /certificate followed by its key/],
    'a broken certificate': [
      formatPem('CERTIFICATE', root.certificate.raw.subarray(0, 99)) + keyPem(root),
      /certificate or key can't be read/,
    ],
    'a broken key': [
      root.certificate.toString() + formatPem('PRIVATE KEY', Buffer.alloc(99)),
      /certificate or key can't be read/,
    ],
    'a key of another curve': [
      root.certificate.toString() + formatPem('PRIVATE KEY', p384.export({ type: 'pkcs8', format: 'der' })),
      /not a P-256 key/,
    ],
    "another root's key": [root.certificate.toString() + keyPem(other), /does not belong/],
    'a leaf': [leaf.certificatePem + leafKey.privateKeyPem, /not one of a CA/],
    'a CA that another one signed': [
      formatPem('CERTIFICATE', notSelfSigned) +
        formatPem('PRIVATE KEY', stranger.privateKey.export({ type: 'pkcs8', format: 'der' })),
      /not signed by its own key/,
    ],
    'three roots': [textOf([root, other, createRoot('Keyveil CA third', NOW)]), /it holds 3 roots/],
  };
  for (const [name, [text, reason]] of Object.entries(cases)) {
    const items = createMemorySealedItems();
    items.bytes.set(ITEM, Buffer.from(text, 'latin1'));
    const error = await openTestRoot(items).then(
      () => null,
      (error: unknown) => error,
    );
    t.type(error, StartError, name);
    t.match(String(error), reason, name);
    t.match(String(error), /Nothing was changed or made anew\. Restore/, name);
    t.equal(items.bytes.get(ITEM)?.toString('latin1'), text, `${name}: nothing was written`);
  }
});

function textOf(roots: readonly Root[]): string {
  return formatRoots(roots).reveal().toString('latin1');
}

test('a root that the master key does not open stops the start', async (t) => {
  const cause = new KeyveilError('credential_unreadable', 'The tag does not fit.');
  const items = { ...createMemorySealedItems(), get: async () => Promise.reject(cause) };
  const error = await openRoot(items, { clock: createManualClock(NOW), hostName: 'x' }).catch(
    (error: unknown) => error,
  );
  t.type(error, StartError);
  t.match(String(error), /can't be opened.*master key/);
  t.equal((error as StartError).cause, cause);
});

test('a rotation exports both roots, keeps the signer until the old one is retired, and can be repeated', async (t) => {
  const { root, items, first } = await openTestRoot();
  const oldSigner = root.signer();
  const before = root.generation();
  const [status, repeated] = await Promise.all([root.rotate(), root.rotate()]);
  t.same(repeated, status, 'a second rotation finds the first and makes no third root');
  t.equal(status.signer.fingerprint, first.fingerprint256);
  t.equal(status.next?.commonName, 'Keyveil CA build-7 2026-11-30 2', 'two roots of a day have two names');
  t.equal(root.signer(), oldSigner);
  t.not(root.generation(), before);
  t.equal(root.certificates().length, 2);
  t.same((await openTestRoot(items)).root.status(), status, 'a restart in the overlap goes on with it');

  const retired = await root.retire();
  t.equal(retired.signer.fingerprint, status.next?.fingerprint);
  t.equal(retired.next, null);
  t.not(root.signer(), oldSigner);
  t.same(await root.retire(), retired, 'nothing is left to retire');
  t.same((await openTestRoot(items)).root.status(), retired);
  t.equal(parseRoots((await items.get(ITEM)) as Secret).length, 1, 'the old key is gone');
});

test('a rotation on another day names that day', async (t) => {
  const { root, clock } = await openTestRoot();
  clock.advance(2 * DAY_MS);
  t.equal((await root.rotate()).next?.commonName, 'Keyveil CA build-7 2026-12-02');
});

test('another process sees a rotation when it reloads, and never undoes it', async (t) => {
  const { root, items } = await openTestRoot();
  const worker = (await openTestRoot(items)).root;
  const signer = worker.signer();
  t.equal(await worker.reload(), false);
  t.equal(worker.generation(), 1);

  const rotated = await root.rotate();
  t.equal(await worker.reload(), true);
  t.same(worker.status(), rotated);
  t.equal(worker.signer(), signer, 'the same signer is the same object: no leaf is minted anew');

  const late = (await openTestRoot(items)).root;
  const retired = await root.retire();
  t.same(await late.rotate().then((status) => status.signer), retired.signer, 'it reads before it writes');
  t.equal(await worker.reload(), true);
  t.equal(worker.status().signer.fingerprint, retired.signer.fingerprint);
});

test('a rotation that can not be stored changes nothing, and the next one works', async (t) => {
  const items = createMemorySealedItems();
  let isFull = false;
  const fragile = {
    ...items,
    put: async (name: string, value: Secret) =>
      isFull ? Promise.reject(new Error('disk full')) : items.put(name, value),
  };
  const root = await openRoot(fragile, { clock: createManualClock(NOW), hostName: 'x' });
  const before = root.status();
  isFull = true;
  await t.rejects(root.rotate(), /disk full/);
  t.same(root.status(), before);
  isFull = false;
  t.ok((await root.rotate()).next);
  items.bytes.clear();
  await t.rejects(root.reload(), { name: 'StartError', message: /gone from the database/ });
  t.ok(root.status().next, 'what was known is still served');
});

test('the exports hold the roots, the public ones and those of the operator, each once', async (t) => {
  const { root, first } = await openTestRoot();
  const operators = createRoot('Corporate CA', NOW).certificate.toString();
  const files = createCaExport(root, { upstreamCas: [operators, operators] });
  t.equal(files.caPem(), first.toString());
  const bundle = parsePemBlocks(files.bundlePem()).map((block) => block.text);
  t.same(bundle.slice(0, 2), [first.toString(), operators]);
  t.equal(bundle.length, 2 + rootCertificates.length);
  t.ok(rootCertificates.every((pem) => bundle.includes(`${pem}\n`)));
  t.equal(bundle.map((pem) => new X509Certificate(pem).ca).filter((isCa) => isCa).length > 100, true);

  await root.rotate();
  const both = root.certificates().map((certificate) => certificate.toString());
  t.equal(files.caPem(), both.join(''));
  t.ok(files.bundlePem().startsWith(both.join('')));
  await root.retire();
  t.equal(files.caPem(), both[1]);
  t.notOk(files.bundlePem().includes(first.toString()));
  const own = createCaExport(root, { publicRoots: [] });
  t.equal(own.bundlePem(), own.caPem());
});

test("an operator's file of CAs is read without its comments, and refused when it holds anything else", (t) => {
  const [one, two] = [createRoot('One', NOW), createRoot('Two', NOW)].map((root) => root.certificate.toString());
  const file = `# Corporate CA\n${one?.replaceAll('\n', '\r\n')}\nsubject=two\n${two}${one}`;
  t.same(parseCertificates(file, 'KEYVEIL_UPSTREAM_CA_FILE (/etc/ca.pem)'), [one, two]);
  const refusals: Record<string, RegExp> = {
    '': /^ca\.pem holds no certificate\. It must hold CA certificates in PEM form\.$/,
    [textOf([createRoot('x', NOW)])]: /^ca\.pem must hold certificates only, but block 2 is "PRIVATE KEY"\.$/,
    [one + formatPem('CERTIFICATE', Buffer.alloc(80))]: /^ca\.pem holds a certificate that can't be read: block 2\.$/,
  };
  for (const [text, message] of Object.entries(refusals)) {
    t.throws(() => parseCertificates(text, 'ca.pem'), { name: 'StartError', message });
  }
  t.end();
});

test('no two roots of a day have one name, however often it is rotated', (t) => {
  const day = rootCommonName('build-7', NOW);
  const names = [day];
  for (let rotation = 0; rotation < 12; rotation += 1) names.push(nextCommonName(names.at(-1) ?? '', day));
  t.equal(new Set(names).size, 13);
  t.equal(names.at(-1), `${day} 13`);
  t.equal(nextCommonName('Keyveil CA build-7 2026-11-29 4', day), day);
  t.equal(nextCommonName(`${day}-else`, day), day);
  t.end();
});
