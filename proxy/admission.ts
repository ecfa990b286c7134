// Who is asking, and whether this session may be connected to that host: session, then port, then environment.
import { hash, timingSafeEqual } from 'node:crypto';
import { formatAuthority, type Authority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';
import { isId } from '../model/ids.ts';
import type { PolicyReader, SessionPolicy } from '../model/ports.ts';
import { headerValues, type RawHeaders } from './exchange.ts';
import type { ProxySettings } from './settings.ts';

interface Login {
  /** Null for a bearer token: the session is found by the token's hash. */
  readonly sessionId: string | null;
  readonly tokenHash: Buffer;
}

function hashOf(token: Buffer | string): Buffer {
  return hash('sha256', token, 'buffer');
}

/** Reads `Proxy-Authorization` (RFC 9110 section 11.7.2): `Basic session_id:token` or `Bearer token`. */
function parseLogin(field: string | undefined): Login | null {
  const match = /^(basic|bearer) +([A-Za-z0-9+/._~=-]+) *$/i.exec(field ?? '');
  if (match?.[1] === undefined || match[2] === undefined) return null;
  if (match[1].toLowerCase() === 'bearer') return { sessionId: null, tokenHash: hashOf(match[2]) };
  const pair = Buffer.from(match[2], 'base64');
  const colon = pair.indexOf(':');
  if (colon < 0) return null;
  return { sessionId: pair.toString('latin1', 0, colon), tokenHash: hashOf(pair.subarray(colon + 1)) };
}

function authenticationRequired(): KeyveilError {
  return new KeyveilError(
    'proxy_authentication_required',
    'The proxy needs the login of an active session. Use the proxy URL of the session, http://SESSION_ID:TOKEN@host:port.',
  );
}

/** The refusal of a right login whose session is over, or halted. */
export class InactiveSession extends KeyveilError {
  /** Null where the session is known by other means. */
  readonly sessionId: string | null;

  constructor(message: string, sessionId: string | null) {
    super('session_inactive', message);
    this.sessionId = sessionId;
  }
}

/** The refusal of a session that exists and is not active. */
export function sessionInactive(status: SessionPolicy['status'], sessionId: string | null = null): KeyveilError {
  const advice =
    status === 'suspended'
      ? 'The operator can lift that by keyveil session resume, once it is known why'
      : 'Ask the operator for a new session';
  return new InactiveSession(`The session is ${status}. ${advice}.`, sessionId);
}

/**
 * The `Proxy-Authorization` of a request; undefined when there is none. Throws `bad_request` for two that differ: whoever
 * stands in front of Keyveil may have looked at the other one (RFC 9110 section 5.3: it is no list).
 */
export function loginFieldOf(headers: RawHeaders): string | undefined {
  const [first, ...others] = headerValues(headers, 'proxy-authorization');
  if (others.every((other) => other === first)) return first;
  throw new KeyveilError('bad_request', 'The request has more than one Proxy-Authorization. Send one.');
}

/**
 * The policy of the session that a login belongs to, as the database is now. Rejects with
 * `proxy_authentication_required` for a missing or wrong login, and with `session_inactive` for a right one whose
 * session is archived, expired or suspended.
 */
export async function authenticate(policies: PolicyReader, field: string | undefined): Promise<SessionPolicy> {
  const login = parseLogin(field);
  if (login === null) throw authenticationRequired();
  const sessionId = login.sessionId ?? (await policies.findSessionId(login.tokenHash));
  const policy = sessionId === null || !isId('session', sessionId) ? null : await policies.read(sessionId);
  if (policy === null || !timingSafeEqual(policy.tokenHash, login.tokenHash)) throw authenticationRequired();
  if (policy.status !== 'active') throw sessionInactive(policy.status, policy.sessionId);
  return policy;
}

/** Throws `port_denied` or `environment_denied`; the address is looked at when it is known. */
export function requireAdmitted(policy: SessionPolicy, authority: Authority, settings: ProxySettings): void {
  if (settings.allowedPorts !== null && !settings.allowedPorts.has(authority.port)) {
    throw new KeyveilError(
      'port_denied',
      `Port ${authority.port} is not allowed for ${authority.host}. The operator can add it to KEYVEIL_ALLOWED_PORTS.`,
    );
  }
  if (!policy.admission.covers(authority.host)) {
    throw new KeyveilError(
      'environment_denied',
      `${formatAuthority(authority)} is not admitted by the environment of this session. The operator can add it to ` +
        "the environment's allowed_hosts.",
    );
  }
}

/** Throws `mitm_disabled` (503) where a placeholder could never be swapped and the session has something to swap. */
export function requireInterception(policy: SessionPolicy, settings: ProxySettings): void {
  if (settings.interceptionOn || policy.activeCredentialCount === 0) return;
  throw new KeyveilError(
    'mitm_disabled',
    'Interception is off (KEYVEIL_MITM=off) while the vaults of this session hold active credentials, so their ' +
      'placeholders could not be swapped. The operator can start the daemon with KEYVEIL_MITM=on.',
    { status: 503 },
  );
}
