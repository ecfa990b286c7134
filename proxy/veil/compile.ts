// Compiles, and keeps while they are in use, the veils of sessions: one for each set of credentials that cover a host.
import { VEIL_COMPILED_BYTES_MAX } from '../../model/limits.ts';
import type { PolicyCredential, SessionPolicy } from '../../model/ports.ts';
import type { Secret } from '../../model/secret.ts';
import { createForms, isVeilable, type ValueForms } from './forms.ts';
import { Veil } from './veil.ts';

/** A sandbox chooses hosts freely where a credential covers all of them; beyond this many, look-ups start anew. */
const HOSTS_MAX = 256;

interface PolicyVeils {
  readonly byHost: Map<string, Veil | null>;
  /** By the numbers of the covering credentials. */
  readonly byCoverage: Map<string, Veil | null>;
  isUsed: boolean;
}

/** Reads of an unchanged policy give the same object, so what it compiles to is good for as long as it lives. */
const veilsOfPolicies = new WeakMap<SessionPolicy, PolicyVeils>();
const sweepable = new Set<WeakRef<PolicyVeils>>();

/**
 * The veil of a session's responses from a host (in normal form); null when no covering credential has a value that
 * can be veiled. A credential that can't be opened is listed in the veil's `unopened`; it does not make this fail.
 */
export function compileVeil(policy: SessionPolicy, host: string): Veil | null {
  const veils = veilsOf(policy);
  veils.isUsed = true;
  const known = veils.byHost.get(host);
  if (known !== undefined) return known;
  const veil = veilForCoverage(policy, host, veils.byCoverage);
  if (veils.byHost.size >= HOSTS_MAX) veils.byHost.clear();
  veils.byHost.set(host, veil);
  return veil;
}

/**
 * Drops what was compiled and not asked for since the call before. Call it every `OPENED_VALUE_UNUSED_MS / 2`, so that
 * no copy of a value outlives its use by more than a minute; responses that are under way keep theirs.
 */
export function sweepVeils(): void {
  for (const reference of sweepable) {
    const veils = reference.deref();
    if (veils?.isUsed === true) {
      veils.isUsed = false;
      continue;
    }
    veils?.byHost.clear();
    veils?.byCoverage.clear();
    sweepable.delete(reference);
  }
}

function veilsOf(policy: SessionPolicy): PolicyVeils {
  const known = veilsOfPolicies.get(policy);
  // One that was swept is empty; it is made anew, so that it is swept again.
  if (known !== undefined && known.byHost.size > 0) return known;
  const veils: PolicyVeils = { byHost: new Map(), byCoverage: new Map(), isUsed: true };
  veilsOfPolicies.set(policy, veils);
  sweepable.add(new WeakRef(veils));
  return veils;
}

function veilForCoverage(policy: SessionPolicy, host: string, byCoverage: Map<string, Veil | null>): Veil | null {
  const covering = policy.credentials.flatMap((credential, index) => (credential.coverage.covers(host) ? [index] : []));
  const key = covering.join();
  const known = byCoverage.get(key);
  if (known !== undefined) return known;
  const veil = compile(covering.map((index) => policy.credentials[index] as PolicyCredential));
  if (byCoverage.size >= HOSTS_MAX) byCoverage.clear();
  byCoverage.set(key, veil);
  return veil;
}

function compile(credentials: readonly PolicyCredential[]): Veil | null {
  const credentialIds: string[] = [];
  const forms: ValueForms[] = [];
  const unopened: string[] = [];
  const rawOnly: string[] = [];
  let bytes = 0;
  for (const credential of credentials) {
    const value = tryOpen(credential)?.reveal();
    if (value === undefined) unopened.push(credential.id);
    if (value === undefined || !isVeilable(value)) continue;
    let form = createForms(value, credential.placeholder, 'all');
    if (bytes + form.byteLength > VEIL_COMPILED_BYTES_MAX) {
      form = createForms(value, credential.placeholder, 'raw');
      rawOnly.push(credential.id);
    }
    bytes += form.byteLength;
    credentialIds.push(credential.id);
    forms.push(form);
  }
  return forms.length + unopened.length === 0 ? null : Veil.compile({ credentialIds, forms, unopened, rawOnly });
}

function tryOpen(credential: PolicyCredential): Secret | null {
  try {
    return credential.open();
  } catch {
    // Whoever needs the value for a request is told; here it only can't be veiled, which the veil itself tells.
    return null;
  }
}
