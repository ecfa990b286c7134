// Compiles, and keeps while they are in use, the veils of sessions: one for each set of credentials that cover a host.
import { OPENED_VALUE_UNUSED_MS, VEILS_KEPT_BYTES_MAX } from '../../model/limits.ts';
import type { PolicyCredential, SessionPolicy } from '../../model/ports.ts';
import type { Secret } from '../../model/secret.ts';
import { findRawOnly, isVeilableLength } from '../../model/veil-budget.ts';
import { createForms } from './forms.ts';
import { Veil } from './veil.ts';

/** A sandbox chooses hosts freely where a credential covers all of them; beyond this many, look-ups start anew. */
const HOSTS_MAX = 256;
/** Likewise for sets of credentials, of which each host can have its own. */
const COVERAGES_MAX = 16;

interface PolicyVeils {
  readonly byHost: Map<string, Veil | null>;
  /** By the numbers of the covering credentials. */
  readonly byCoverage: Map<string, Veil | null>;
  readonly kept: Kept;
}

/** What is known of a policy's veils without keeping them alive. */
interface Kept {
  veils: WeakRef<PolicyVeils> | null;
  bytes: number;
  isUsed: boolean;
}

/** Reads of an unchanged policy give the same object, so what it compiles to is good for as long as it lives. */
const veilsOfPolicies = new WeakMap<SessionPolicy, PolicyVeils>();
/** Oldest first. */
const allKept = new Set<Kept>();
let keptBytes = 0;
let nextSweepMs = 0;

/**
 * The veil of a session's responses from a host (in normal form); null when no covering credential has a value that
 * can be veiled. A credential that can't be opened is listed in the veil's `unopened`; it does not make this fail.
 */
export function compileVeil(policy: SessionPolicy, host: string): Veil | null {
  const veils = veilsOf(policy);
  veils.kept.isUsed = true;
  const known = veils.byHost.get(host);
  if (known !== undefined) return known;
  const veil = veilForCoverage(policy, host, veils);
  if (veils.byHost.size >= HOSTS_MAX) veils.byHost.clear();
  veils.byHost.set(host, veil);
  return veil;
}

/**
 * Drops what was compiled and then not asked for for a minute; responses that are under way keep theirs. Costs nothing
 * when it is called more often than it has anything to do. Takes milliseconds of a clock that only goes forward.
 */
export function sweepVeils(nowMs: number): void {
  if (nowMs < nextSweepMs) return;
  nextSweepMs = nowMs + OPENED_VALUE_UNUSED_MS / 2;
  for (const kept of allKept) {
    if (!kept.isUsed || kept.veils?.deref() === undefined) drop(kept);
    kept.isUsed = false;
  }
}

/** Drops everything that was compiled; for a stop. */
export function dropVeils(): void {
  for (const kept of allKept) drop(kept);
}

function drop(kept: Kept): void {
  const veils = kept.veils?.deref();
  if (veils !== undefined) forget(veils);
  keptBytes -= kept.bytes;
  kept.veils = null;
  allKept.delete(kept);
}

function forget({ byHost, byCoverage, kept }: PolicyVeils): void {
  byHost.clear();
  byCoverage.clear();
  keptBytes -= kept.bytes;
  kept.bytes = 0;
}

function veilsOf(policy: SessionPolicy): PolicyVeils {
  const known = veilsOfPolicies.get(policy);
  // One that was dropped is made anew, so that it can be dropped again.
  if (known !== undefined && known.kept.veils !== null) return known;
  const kept: Kept = { veils: null, bytes: 0, isUsed: true };
  const veils: PolicyVeils = { byHost: new Map(), byCoverage: new Map(), kept };
  kept.veils = new WeakRef(veils);
  veilsOfPolicies.set(policy, veils);
  allKept.add(kept);
  return veils;
}

/** Many sessions at once compile much: the oldest veils make room, and are compiled again when they are asked for. */
function makeRoom(newest: Kept): void {
  if (keptBytes <= VEILS_KEPT_BYTES_MAX) return;
  // Some room more, so that this is not needed again at once.
  const target = VEILS_KEPT_BYTES_MAX * 0.75;
  for (const kept of allKept) if (keptBytes > target && kept !== newest) drop(kept);
}

function veilForCoverage(policy: SessionPolicy, host: string, veils: PolicyVeils): Veil | null {
  const { byCoverage, kept } = veils;
  const covering = policy.credentials.flatMap((credential, index) => (credential.coverage.covers(host) ? [index] : []));
  const key = covering.join();
  const known = byCoverage.get(key);
  if (known !== undefined) return known;
  const veil = compile(covering.map((index) => policy.credentials[index] as PolicyCredential));
  if (byCoverage.size >= COVERAGES_MAX) forget(veils);
  byCoverage.set(key, veil);
  const bytes = veil?.byteLength ?? 0;
  kept.bytes += bytes;
  keptBytes += bytes;
  makeRoom(kept);
  return veil;
}

function compile(credentials: readonly PolicyCredential[]): Veil | null {
  const unopened: string[] = [];
  const opened: { id: string; placeholder: string; value: Buffer; byteLength: number }[] = [];
  for (const credential of credentials) {
    const value = tryOpen(credential)?.reveal();
    const { id, placeholder } = credential;
    if (value === undefined) unopened.push(id);
    else if (isVeilableLength(value.length)) opened.push({ id, placeholder, value, byteLength: value.length });
  }
  if (opened.length + unopened.length === 0) return null;
  const rawOnly = findRawOnly(opened);
  return Veil.compile({
    credentialIds: opened.map(({ id }) => id),
    forms: opened.map(({ id, placeholder, value }) => createForms(value, placeholder, rawOnly.has(id) ? 'raw' : 'all')),
    unopened,
  });
}

function tryOpen(credential: PolicyCredential): Secret | null {
  try {
    return credential.open();
  } catch {
    // Whoever needs the value for a request is told; here it only can't be veiled, which the veil itself tells.
    return null;
  }
}
