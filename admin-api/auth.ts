// Who is asking: admin tokens, scoped tokens, and what each may call.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { KeyveilError } from '../model/errors.ts';
import type { AdminServerOptions, Identity, RouteAccess } from './context.ts';

const SCOPED_TOKEN_PREFIX = 'kvad_';
const TOKEN_CHARACTERS_MAX = 1024;

/** Tokens that a request carries: `x-api-key`, then `Authorization: Bearer` (RFC 6750 section 2.1; any case). */
function tokensOf(headers: IncomingHttpHeaders): string[] {
  const key = headers['x-api-key'];
  const bearer = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  return [typeof key === 'string' ? key : undefined, bearer].filter(
    (token): token is string => token !== undefined && token !== '' && token.length <= TOKEN_CHARACTERS_MAX,
  );
}

/** Whether a request brought anything that could be a token. */
export function hasToken(headers: IncomingHttpHeaders): boolean {
  return headers['x-api-key'] !== undefined || headers.authorization !== undefined;
}

// Every digest is compared in full, so that time tells neither how much of a token nor which of them was right.
function isConfiguredToken(token: string, digests: readonly Buffer[]): boolean {
  const digest = createHash('sha256').update(token, 'utf8').digest();
  let isMatch = false;
  for (const candidate of digests) {
    if (candidate.length === digest.length && timingSafeEqual(candidate, digest)) isMatch = true;
  }
  return isMatch;
}

/** The identity behind a request's headers, or null. */
export async function identify(
  headers: IncomingHttpHeaders,
  options: Pick<AdminServerOptions, 'trust' | 'adminTokenDigests' | 'store'>,
): Promise<Identity | null> {
  if (options.trust === 'socket') return { actor: 'socket', scope: 'admin' };
  for (const token of tokensOf(headers)) {
    if (isConfiguredToken(token, options.adminTokenDigests())) return { actor: 'admin_token', scope: 'admin' };
    if (!token.startsWith(SCOPED_TOKEN_PREFIX)) continue;
    const scoped = await options.store.adminTokens.find(token);
    if (scoped !== null) return { actor: scoped.id, scope: scoped.scope };
  }
  return null;
}

/** Refuses an identity whose scope the route does not admit. Throws `insufficient_scope`. */
export function requireScope(identity: Identity, access: RouteAccess): void {
  if (access === 'public' || access.includes(identity.scope)) return;
  throw new KeyveilError(
    'insufficient_scope',
    `A token of scope ${identity.scope} may not do this; it needs scope ${access.join(' or ')}.`,
  );
}

/** The answer to a request without a good token. */
export function unauthenticated(headers: IncomingHttpHeaders): KeyveilError {
  return new KeyveilError(
    'unauthenticated',
    hasToken(headers)
      ? 'The admin token is not valid.'
      : 'An admin token is needed: send it as x-api-key or as Authorization: Bearer.',
  );
}
