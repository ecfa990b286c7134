// Refuses requests whose Host is not ours, so that a web page can't reach the API by DNS rebinding.
import { isAddressLiteral, tryParseAuthority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';

// Any port will do: a forwarded port is not ours, and the name alone is what rebinding needs.
const ANY_PORT = 80;

/** Makes the check; `names` are hosts that are allowed besides `localhost` and IP literals, in any case. */
export function createHostCheck(names: readonly string[]): (host: string | undefined) => void {
  const allowed = new Set(['localhost', ...names.map((name) => tryParseAuthority(name, ANY_PORT)?.host ?? name)]);
  return (host) => {
    const authority = host === undefined ? null : tryParseAuthority(host, ANY_PORT);
    if (authority !== null && (allowed.has(authority.host) || isAddressLiteral(authority.host))) return;
    throw new KeyveilError(
      'admin_host_refused',
      'The Host header must be localhost or an IP address. Name other hosts in KEYVEIL_ADMIN_HOSTS.',
    );
  };
}
