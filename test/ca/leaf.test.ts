// Leaves: their form for every kind of host, as Node and OpenSSL see it.
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'tap';
import { createLeafKey, mintLeaf } from '../../ca/leaf.ts';
import { createRoot } from '../../ca/root-material.ts';
import { normaliseHost } from '../../model/authority.ts';
import { skipWithout } from '../support/programs.ts';

const NOW = Date.UTC(2026, 10, 30, 12, 0, 0, 789);
const DAY_MS = 86_400_000;
const root = createRoot('Keyveil CA test 2026-11-30', NOW);
const key = createLeafKey();

const label = 'a'.repeat(63);
const names = {
  short: 'api.example.com',
  underscore: '_dmarc.under_score.example.com',
  idn: normaliseHost('bücher.example') as string,
  longestWithCommonName: `${'b'.repeat(60)}.com`,
  shortestWithout: `${'b'.repeat(61)}.com`,
  longest: `${label}.${label}.${label}.${'a'.repeat(61)}`,
};
const addresses = ['192.0.2.7', '[2001:db8::7]', '[::ffff:c000:207]', '[::]'];

function mint(host: string, now = NOW): X509Certificate {
  return new X509Certificate(mintLeaf(host, { issuer: root.issuer, key, now }).certificatePem);
}

test('a leaf for a name is signed by the root, names the host, and nothing else', (t) => {
  t.equal(names.longest.length, 253);
  for (const name of Object.values(names)) {
    const leaf = mint(name);
    t.ok(leaf.verify(root.certificate.publicKey), name);
    t.ok(leaf.checkIssued(root.certificate), name);
    t.equal(leaf.issuer, root.certificate.subject);
    t.equal(leaf.subjectAltName, `DNS:${name}`);
    t.equal(leaf.checkHost(name, { subject: 'never' }), name);
    t.equal(leaf.checkHost(`x.${name}`), undefined);
    t.equal(leaf.ca, false);
    // Node.js 20 says undefined where later ones have an empty string.
    t.equal(leaf.subject || null, name.length <= 64 ? `CN=${name}` : null, 'a common name of at most 64 characters');
  }
  t.equal(names.longestWithCommonName.length, 64);
  t.equal(names.shortestWithout.length, 65);
  t.end();
});

test('a leaf for an address has it as an iPAddress and no name', (t) => {
  for (const host of addresses) {
    const leaf = mint(host);
    const address = host.replaceAll(/[[\]]/g, '');
    t.equal(leaf.checkIP(address), address);
    t.match(leaf.subjectAltName, /^IP Address:[0-9A-F.:]+$/);
    t.equal(leaf.checkHost('example.com'), undefined);
    t.equal(leaf.subject, `CN=${address}`);
    t.ok(leaf.verify(root.certificate.publicKey));
  }
  t.equal(mint('192.0.2.7').checkIP('192.0.2.8'), undefined);
  t.end();
});

test('a leaf lasts a week, is valid a day back, and is cut to seconds', (t) => {
  const leaf = mint(names.short);
  const second = NOW - 789;
  t.equal(Date.parse(leaf.validFrom), second - DAY_MS);
  t.equal(Date.parse(leaf.validTo), second + 7 * DAY_MS);
  t.equal(mintLeaf(names.short, { issuer: root.issuer, key, now: NOW }).notAfter, NOW + 7 * DAY_MS);
  t.end();
});

test('the authority key identifier of a leaf is the subject key identifier of the root', (t) => {
  const leaf = mint(names.short);
  const identifier = /0603551d0e04160414([0-9a-f]{40})/;
  const [, ofRoot] = identifier.exec(root.certificate.raw.toString('hex')) ?? [];
  const [, ofLeaf] = identifier.exec(leaf.raw.toString('hex')) ?? [];
  t.equal(ofRoot?.length, 40);
  t.ok(leaf.raw.toString('hex').includes(`0603551d23041830168014${ofRoot}`));
  t.not(ofLeaf, ofRoot);
  t.end();
});

test('serial numbers are positive, have 128 bits, and differ', (t) => {
  const serials = Array.from({ length: 200 }, () => mint(names.short).serialNumber);
  t.ok(serials.every((serial) => /^[4-7][0-9A-F]{31}$/.test(serial)));
  t.equal(new Set(serials).size, serials.length);
  t.ok(new Set(serials.map((serial) => serial.slice(0, 2))).size > 16, 'the first byte is random too');
  t.end();
});

test('OpenSSL verifies every leaf by its strict rules', { skip: skipWithout('openssl', 'version') }, (t) => {
  const folder = t.testdir();
  const rootPath = join(folder, 'ca.pem');
  writeFileSync(rootPath, root.certificate.toString());
  const hosts = [
    ...Object.values(names).map((name) => ({ host: name, check: ['-verify_hostname', name] })),
    ...addresses.map((host) => ({ host, check: ['-verify_ip', host.replaceAll(/[[\]]/g, '')] })),
  ];
  const path = join(folder, 'leaf.pem');
  for (const { host, check } of hosts) {
    writeFileSync(path, mint(host).toString());
    const options = ['-x509_strict', '-purpose', 'sslserver', '-attime', String(Math.floor(NOW / 1000))];
    const output = execFileSync('openssl', ['verify', ...options, ...check, '-CAfile', rootPath, path]);
    t.equal(output.toString(), `${path}: OK\n`, host);
  }

  const text = (host: string): string => {
    writeFileSync(path, mint(host).toString());
    return execFileSync('openssl', ['x509', '-in', path, '-noout', '-text'], { encoding: 'utf8' });
  };
  const short = text(names.short);
  t.match(short, /Version: 3/);
  t.match(short, /Signature Algorithm: ecdsa-with-SHA256/);
  t.match(short, /ASN1 OID: prime256v1/);
  t.match(short, /X509v3 Key Usage: critical\s+Digital Signature\n/);
  t.match(short, /X509v3 Extended Key Usage: ?\n\s+TLS Web Server Authentication\n/);
  t.match(short, /X509v3 Subject Alternative Name: ?\n\s+DNS:api\.example\.com\n/);
  t.match(short, /X509v3 Subject Key Identifier:[^]*X509v3 Authority Key Identifier:/);
  t.notMatch(short, /X509v3 Basic Constraints/);
  const long = text(names.shortestWithout);
  t.match(long, /Subject: ?\n/, 'an empty subject');
  t.match(long, /X509v3 Subject Alternative Name: critical\n/, 'makes the alternative name critical');
  t.end();
});
