// Refuses a runtime that was told to undo a guarantee: to trust anyone, to parse loosely, or to show or write down memory.
import { StartError } from '../model/errors.ts';
import type { Variables } from './config-source.ts';

const REPORTS = 'writes a report with the environment and error messages, which hold secrets';
const SNAPSHOTS = 'writes a heap snapshot, which holds every secret';
const INSPECTOR = 'opens the inspector, which shows every secret to whoever connects to it';
const REFUSED_OPTIONS: Readonly<Record<string, string>> = {
  '--tls-keylog': 'logs TLS keys, which would give away every secret',
  '--trace-tls': 'prints what goes on inside TLS, keys among it',
  '--insecure-http-parser': 'loosens the parser that keeps requests from being smuggled',
  '--inspect': INSPECTOR,
  '--inspect-brk': INSPECTOR,
  '--inspect-wait': INSPECTOR,
  '--inspect-brk-node': INSPECTOR,
  '--report-on-fatalerror': REPORTS,
  '--report-on-signal': REPORTS,
  '--report-uncaught-exception': REPORTS,
  '--heapsnapshot-signal': SNAPSHOTS,
  '--heapsnapshot-near-heap-limit': SNAPSHOTS,
};
/** They make Node.js print what passes through its streams, bytes included. */
const REFUSED_DEBUGGING = ['NODE_DEBUG', 'NODE_DEBUG_NATIVE'] as const;

function isSet(env: Variables, name: string): boolean {
  return env[name] !== undefined && env[name] !== '';
}

/**
 * Throws a StartError of one line for whatever would undo verified TLS, loosen the parser that framing checks rely on,
 * or let keys, memory or the environment out of the process. `options` are those that Node.js itself was started with;
 * those in `NODE_OPTIONS` are read from `env`.
 */
export function refuseUnsafeRuntime(env: Variables, options: readonly string[]): void {
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    throw new StartError(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 turns the verification of upstreams off: unset it, and name a private CA by KEYVEIL_UPSTREAM_CA_FILE=/path/ca.pem',
    );
  }
  if (isSet(env, 'SSLKEYLOGFILE')) {
    throw new StartError('SSLKEYLOGFILE asks for a log of TLS keys, which would give away every secret: unset it');
  }
  for (const name of REFUSED_DEBUGGING) {
    if (isSet(env, name)) {
      throw new StartError(`${name} makes Node.js print bytes that pass through it, secrets among them: unset it`);
    }
  }
  for (const option of [...options, ...(env['NODE_OPTIONS'] ?? '').split(/\s+/)]) {
    // As Node.js reads them: in quotes, with a value, and with underscores for hyphens.
    const name = (option.replaceAll('"', '').split('=')[0] as string).replaceAll('_', '-');
    const harm = Object.hasOwn(REFUSED_OPTIONS, name) ? REFUSED_OPTIONS[name] : undefined;
    if (harm !== undefined) {
      throw new StartError(`${name} (an option of Node.js, perhaps in NODE_OPTIONS) ${harm}: remove it`);
    }
  }
}
