// The error types of `Proxy-Status` (RFC 9209 section 2.3): the registered one that comes nearest to what went wrong.
import { KeyveilError, type ErrorCode } from '../model/errors.ts';
import { codeOf, ProxyRefusal } from './upstream/failures.ts';

const BY_CODE: Partial<Record<ErrorCode, string>> = {
  bad_request: 'http_request_error',
  host_mismatch: 'http_request_error',
  header_too_large: 'http_request_error',
  connect_not_allowed: 'http_request_error',
  swap_too_large: 'http_request_error',
  environment_denied: 'http_request_denied',
  port_denied: 'http_request_denied',
  proxy_authentication_required: 'http_request_denied',
  session_inactive: 'http_request_denied',
  too_many_requests: 'http_request_denied',
  emergency_stop: 'http_request_denied',
  address_denied: 'destination_ip_prohibited',
  upstream_connect_failed: 'destination_unavailable',
  upstream_tls_failed: 'tls_protocol_error',
  upstream_protocol_error: 'http_protocol_error',
  upstream_timeout: 'http_response_timeout',
  shutting_down: 'proxy_internal_response',
  overloaded: 'connection_limit_reached',
  mitm_disabled: 'proxy_configuration_error',
};

/** By the system's code of what kept a connection from being made. */
const BY_CONNECT_CAUSE: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection_refused',
  ECONNRESET: 'connection_terminated',
  ETIMEDOUT: 'connection_timeout',
  EHOSTUNREACH: 'destination_ip_unroutable',
  ENETUNREACH: 'destination_ip_unroutable',
  ENOTFOUND: 'dns_error',
  ENODATA: 'dns_error',
  EAI_AGAIN: 'dns_error',
  ETIMEOUT: 'dns_timeout',
};

const CERTIFICATE_CAUSE =
  /^(?:CERT_|ERR_TLS_CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_PURPOSE)/;

/** The system's or OpenSSL's code at the bottom of a failure. */
function causeOf(error: KeyveilError): unknown {
  let cause = error.cause;
  while (cause instanceof KeyveilError) ({ cause } = cause);
  return cause;
}

function connectType(cause: unknown): string | undefined {
  return cause instanceof ProxyRefusal ? undefined : BY_CONNECT_CAUSE[codeOf(cause)];
}

function tlsType(cause: unknown): string | undefined {
  const code = codeOf(cause);
  if (CERTIFICATE_CAUSE.test(code)) return 'tls_certificate_error';
  if (code.includes('_ALERT_')) return 'tls_alert_received';
  return code === 'ETIMEDOUT' ? 'connection_timeout' : undefined;
}

/** The registered error type for an answer of our own. */
export function proxyErrorType(error: KeyveilError): string {
  const { code } = error;
  const closer =
    code === 'upstream_connect_failed'
      ? connectType(causeOf(error))
      : code === 'upstream_tls_failed'
        ? tlsType(causeOf(error))
        : undefined;
  return closer ?? BY_CODE[code] ?? 'proxy_internal_error';
}
