// Finds placeholders in a request target: secrets never go there, and the sandbox's author wants to know.
import type { MissRecord } from '../../model/audit.ts';
import { PLACEHOLDER_MARKER } from '../../model/placeholder.ts';
import type { PlanEntry, SwapPlan } from './plan.ts';
import { SwapTally } from './tally.ts';

const NOTHING: readonly MissRecord[] = [];

/**
 * Misses in the path and in the query of a target in origin form. Placeholders consist of unreserved characters (RFC
 * 3986 section 2.3), so a plain search finds them in every target that was written by the usual rules.
 */
export function findUrlMisses(target: string, plan: SwapPlan): readonly MissRecord[] {
  if (!target.includes(PLACEHOLDER_MARKER)) return NOTHING;
  const tally = new SwapTally();
  const query = target.indexOf('?');
  for (let match = plan.scanner.find(target, 0); match !== null; match = plan.scanner.find(target, match.end)) {
    const entry = plan.entries[match.index] as PlanEntry;
    const location = query >= 0 && match.start > query ? 'query' : 'path';
    tally.missed(entry, location, entry.header === 'credential_archived' ? 'credential_archived' : 'in_url');
  }
  return tally.misses();
}
