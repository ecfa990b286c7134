// Leaves: short-lived server certificates for one host each, all with this process's one key.
import { generateKeyPairSync } from 'node:crypto';
import { bareHost, isAddressLiteral } from '../model/authority.ts';
import { parseAddress } from '../model/ip-class.ts';
import { CERTIFICATE_BACKDATE_DAYS, LEAF_LIFETIME_DAYS } from '../model/limits.ts';
import { formatPem } from './pem.ts';
import { DAY_MS } from './root-material.ts';
import { buildLeafCertificate, createSubjectKey, type Issuer, type LeafName, type SubjectKey } from './x509.ts';

export interface LeafKey {
  /** PKCS #8. */
  readonly privateKeyPem: string;
  readonly subjectKey: SubjectKey;
}

export interface Leaf {
  readonly certificatePem: string;
  /** Milliseconds since the epoch. */
  readonly notAfter: number;
}

/** Makes a P-256 key. It is never stored: the next process makes its own. */
export function createLeafKey(): LeafKey {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return {
    privateKeyPem: formatPem('PRIVATE KEY', privateKey.export({ type: 'pkcs8', format: 'der' })),
    subjectKey: createSubjectKey(publicKey),
  };
}

function leafName(host: string): LeafName {
  const name = bareHost(host);
  if (!isAddressLiteral(host)) return { kind: 'dns', name };
  return { kind: 'ip', name, bytes: parseAddress(name) as Uint8Array };
}

/**
 * Signs a leaf for a host in normal form (see Authority). It is valid from a day before `now`, for clients whose clock
 * is behind, and never longer than its issuer.
 */
export function mintLeaf(
  host: string,
  options: { readonly issuer: Issuer; readonly key: LeafKey; readonly now: number },
): Leaf {
  const { issuer, key, now } = options;
  const validity = {
    notBefore: now - CERTIFICATE_BACKDATE_DAYS * DAY_MS,
    notAfter: Math.min(now + LEAF_LIFETIME_DAYS * DAY_MS, issuer.notAfter),
  };
  const der = buildLeafCertificate(leafName(host), { issuer, key: key.subjectKey, validity });
  return { certificatePem: formatPem('CERTIFICATE', der), notAfter: validity.notAfter };
}
