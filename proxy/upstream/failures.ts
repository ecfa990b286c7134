// The words for everything that can go wrong on the way to an upstream; none of them quotes a resolved address.
import type { Authority } from '../../model/authority.ts';
import { formatAuthority } from '../../model/authority.ts';
import { KeyveilError } from '../../model/errors.ts';

const CONNECT_REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'the connection was refused; check that the service is up and that the port is right',
  ECONNRESET: 'the connection was reset while it was being made',
  ETIMEDOUT: 'nothing answered in time; check the route and the firewalls between Keyveil and the host',
  EHOSTUNREACH: 'there is no route to the host; check the network of the machine that Keyveil runs on',
  ENETUNREACH: 'there is no route to its network; check the network of the machine that Keyveil runs on',
  EACCES: 'the operating system forbids the connection; check its firewall',
  EPERM: 'the operating system forbids the connection; check its firewall',
  EMFILE: 'Keyveil is out of file descriptors; raise its limit (ulimit -n)',
  ENFILE: 'the machine is out of file descriptors; raise its limit',
  EADDRNOTAVAIL: 'no local address or port is left for the connection',
  ENOTFOUND: 'the name does not resolve; check its spelling and the DNS of the machine that Keyveil runs on',
  ENODATA: 'the name has no address',
  EAI_AGAIN: 'the name server did not answer; check the DNS of the machine that Keyveil runs on',
  ETIMEOUT: 'the name was not resolved in time; check the DNS of the machine that Keyveil runs on',
};

const CHAIN_REASON =
  'its certificate is not signed by a trusted authority; if it is your own, name its root in KEYVEIL_UPSTREAM_CA_FILE';
const CLOSED_REASON = 'it closed the connection during the TLS handshake';
const NOT_TLS_REASON = 'it does not speak TLS on this port';
const OLD_TLS_REASON = 'it speaks no version of TLS from 1.2 on';

const TLS_REASONS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet; check the clock of the machine that Keyveil runs on',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
  CERT_REVOKED: 'its certificate was revoked',
  DEPTH_ZERO_SELF_SIGNED_CERT: CHAIN_REASON,
  SELF_SIGNED_CERT_IN_CHAIN: CHAIN_REASON,
  UNABLE_TO_GET_ISSUER_CERT: CHAIN_REASON,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: CHAIN_REASON,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: CHAIN_REASON,
  ECONNRESET: CLOSED_REASON,
  EPIPE: CLOSED_REASON,
  ETIMEDOUT: 'the TLS handshake took too long',
  ERR_SSL_WRONG_VERSION_NUMBER: NOT_TLS_REASON,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NOT_TLS_REASON,
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: OLD_TLS_REASON,
  ERR_SSL_UNSUPPORTED_PROTOCOL: OLD_TLS_REASON,
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: 'it asks for a client certificate, and Keyveil has none',
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: 'it speaks neither HTTP/1.1 nor HTTP/2',
};

// RFC 9113 section 7, by code.
const ERROR_NAMES = [
  'NO_ERROR',
  'PROTOCOL_ERROR',
  'INTERNAL_ERROR',
  'FLOW_CONTROL_ERROR',
  'SETTINGS_TIMEOUT',
  'STREAM_CLOSED',
  'FRAME_SIZE_ERROR',
  'REFUSED_STREAM',
  'CANCEL',
  'COMPRESSION_ERROR',
  'CONNECT_ERROR',
  'ENHANCE_YOUR_CALM',
  'INADEQUATE_SECURITY',
  'HTTP_1_1_REQUIRED',
] as const;

/** The `code` of a system or OpenSSL error; empty when it has none. */
export function codeOf(error: unknown): string {
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return typeof error.code === 'string' ? error.code : '';
}

/** The TCP connection, or the resolution before it, failed. */
export function connectFailed(authority: Authority, cause: unknown): KeyveilError {
  const code = codeOf(cause);
  const reason = CONNECT_REASONS[code] ?? `the connection could not be made (${code || 'unknown cause'})`;
  return new KeyveilError('upstream_connect_failed', `No connection to ${formatAuthority(authority)}: ${reason}.`, {
    cause,
  });
}

/** The chained proxy could not be reached, or did not let the connection through. */
export function proxyFailed(authority: Authority, cause: unknown): KeyveilError {
  const code = codeOf(cause instanceof KeyveilError ? cause.cause : cause);
  let reason = "it can't be reached";
  if (cause instanceof ProxyRefusal) reason = cause.message;
  else if (cause instanceof KeyveilError && cause.code === 'address_denied')
    reason = 'it is a listener of Keyveil itself';
  else if (code in TLS_REASONS || code in CONNECT_REASONS)
    reason = TLS_REASONS[code] ?? (CONNECT_REASONS[code] as string);
  const text = `No connection to ${formatAuthority(authority)} through the proxy of KEYVEIL_UPSTREAM_PROXY: ${reason}.`;
  return new KeyveilError('upstream_connect_failed', text, { cause });
}

/** The chained proxy's own fault; the message is a clause about it and quotes nothing of what it sent. */
export class ProxyRefusal extends Error {
  override readonly name = 'ProxyRefusal';
}

/** The TLS handshake failed, or the certificate was not good for the host. */
export function tlsFailed(authority: Authority, cause: unknown): KeyveilError {
  const code = codeOf(cause);
  const reason = TLS_REASONS[code] ?? `the TLS handshake failed (${code || 'unknown cause'})`;
  return new KeyveilError('upstream_tls_failed', `No TLS connection to ${formatAuthority(authority)}: ${reason}.`, {
    cause,
  });
}

/** The upstream broke its protocol, or its connection, after the handshake; `what` is a clause about the upstream. */
export function protocolFailed(authority: Authority, what: string, cause?: unknown): KeyveilError {
  return new KeyveilError('upstream_protocol_error', `The response of ${formatAuthority(authority)} failed: ${what}.`, {
    cause,
  });
}

/** The head of the response did not come in time. */
export function responseTimedOut(authority: Authority, timeoutMs: number): KeyveilError {
  const text = `${formatAuthority(authority)} did not begin its response within ${timeoutMs / 1000} s.`;
  return new KeyveilError('upstream_timeout', text);
}

/** Nobody waits any longer: the caller gave up, the session was closed, or Keyveil stops. */
export function givenUp(authority: Authority, cause?: unknown): KeyveilError {
  return new KeyveilError('upstream_connect_failed', `The request to ${formatAuthority(authority)} was given up.`, {
    cause,
  });
}

/** The destination's address, as it stands or as its name resolves, is not one that may be reached. */
export function addressDenied(authority: Authority): KeyveilError {
  const text =
    `${formatAuthority(authority)} is, or resolves to, an address that sandboxes must not reach ` +
    '(private, local, reserved, or one of Keyveil itself). ' +
    'An operator can admit a private range with KEYVEIL_ALLOWED_PRIVATE_CIDRS or allowed_private_cidrs of the environment.';
  return new KeyveilError('address_denied', text);
}

/** How an error code of HTTP/2 is called. */
export function nameOfReset(code: number): string {
  return ERROR_NAMES[code] ?? `error ${code}`;
}
