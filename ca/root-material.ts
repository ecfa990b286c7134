// Roots as they are made, stored and read back: a certificate and its private key, in PEM, signer first.
import { createPrivateKey, generateKeyPairSync, X509Certificate, type KeyObject } from 'node:crypto';
import { StartError } from '../model/errors.ts';
import { CERTIFICATE_BACKDATE_DAYS, ROOT_LIFETIME_DAYS } from '../model/limits.ts';
import { Secret } from '../model/secret.ts';
import { formatPem, parsePemBlocks } from './pem.ts';
import { buildRootCertificate, COMMON_NAME_CHARACTERS_MAX, createIssuer, type Issuer } from './x509.ts';

export interface Root {
  readonly certificate: X509Certificate;
  readonly issuer: Issuer;
}

export const DAY_MS = 86_400_000;
// While a rotation overlaps there are two: the signer and the next one.
const ROOTS_MAX = 2;

/** `Keyveil CA HOST DATE`, within what a common name can hold. */
export function rootCommonName(hostName: string, now: number): string {
  const date = new Date(now).toISOString().slice(0, 10);
  const room = COMMON_NAME_CHARACTERS_MAX - 'Keyveil CA '.length - ` ${date} 9999`.length;
  const host = hostName.replaceAll(/[^A-Za-z0-9.-]+/g, '-').slice(0, room);
  return `Keyveil CA ${host === '' ? 'localhost' : host} ${date}`;
}

/** The name of a day's next root: numbered behind the one before, when that is of the same day. */
export function nextCommonName(before: string, name: string): string {
  const ending = before.startsWith(name) ? /^(?: ([1-9][0-9]{0,3}))?$/.exec(before.slice(name.length)) : null;
  return ending === null ? name : `${name} ${Number(ending[1] ?? 1) + 1}`;
}

/** Makes a root with a new P-256 key, valid from a day before `now` (milliseconds since the epoch). */
export function createRoot(commonName: string, now: number): Root {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const validity = {
    notBefore: now - CERTIFICATE_BACKDATE_DAYS * DAY_MS,
    notAfter: now + ROOT_LIFETIME_DAYS * DAY_MS,
  };
  const certificate = new X509Certificate(buildRootCertificate(commonName, { publicKey, privateKey, validity }));
  return { certificate, issuer: createIssuer(certificate, privateKey) };
}

/** The form in which roots are sealed. */
export function formatRoots(roots: readonly Root[]): Secret {
  const texts = roots.map(({ certificate, issuer }) => {
    const key = issuer.privateKey.export({ type: 'pkcs8', format: 'der' });
    return certificate.toString() + formatPem('PRIVATE KEY', key);
  });
  return Secret.fromText(texts.join(''));
}

function refuse(reason: string, cause?: unknown): never {
  throw new StartError(
    `The CA's root in the database is not usable: ${reason}. Nothing was changed or made anew. ` +
      'Restore the data directory from a backup.',
    cause === undefined ? undefined : { cause },
  );
}

function readPair(certificatePem: string, keyPem: string): { certificate: X509Certificate; privateKey: KeyObject } {
  try {
    return { certificate: new X509Certificate(certificatePem), privateKey: createPrivateKey(keyPem) };
  } catch (cause) {
    return refuse("its certificate or key can't be read", cause);
  }
}

function parseRoot(certificatePem: string, keyPem: string): Root {
  const { certificate, privateKey } = readPair(certificatePem, keyPem);
  if (privateKey.asymmetricKeyDetails?.namedCurve !== 'prime256v1') refuse('its key is not a P-256 key');
  if (!certificate.checkPrivateKey(privateKey)) refuse('its key does not belong to its certificate');
  if (!certificate.ca) refuse('its certificate is not one of a CA');
  if (!certificate.verify(certificate.publicKey)) refuse('its certificate is not signed by its own key');
  return { certificate, issuer: createIssuer(certificate, privateKey) };
}

/** Reads what formatRoots wrote. Throws a StartError that says what is wrong and quotes nothing. */
export function parseRoots(sealed: Secret): readonly Root[] {
  const text = sealed.reveal().toString('latin1');
  const blocks = parsePemBlocks(text);
  if (blocks.map((block) => block.text).join('') !== text) refuse('it is damaged');
  const roots: Root[] = [];
  for (let index = 0; index < blocks.length; index += 2) {
    const [certificate, key] = blocks.slice(index, index + 2);
    if (certificate?.label !== 'CERTIFICATE' || key?.label !== 'PRIVATE KEY') {
      return refuse('it is not a certificate followed by its key');
    }
    roots.push(parseRoot(certificate.text, key.text));
  }
  if (roots.length === 0 || roots.length > ROOTS_MAX) refuse(`it holds ${roots.length} roots`);
  return roots;
}
