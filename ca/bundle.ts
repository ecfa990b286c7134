// The files that make clients trust the daemon: ca.pem and ca-bundle.pem.
import { rootCertificates } from 'node:tls';
import type { CaExport } from '../model/ports.ts';
import type { RootAuthority } from './root.ts';

export interface CaExportOptions {
  /** CA certificates in PEM that the operator trusts for upstreams; clients are to trust them too, as for relayed hosts. */
  readonly upstreamCas?: readonly string[];
  /** The public roots in PEM; Node's own when left out. */
  readonly publicRoots?: readonly string[];
}

/**
 * Creates the export. The bundle replaces a client's own roots (`SSL_CERT_FILE` and its like), so it holds the public
 * ones as well. Our own come first, the signer before all: some tools read the first certificate of a file and no more.
 */
export function createCaExport(
  root: Pick<RootAuthority, 'certificates' | 'generation'>,
  options: CaExportOptions = {},
): CaExport {
  const { upstreamCas = [], publicRoots = rootCertificates } = options;
  let generation = 0;
  let caPem = '';
  let bundlePem = '';
  const refresh = (): void => {
    if (generation === root.generation()) return;
    generation = root.generation();
    const own = root.certificates().map((certificate) => certificate.toString());
    const all = [...own, ...upstreamCas, ...publicRoots].map((pem) => `${pem.trim()}\n`);
    caPem = own.join('');
    bundlePem = [...new Set(all)].join('');
  };
  return {
    caPem: () => {
      refresh();
      return caPem;
    },
    bundlePem: () => {
      refresh();
      return bundlePem;
    },
  };
}
