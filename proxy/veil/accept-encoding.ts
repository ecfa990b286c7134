// Asks a covered host for responses without a coding: the sizes of compressed ones tell what stands in them.
import { type RawHeaders, withHeader } from '../exchange.ts';

const NAME = 'accept-encoding';
const IDENTITY = 'identity';

/**
 * Turns what a request accepts into `identity` (RFC 9110 section 12.5.3). The same list when it says so already, and
 * without the field: servers send identity then too. docs/decisions/0005-identity-from-covered-hosts.md has the reasons.
 */
export function askForIdentity(headers: RawHeaders): RawHeaders {
  let at = -1;
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    if (name.length !== NAME.length || name.toLowerCase() !== NAME) continue;
    if (at >= 0) return withHeader(headers, name, IDENTITY);
    at = index + 1;
  }
  if (at < 0 || headers[at] === IDENTITY) return headers;
  const asked = headers.slice();
  asked[at] = IDENTITY;
  return asked;
}
