// A certificate authority that lives as long as its process: for the demo's own server, never for Keyveil's leaves.
import { createLeafKey, mintLeaf } from '../ca/leaf.ts';
import { createRoot } from '../ca/root-material.ts';

export interface ThrowawayAuthority {
  readonly caPem: string;
  /** Certificate and key of a server, PEM. */
  issue(host: string): { readonly cert: string; readonly key: string };
}

/** Makes an authority; nothing of it is stored. */
export function createThrowawayAuthority(commonName: string): ThrowawayAuthority {
  const now = Date.now();
  const root = createRoot(commonName, now);
  return {
    caPem: root.certificate.toString(),
    issue(host) {
      const key = createLeafKey();
      const leaf = mintLeaf(host, { issuer: root.issuer, key, now });
      return { cert: leaf.certificatePem, key: key.privateKeyPem };
    },
  };
}
