// Textual encodings of certificates and keys (RFC 7468).
import { X509Certificate } from 'node:crypto';
import { StartError } from '../model/errors.ts';

export interface PemBlock {
  /** Such as `CERTIFICATE`. */
  readonly label: string;
  /** From the BEGIN line to the END line, with a line break at the end. */
  readonly text: string;
}

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----\r?\n[A-Za-z0-9+/=\s]+-----END \1-----/g;

/** The blocks in order. Text around them is explanatory and left out (RFC 7468 section 5.2). */
export function parsePemBlocks(text: string): PemBlock[] {
  return Array.from(text.matchAll(BLOCK), (match) => ({ label: match[1] as string, text: `${match[0]}\n` }));
}

/** DER in the lines of 64 characters that RFC 7468 section 2 asks for. */
export function formatPem(label: string, der: Buffer): string {
  const lines = der.toString('base64').replaceAll(/.{64}(?=.)/g, '$&\n');
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}

/**
 * Reads an operator's file of certificates. Returns each as PEM without comments, once. Throws a StartError that names
 * the source when it holds none, a broken one, or anything else such as a key.
 */
export function parseCertificates(text: string, source: string): readonly string[] {
  const blocks = parsePemBlocks(text);
  if (blocks.length === 0) {
    throw new StartError(`${source} holds no certificate. It must hold CA certificates in PEM form.`);
  }
  const certificates = blocks.map((block, index) => {
    if (block.label !== 'CERTIFICATE') {
      throw new StartError(`${source} must hold certificates only, but block ${index + 1} is "${block.label}".`);
    }
    try {
      return new X509Certificate(block.text).toString();
    } catch (cause) {
      throw new StartError(`${source} holds a certificate that can't be read: block ${index + 1}.`, { cause });
    }
  });
  return [...new Set(certificates)];
}
