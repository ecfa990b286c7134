// A certificate authority made for one test, with leaves for any name, address or time (X.509 in DER, RFC 5280).
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { isIP } from 'node:net';
import { parseAddress } from '../../model/ip-class.ts';

const DAY_MS = 24 * 3600 * 1000;

export interface TestLeaf {
  readonly key: string;
  readonly cert: string;
}

interface TestLeafOptions {
  readonly notBefore?: Date;
  readonly notAfter?: Date;
}

export interface TestAuthority {
  /** PEM of the root. */
  readonly caPem: string;
  /** A leaf for host names and addresses. */
  leafFor(names: readonly string[], options?: TestLeafOptions): TestLeaf;
}

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const size = content.length;
  if (size < 128) return Buffer.concat([Buffer.of(tag, size), content]);
  const bytes = size < 256 ? Buffer.of(size) : Buffer.of(size >>> 8, size & 255);
  return Buffer.concat([Buffer.of(tag, 128 + bytes.length), bytes, content]);
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts);
const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'));
const ecdsaSha256 = sequence(oid('2a8648ce3d040302'));

function nameOf(commonName: string): Buffer {
  return sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from(commonName)))));
}

function time(date: Date): Buffer {
  const digits = date.toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  return der(0x18, Buffer.from(digits));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return sequence(oid(id), ...(isCritical ? [der(0x01, Buffer.of(255))] : []), der(0x04, value));
}

function alternativeName(name: string): Buffer {
  return isIP(name) === 0 ? der(0x82, Buffer.from(name)) : der(0x87, parseAddress(name) as Uint8Array);
}

function pem(label: string, bytes: Buffer): string {
  return `-----BEGIN ${label}-----\n${(bytes.toString('base64').match(/.{1,64}/g) ?? []).join('\n')}\n-----END ${label}-----\n`;
}

/** A fresh root with a P-256 key. */
export function createTestAuthority(commonName = 'Test Root'): TestAuthority {
  const root = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leafKeys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const keyId = (spki: Buffer): Buffer => createHash('sha1').update(spki.subarray(-65)).digest();
  const rootSpki = root.publicKey.export({ type: 'spki', format: 'der' });

  function certificate(subject: string, spki: Buffer, details: TestLeafOptions & { extensions: Buffer[] }): string {
    const serial = randomBytes(16);
    serial[0] = ((serial[0] as number) & 0x7f) | 0x40;
    const { notBefore = new Date(Date.now() - DAY_MS), notAfter = new Date(Date.now() + DAY_MS) } = details;
    const body = sequence(
      der(0xa0, der(0x02, Buffer.of(2))),
      der(0x02, serial),
      ecdsaSha256,
      nameOf(commonName),
      sequence(time(notBefore), time(notAfter)),
      nameOf(subject),
      spki,
      der(0xa3, sequence(...details.extensions)),
    );
    const signature = sign('sha256', body, root.privateKey);
    return pem('CERTIFICATE', sequence(body, ecdsaSha256, der(0x03, Buffer.of(0), signature)));
  }

  const caPem = certificate(commonName, rootSpki, {
    extensions: [
      extension('551d13', true, sequence(der(0x01, Buffer.of(255)))),
      extension('551d0f', true, der(0x03, Buffer.of(1, 0x06))),
      extension('551d0e', false, der(0x04, keyId(rootSpki))),
    ],
  });
  const leafSpki = leafKeys.publicKey.export({ type: 'spki', format: 'der' });
  const key = leafKeys.privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
  return {
    caPem,
    leafFor(names, options = {}) {
      const extensions = [
        extension('551d11', false, sequence(...names.map(alternativeName))),
        extension('551d23', false, sequence(der(0x80, keyId(rootSpki)))),
      ];
      return { key, cert: certificate(names[0] ?? 'nobody', leafSpki, { ...options, extensions }) };
    },
  };
}
