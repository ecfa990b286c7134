// Builds X.509 certificates (RFC 5280): node-forge encodes the ASN.1, node:crypto has the keys and makes the signatures.
import { createHash, randomBytes, sign, type KeyObject, type X509Certificate } from 'node:crypto';
import type * as forge from 'node-forge';
// The encoder alone: all of node-forge would add 55 ms to the start.
// @ts-expect-error -- the types describe the package's main entry only
import untypedAsn1 from 'node-forge/lib/asn1.js';

const asn1 = untypedAsn1 as typeof forge.asn1;
const { Class, Type } = asn1;
type Asn1 = forge.asn1.Asn1;

/** A P-256 public key as certificates hold it. */
export interface SubjectKey {
  readonly spki: Asn1;
  /** Key identifier: the first 160 bits of the key's SHA-256 (RFC 7093 section 2, method 1). */
  readonly keyId: Buffer;
}

/** Who signs: its name as it stands in its own certificate, byte for byte, and its key. */
export interface Issuer {
  readonly name: Asn1;
  readonly keyId: Buffer;
  readonly privateKey: KeyObject;
  /** End of its own certificate's validity, milliseconds since the epoch. */
  readonly notAfter: number;
}

/** Milliseconds since the epoch; cut to whole seconds. */
export interface Validity {
  readonly notBefore: number;
  readonly notAfter: number;
}

/** What a leaf is for: a DNS name in ASCII, or the bytes of an IP address (4 or 16). */
export type LeafName =
  | { readonly kind: 'dns'; readonly name: string }
  | { readonly kind: 'ip'; readonly name: string; readonly bytes: Uint8Array };

const POINT_BYTES = 65;
const SERIAL_BYTES = 16;
// Upper bound of a common name (RFC 5280 appendix A.1, ub-common-name).
export const COMMON_NAME_CHARACTERS_MAX = 64;
// Validity through 2049 is a UTCTime, later a GeneralizedTime (RFC 5280 section 4.1.2.5).
const GENERALIZED_TIME_FROM = Date.UTC(2050, 0, 1);

function binary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
}

function der(value: Asn1): Buffer {
  return Buffer.from(asn1.toDer(value).getBytes(), 'latin1');
}

function primitive(type: forge.asn1.Type, value: string): Asn1 {
  return asn1.create(Class.UNIVERSAL, type, false, value);
}

function sequence(...items: Asn1[]): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.SEQUENCE, true, items);
}

/** A context-specific tag around one value (explicit) or with the content itself (implicit). */
function tagged(tag: number, content: string | Asn1): Asn1 {
  const isExplicit = typeof content !== 'string';
  return asn1.create(Class.CONTEXT_SPECIFIC, tag, isExplicit, isExplicit ? [content] : content);
}

function oid(dotted: string): Asn1 {
  return primitive(Type.OID, asn1.oidToDer(dotted).getBytes());
}

const VERSION_3 = tagged(0, primitive(Type.INTEGER, '\x02'));
const EC_P256 = sequence(oid('1.2.840.10045.2.1'), oid('1.2.840.10045.3.1.7'));
const ECDSA_WITH_SHA256 = sequence(oid('1.2.840.10045.4.3.2'));
const COMMON_NAME = oid('2.5.4.3');
const TRUE = primitive(Type.BOOLEAN, '\xff');
const EXTENSIONS = {
  subjectKeyIdentifier: oid('2.5.29.14'),
  keyUsage: oid('2.5.29.15'),
  subjectAltName: oid('2.5.29.17'),
  basicConstraints: oid('2.5.29.19'),
  authorityKeyIdentifier: oid('2.5.29.35'),
  extKeyUsage: oid('2.5.29.37'),
};

function extension(name: keyof typeof EXTENSIONS, isCritical: boolean, value: Asn1): Asn1 {
  const octets = primitive(Type.OCTETSTRING, asn1.toDer(value).getBytes());
  return isCritical ? sequence(EXTENSIONS[name], TRUE, octets) : sequence(EXTENSIONS[name], octets);
}

// The bits of a key usage (RFC 5280 section 4.2.1.3) after the number of unused ones.
const DIGITAL_SIGNATURE = extension('keyUsage', true, primitive(Type.BITSTRING, '\x07\x80'));
const CERT_AND_CRL_SIGN = extension('keyUsage', true, primitive(Type.BITSTRING, '\x01\x06'));
const SERVER_AUTH = extension('extKeyUsage', false, sequence(oid('1.3.6.1.5.5.7.3.1')));
const CA_WITHOUT_INTERMEDIATES = extension('basicConstraints', true, sequence(TRUE, primitive(Type.INTEGER, '\x00')));

function time(ms: number): Asn1 {
  const date = new Date(ms);
  return ms < GENERALIZED_TIME_FROM
    ? primitive(Type.UTCTIME, asn1.dateToUtcTime(date))
    : primitive(Type.GENERALIZEDTIME, asn1.dateToGeneralizedTime(date));
}

function distinguishedName(commonName: string | null): Asn1 {
  if (commonName === null) return sequence();
  const attribute = sequence(COMMON_NAME, primitive(Type.UTF8, commonName));
  return sequence(asn1.create(Class.UNIVERSAL, Type.SET, true, [attribute]));
}

/** 128 bits whose first two are 01: positive, and no leading byte that DER would call superfluous. */
function serialNumber(): Asn1 {
  const bytes = randomBytes(SERIAL_BYTES);
  bytes[0] = ((bytes[0] as number) & 0x3f) | 0x40;
  return primitive(Type.INTEGER, binary(bytes));
}

interface Certificate {
  readonly issuerName: Asn1;
  readonly subject: Asn1;
  readonly spki: Asn1;
  readonly validity: Validity;
  readonly extensions: readonly Asn1[];
}

function signCertificate(certificate: Certificate, privateKey: KeyObject): Buffer {
  const body = sequence(
    VERSION_3,
    serialNumber(),
    ECDSA_WITH_SHA256,
    certificate.issuerName,
    sequence(time(certificate.validity.notBefore), time(certificate.validity.notAfter)),
    certificate.subject,
    certificate.spki,
    tagged(3, sequence(...certificate.extensions)),
  );
  const signature = sign('sha256', der(body), privateKey);
  return der(sequence(body, ECDSA_WITH_SHA256, primitive(Type.BITSTRING, `\x00${binary(signature)}`)));
}

function keyIdentifier(keyId: Buffer): Asn1 {
  return extension('subjectKeyIdentifier', false, primitive(Type.OCTETSTRING, binary(keyId)));
}

/** Prepares a P-256 public key; its DER ends in the uncompressed point (RFC 5480 section 2). */
export function createSubjectKey(publicKey: KeyObject): SubjectKey {
  const point = publicKey.export({ type: 'spki', format: 'der' }).subarray(-POINT_BYTES);
  return {
    spki: sequence(EC_P256, primitive(Type.BITSTRING, `\x00${binary(point)}`)),
    keyId: createHash('sha256').update(point).digest().subarray(0, 20),
  };
}

/** Makes an issuer of a CA certificate and its private key. */
export function createIssuer(certificate: X509Certificate, privateKey: KeyObject): Issuer {
  const parsed = asn1.fromDer(binary(certificate.raw));
  const body = (parsed.value as Asn1[])[0] as Asn1;
  return {
    // Version, serial number, algorithm, issuer, validity, subject.
    name: (body.value as Asn1[])[5] as Asn1,
    keyId: createSubjectKey(certificate.publicKey).keyId,
    privateKey,
    notAfter: Date.parse(certificate.validTo),
  };
}

/** A self-signed CA certificate in DER that may sign leaves and revocation lists, and nothing else. */
export function buildRootCertificate(
  commonName: string,
  options: { readonly publicKey: KeyObject; readonly privateKey: KeyObject; readonly validity: Validity },
): Buffer {
  const { spki, keyId } = createSubjectKey(options.publicKey);
  const name = distinguishedName(commonName);
  const extensions = [CA_WITHOUT_INTERMEDIATES, CERT_AND_CRL_SIGN, keyIdentifier(keyId)];
  return signCertificate(
    { issuerName: name, subject: name, spki, validity: options.validity, extensions },
    options.privateKey,
  );
}

/**
 * A server certificate in DER for one name. A name that is too long for a common name stands in the subjectAltName
 * alone, which is then critical (RFC 5280 section 4.2.1.6).
 */
export function buildLeafCertificate(
  leaf: LeafName,
  options: { readonly issuer: Issuer; readonly key: SubjectKey; readonly validity: Validity },
): Buffer {
  const { issuer, key, validity } = options;
  const hasCommonName = leaf.name.length <= COMMON_NAME_CHARACTERS_MAX;
  // GeneralName: dNSName is [2], iPAddress is [7].
  const generalName = leaf.kind === 'dns' ? tagged(2, leaf.name) : tagged(7, binary(leaf.bytes));
  const extensions = [
    DIGITAL_SIGNATURE,
    SERVER_AUTH,
    extension('subjectAltName', !hasCommonName, sequence(generalName)),
    keyIdentifier(key.keyId),
    extension('authorityKeyIdentifier', false, sequence(tagged(0, binary(issuer.keyId)))),
  ];
  const subject = distinguishedName(hasCommonName ? leaf.name : null);
  return signCertificate({ issuerName: issuer.name, subject, spki: key.spki, validity, extensions }, issuer.privateKey);
}
