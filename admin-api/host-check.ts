// Refuses requests whose Host is not ours, so that a web page can't reach the API by DNS rebinding.
import { isAddressLiteral, tryParseAuthority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';

// Any port will do: a forwarded port is not ours, and the name alone is what rebinding needs.
const ANY_PORT = 80;

/** What a request says of its host. */
interface Addressed {
  readonly url?: string | undefined;
  readonly headers: { readonly host?: string | undefined };
}

/** The host of a target in absolute form, which counts besides `Host` (RFC 9112 section 3.2.2); null for a path. */
function hostOfTarget(target = ''): string | null {
  return /^[A-Za-z][A-Za-z0-9+.-]*:\/\/([^/?#]*)/.exec(target)?.[1] ?? null;
}

/** Makes the check; `names` are hosts that are allowed besides `localhost` and IP literals, in any case. */
export function createHostCheck(names: readonly string[]): (request: Addressed) => void {
  const allowed = new Set(['localhost', ...names.map((name) => tryParseAuthority(name, ANY_PORT)?.host ?? name)]);
  const isOurs = (host: string): boolean => {
    const authority = tryParseAuthority(host, ANY_PORT);
    return authority !== null && (allowed.has(authority.host) || isAddressLiteral(authority.host));
  };
  return ({ url, headers: { host } }) => {
    const target = hostOfTarget(url);
    if (host !== undefined && isOurs(host) && (target === null || isOurs(target))) return;
    throw new KeyveilError(
      'admin_host_refused',
      'The Host header must be localhost or an IP address. Name other hosts in KEYVEIL_ADMIN_HOSTS.',
    );
  };
}
