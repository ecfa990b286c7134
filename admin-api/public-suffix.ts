// How broad a wildcard is, by the public suffix list (publicsuffix.org).
import { parse } from 'tldts';

/** `too_broad` covers the names of strangers; `private_suffix` those of a hosting service's customers. */
export type Breadth = 'fine' | 'private_suffix' | 'too_broad';

// Top-level names that are never delegated in public (RFC 6761, RFC 6762, RFC 8375, ICANN's resolution on .internal).
const LOCAL_NAMES = new Set(['localhost', 'local', 'internal', 'test', 'example', 'invalid', 'home.arpa']);

/** Decides on a normalised pattern of an allow-list. */
export function decideBreadth(pattern: string): Breadth {
  if (!pattern.startsWith('*.')) return 'fine';
  const host = pattern.slice(2);
  if (LOCAL_NAMES.has(host)) return 'fine';
  const found = parse(host, { allowPrivateDomains: true, validateHostname: false });
  if (found.publicSuffix !== host) return 'fine';
  // A name without a rule counts as a suffix by itself (the list's rule `*`): it may be younger than the list.
  return found.isPrivate === true ? 'private_suffix' : 'too_broad';
}
