// What a session's placeholders mean for one host: which are swapped where, and why the others are not.
import type { MissReason } from '../../model/audit.ts';
import { KeyveilError } from '../../model/errors.ts';
import { SWAP_PLANS_PER_POLICY_MAX } from '../../model/limits.ts';
import { PLACEHOLDER_PATTERN } from '../../model/placeholder.ts';
import type { ArchivedPlaceholder, PolicyCredential, SessionPolicy } from '../../model/ports.ts';
import type { Secret } from '../../model/secret.ts';
import { createScanner, type PlaceholderScanner } from './scanner.ts';

type SwapDecision = 'swap' | MissReason;

/** One placeholder and what becomes of it. */
export interface PlanEntry {
  readonly credentialId: string;
  readonly secretName: string;
  readonly placeholder: string;
  /** 0 for an archived credential. */
  readonly secretVersion: number;
  /** For header fields, Basic logins and trailers. */
  readonly header: SwapDecision;
  /** For bodies and WebSocket messages. */
  readonly body: SwapDecision;
  /** The value; throws `credential_unreadable`. Its bytes may be wiped later: take what is needed at once. */
  open(): Secret;
}

export interface SwapPlan {
  readonly scanner: PlaceholderScanner;
  /** In the order of the scanner's indexes. */
  readonly entries: readonly PlanEntry[];
  /** Some placeholder is swapped in bodies, so that they must be rewritten. */
  readonly swapsBody: boolean;
  /** Bodies go on as they are, and are looked at for the audit's misses alone. */
  readonly observesBody: boolean;
}

export interface SwapTarget {
  /** Normalised. */
  readonly host: string;
  readonly scheme: 'https' | 'http';
}

interface CompiledPolicy {
  readonly scanner: PlaceholderScanner;
  readonly plans: Map<string, SwapPlan>;
}

const compiledPolicies = new WeakMap<SessionPolicy, CompiledPolicy>();

function requirePlaceholderForm(credentialId: string, placeholder: string): string {
  if (PLACEHOLDER_PATTERN.test(placeholder)) return placeholder;
  throw new KeyveilError(
    'credential_unreadable',
    `The placeholder of credential ${credentialId} is not of the form that Keyveil makes. Archive it and create it again.`,
  );
}

function compilePolicy(policy: SessionPolicy): CompiledPolicy {
  const placeholders = [
    ...policy.credentials.map(({ id, placeholder }) => requirePlaceholderForm(id, placeholder)),
    ...policy.archived.map(({ credentialId, placeholder }) => requirePlaceholderForm(credentialId, placeholder)),
  ];
  return { scanner: createScanner(placeholders), plans: new Map() };
}

function decide(credential: PolicyCredential, target: SwapTarget, isEnabled: boolean): SwapDecision {
  if (target.scheme === 'http') return 'plain_http';
  if (!credential.coverage.covers(target.host)) return 'host_not_covered';
  return isEnabled ? 'swap' : 'location_disabled';
}

function activeEntry(credential: PolicyCredential, target: SwapTarget): PlanEntry {
  return {
    credentialId: credential.id,
    secretName: credential.secretName,
    placeholder: credential.placeholder,
    secretVersion: credential.secretVersion,
    header: decide(credential, target, credential.header),
    body: decide(credential, target, credential.body),
    open: () => credential.open(),
  };
}

function archivedEntry(archived: ArchivedPlaceholder): PlanEntry {
  return {
    ...archived,
    secretVersion: 0,
    header: 'credential_archived',
    body: 'credential_archived',
    open() {
      throw new KeyveilError(
        'credential_unreadable',
        `Credential ${archived.credentialId} is archived: its value is gone.`,
      );
    },
  };
}

function compileEntries(policy: SessionPolicy, compiled: CompiledPolicy, target: SwapTarget): SwapPlan {
  const entries = [
    ...policy.credentials.map((credential) => activeEntry(credential, target)),
    ...policy.archived.map((archived) => archivedEntry(archived)),
  ];
  const swapsBody = entries.some(({ body }) => body === 'swap');
  return { scanner: compiled.scanner, entries, swapsBody, observesBody: !swapsBody };
}

/**
 * The plan for requests of a session to one host, or null when the session has no placeholder at all. Kept with the
 * policy object, so a policy that changed is compiled anew. Over plain HTTP nothing is swapped. Throws
 * `credential_unreadable` when a stored placeholder is not of the form that Keyveil makes.
 */
export function compileSwapPlan(policy: SessionPolicy, target: SwapTarget): SwapPlan | null {
  if (policy.credentials.length === 0 && policy.archived.length === 0) return null;
  let compiled = compiledPolicies.get(policy);
  if (compiled === undefined) {
    compiled = compilePolicy(policy);
    compiledPolicies.set(policy, compiled);
  }
  const key = `${target.scheme} ${target.host}`;
  const known = compiled.plans.get(key);
  if (known !== undefined) return known;
  const plan = compileEntries(policy, compiled, target);
  if (compiled.plans.size >= SWAP_PLANS_PER_POLICY_MAX)
    compiled.plans.delete(compiled.plans.keys().next().value as string);
  compiled.plans.set(key, plan);
  return plan;
}
