// Does a request name the destination of its tunnel, and nothing else?
import { tryParseAuthority, type Authority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';
import type { ClientRequest } from './client-exchange.ts';
import { headerValue } from './exchange.ts';

const NOT_ASCII = /[^\u0021-\u007e]/;
const DEFAULT_PORTS = { https: 443, http: 80 } as const;

function isSame(left: Authority, right: Authority): boolean {
  return left.host === right.host && left.port === right.port;
}

function mismatch(): KeyveilError {
  return new KeyveilError(
    'host_mismatch',
    'The request names another host or port than the tunnel it came by. Open a tunnel to that host.',
  );
}

/** An absolute-form target (RFC 9112 section 3.2.2), taken apart without changing a byte of its path and query. */
export interface AbsoluteTarget {
  readonly scheme: string;
  readonly authority: string;
  /** Path and query as they stood; `/` when both were empty. */
  readonly rest: string;
}

/** Null when the target is not in absolute form. */
export function splitAbsoluteTarget(target: string): AbsoluteTarget | null {
  const match = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)(.*)$/s.exec(target);
  if (match === null) return null;
  const [, scheme = '', authority = '', rest = ''] = match;
  return { scheme: scheme.toLowerCase(), authority, rest: rest.startsWith('/') ? rest : `/${rest}` };
}

/** The host of a `Host` field or authority text that the client sent; throws `bad_request` when it is malformed. */
export function requireAuthority(text: string, scheme: 'https' | 'http'): Authority {
  // The text itself goes upstream: a name in another alphabet stands there in its ASCII form (RFC 9110 section 4.2).
  const authority = NOT_ASCII.test(text) ? null : tryParseAuthority(text, DEFAULT_PORTS[scheme]);
  if (authority !== null) return authority;
  throw new KeyveilError('bad_request', 'The Host field, or the host of the request target, is malformed.');
}

/** The tunnel that a request came by, as far as its destination goes. */
export interface RequestOrigin {
  readonly authority: Authority;
  readonly scheme: 'https' | 'http';
  /** Text of the last `Host` field that named this origin: a client sends the same one with every request. */
  verifiedHost: string | null;
}

function requireHost(text: string, origin: RequestOrigin): void {
  if (text === origin.verifiedHost) return;
  if (!isSame(requireAuthority(text, origin.scheme), origin.authority)) throw mismatch();
  origin.verifiedHost = text;
}

/**
 * Checks that `Host` (and the host of an absolute-form target) equals the tunnel's authority, a missing port meaning
 * the scheme's default. Returns the target in origin form. Throws `host_mismatch` (421) or `bad_request`.
 */
export function requireSameDestination(
  request: Pick<ClientRequest, 'target' | 'headers' | 'method'>,
  origin: RequestOrigin,
): string {
  const { authority, scheme } = origin;
  const host = headerValue(request.headers, 'host');
  if (host !== undefined) requireHost(host, origin);
  const { target } = request;
  if (target.startsWith('/') || (target === '*' && request.method === 'OPTIONS')) return target;
  const absolute = splitAbsoluteTarget(target);
  if (absolute === null) throw new KeyveilError('bad_request', 'The request target must begin with a slash.');
  if (absolute.scheme !== scheme || !isSame(requireAuthority(absolute.authority, scheme), authority)) throw mismatch();
  return absolute.rest;
}
