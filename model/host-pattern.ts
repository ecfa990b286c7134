// Allow-list patterns: a host name, an IPv4 address, or `*.` before a host name.
import { isAddressLiteral, normaliseHost } from './authority.ts';

/** Why a pattern was refused; each word is explained to the person by `explainPatternFault`. */
export type PatternFault =
  'empty' | 'not_a_host' | 'ipv6' | 'bare_wildcard' | 'wildcard_place' | 'wildcard_address' | 'address_spelling';

export type PatternResult =
  { readonly ok: true; readonly pattern: string } | { readonly ok: false; readonly fault: PatternFault };

const WILDCARD = '*.';

function refuse(fault: PatternFault): PatternResult {
  return { ok: false, fault };
}

/**
 * Normalises one allow-list entry: lower case, no trailing dot, IDN in its ASCII form. It knows no public suffixes:
 * `decideBreadth` of the admin API refuses `*.com` with the help of a suffix list.
 */
export function parseHostPattern(text: string): PatternResult {
  if (text === '') return refuse('empty');
  if (text === '*' || text === '*.') return refuse('bare_wildcard');
  const isWildcard = text.startsWith(WILDCARD);
  const rest = isWildcard ? text.slice(WILDCARD.length) : text;
  if (rest.includes('*')) return refuse('wildcard_place');
  if (rest.startsWith('[') || (rest.match(/:/g)?.length ?? 0) > 1) return refuse('ipv6');
  const host = normaliseHost(rest);
  if (host === null) return refuse('not_a_host');
  if (!isAddressLiteral(host)) return { ok: true, pattern: isWildcard ? WILDCARD + host : host };
  if (isWildcard) return refuse('wildcard_address');
  // A list that people review holds addresses in the one spelling that people read.
  return host === rest.replace(/\.$/, '') ? { ok: true, pattern: host } : refuse('address_spelling');
}

const EXPLANATIONS: Readonly<Record<PatternFault, string>> = {
  empty: 'must not be empty; give a host name such as api.example.com',
  not_a_host: 'must be a host name, an IPv4 address, or *. and a host name, without scheme, port, path or spaces',
  ipv6: 'must not be an IPv6 address and must not carry a port; give a host name',
  bare_wildcard: 'must not be a bare wildcard; give "networking": {"type": "unrestricted"} to mean every host',
  wildcard_place: 'may hold a wildcard only as its first label, as in *.example.com',
  wildcard_address: 'must not be a wildcard on an IP address',
  address_spelling: 'must write an IPv4 address in dotted decimal',
};

/** A sentence's end that tells a person what is wrong with an entry and what to write. */
export function explainPatternFault(fault: PatternFault): string {
  return EXPLANATIONS[fault];
}

/** Whether a normalised pattern covers a normalised host. `*.example.com` covers every depth below, not `example.com`. */
export function patternCovers(pattern: string, host: string): boolean {
  if (!pattern.startsWith(WILDCARD)) return pattern === host;
  return host.length > pattern.length - 1 && host.endsWith(pattern.slice(1));
}

/** A set of patterns, compiled so that a look-up costs one probe per label of the host. */
export interface HostSet {
  covers(host: string): boolean;
  /** How much of what a normalised pattern covers is covered by the set as well. */
  shareOf(pattern: string): 'all' | 'some' | 'none';
}

/** Compiles normalised patterns. */
export function createHostSet(patterns: readonly string[]): HostSet {
  const exact = new Set<string>();
  const suffixes = new Set<string>();
  for (const pattern of patterns) {
    if (pattern.startsWith(WILDCARD)) suffixes.add(pattern.slice(1));
    else exact.add(pattern);
  }
  function covers(host: string): boolean {
    if (exact.has(host)) return true;
    if (suffixes.size === 0 || isAddressLiteral(host)) return false;
    for (let dot = host.indexOf('.', 1); dot >= 0; dot = host.indexOf('.', dot + 1)) {
      if (suffixes.has(host.slice(dot))) return true;
    }
    return false;
  }
  return {
    covers,
    shareOf(pattern) {
      // Of a wildcard, `*` stands for a label that no exact entry can hold, so only a wildcard as wide covers it.
      if (covers(pattern)) return 'all';
      if (!pattern.startsWith(WILDCARD)) return 'none';
      const suffix = pattern.slice(1);
      return [...exact, ...suffixes].some((entry) => entry.endsWith(suffix)) ? 'some' : 'none';
    },
  };
}

/** The set that covers every host. */
export const EVERY_HOST: HostSet = { covers: () => true, shareOf: () => 'all' };
