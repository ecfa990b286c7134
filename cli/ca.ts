// keyveil ca …: what sandboxes must trust.
import { X509Certificate } from 'node:crypto';
import { CLIENT_FLAGS, JSON_FLAGS, type Command } from './command.ts';
import type { Json } from './client.ts';
import { printList, printObject, type Column } from './output.ts';

const COLUMNS: readonly Column[] = [
  ['SUBJECT', (root) => root['subject']],
  ['FROM', (root) => root['not_before']],
  ['TO', (root) => root['not_after']],
  ['SHA-256', (root) => root['fingerprint']],
];

/** The certificates of a PEM text, for people. */
export function describeCertificates(pem: string): readonly Json[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.map((block) => {
    const certificate = new X509Certificate(block);
    return {
      subject: certificate.subject.replaceAll('\n', ', '),
      not_before: new Date(certificate.validFrom).toISOString(),
      not_after: new Date(certificate.validTo).toISOString(),
      fingerprint: certificate.fingerprint256,
    };
  });
}

async function* iterate(items: readonly Json[]): AsyncGenerator<Json> {
  yield* items;
}

function step(name: 'rotate' | 'retire', summary: string): Command {
  return {
    name: `ca ${name}`,
    summary,
    usage: '',
    examples: [`keyveil ca ${name}`],
    flags: JSON_FLAGS,
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      await printObject(invocation, await invocation.client().call('POST', `/v1/ca/${name}`, { body: {} }));
      return 0;
    },
  };
}

export const CA_COMMANDS: readonly Command[] = [
  {
    name: 'ca export',
    summary: 'Print the CA certificate, or the public roots and the CA, as PEM',
    usage: '[--bundle]',
    examples: ['keyveil ca export > ca.pem', 'keyveil ca export --bundle > ca-bundle.pem'],
    flags: {
      ...CLIENT_FLAGS,
      bundle: { type: 'boolean', help: 'the public roots as well, for clients that take one file' },
    },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      await invocation.terminal.out(
        await invocation.client().text(invocation.isOn('bundle') ? '/v1/ca-bundle.pem' : '/v1/ca.pem'),
      );
      return 0;
    },
  },
  {
    name: 'ca show',
    summary: 'Show the CA certificates with their fingerprints',
    usage: '',
    examples: ['keyveil ca show'],
    flags: JSON_FLAGS,
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      const certificates = describeCertificates(await invocation.client().text('/v1/ca.pem'));
      await printList(invocation, iterate(certificates), COLUMNS);
      return 0;
    },
  },
  step('rotate', 'Make the next CA and export it beside the old one, which goes on signing'),
  step('retire', 'Sign with the next CA from now on and drop the old one'),
];
