// Wire shapes of the certificate authority.
import { z } from 'zod';
import type { CaRoot, CaStatus } from '../../model/ports.ts';
import { Timestamp, toTimestamp } from './common.ts';

const CaRootWire = z
  .object({ common_name: z.string(), fingerprint: z.string(), not_before: Timestamp, not_after: Timestamp })
  .meta({ id: 'CaRoot', description: 'A root certificate; the fingerprint is its SHA-256.' });

export const CaWire = z
  .object({ type: z.literal('ca'), signer: CaRootWire, next: CaRootWire.nullable() })
  .meta({ id: 'Ca' });

function toRootWire(root: CaRoot): z.infer<typeof CaRootWire> {
  return {
    common_name: root.commonName,
    fingerprint: root.fingerprint,
    not_before: toTimestamp(root.notBefore),
    not_after: toTimestamp(root.notAfter),
  };
}

export function toCaWire(status: CaStatus): z.infer<typeof CaWire> {
  return { type: 'ca', signer: toRootWire(status.signer), next: status.next === null ? null : toRootWire(status.next) };
}
