// Answers of Keyveil's own: the JSON envelope, Proxy-Status (RFC 9209), and their raw HTTP/1.1 form.
import { STATUS_CODES } from 'node:http';
import { errorTypeOf, KeyveilError, type ErrorCode } from '../model/errors.ts';
import type { MissRecord } from '../model/audit.ts';
import { headerValues, withHeader, withoutHeaders, type RawHeaders } from './exchange.ts';

/** RFC 9209 section 2.3: the registered error type that comes nearest to each of our codes. */
const PROXY_STATUS_ERRORS: Partial<Record<ErrorCode, string>> = {
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
  upstream_connect_failed: 'connection_refused',
  upstream_tls_failed: 'tls_certificate_error',
  upstream_protocol_error: 'http_protocol_error',
  upstream_timeout: 'connection_timeout',
  shutting_down: 'proxy_internal_response',
  overloaded: 'connection_limit_reached',
  mitm_disabled: 'proxy_configuration_error',
};

/** An answer that is ready to be sent in any HTTP version. */
export interface OwnAnswer {
  readonly status: number;
  readonly reason: string;
  readonly headers: RawHeaders;
  readonly body: Buffer;
}

// A structured-field string (RFC 8941 section 3.3.3): printable ASCII, with quote and backslash escaped.
function quote(text: string): string {
  return `"${text.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&')}"`;
}

/** `Proxy-Status` of a refusal or failure. */
function describeError(code: ErrorCode, host: string): string {
  const error = PROXY_STATUS_ERRORS[code] ?? 'proxy_internal_error';
  return `keyveil; error=${error}; details=${quote(host === '' ? code : `${code}: ${host}`)}`;
}

/** `Proxy-Status` of a response that went through while placeholders were left as they were. */
export function describeMisses(misses: readonly MissRecord[]): string {
  const details = new Set(misses.map((miss) => `${miss.secretName} not swapped: ${miss.reason}`));
  return `keyveil; details=${quote([...details].join(', '))}`;
}

/** Appends to an upstream's own `Proxy-Status`, as RFC 9209 section 2 asks of each proxy on the way. */
export function withProxyStatus(headers: RawHeaders, status: string): RawHeaders {
  const earlier = headerValues(headers, 'proxy-status');
  if (earlier.length === 0) return [...headers, 'Proxy-Status', status];
  const rest = withoutHeaders(headers, new Set(['proxy-status']));
  return withHeader(rest, 'Proxy-Status', [...earlier, status].join(', '));
}

/** What any thrown thing is answered with; the text of an unknown error never leaves the process. */
export function toKeyveilError(error: unknown): KeyveilError {
  if (error instanceof KeyveilError) return error;
  return new KeyveilError('internal_error', 'Keyveil failed to handle this request. The log of the daemon says why.', {
    cause: error,
  });
}

/** Builds the answer to a refusal or failure. The message is ours and holds no secret. */
export function answerError(error: KeyveilError, host: string): OwnAnswer {
  const { code, message, status } = error;
  const body = Buffer.from(JSON.stringify({ type: 'error', error: { type: errorTypeOf(status), message, code } }));
  const headers = ['Content-Type', 'application/json', 'Content-Length', String(body.length)];
  headers.push('Proxy-Status', describeError(code, host));
  if (status === 407) headers.push('Proxy-Authenticate', 'Basic realm="keyveil"');
  if (status === 503 || status === 429) headers.push('Retry-After', '1');
  return { status, reason: STATUS_CODES[status] ?? 'Error', headers, body };
}

/** The answer as HTTP/1.1 bytes, for a socket that no HTTP server looks after; the connection closes after it. */
export function serialiseAnswer(answer: OwnAnswer): Buffer {
  let head = `HTTP/1.1 ${answer.status} ${answer.reason}\r\n`;
  for (let index = 0; index < answer.headers.length; index += 2) {
    head += `${answer.headers[index]}: ${answer.headers[index + 1]}\r\n`;
  }
  return Buffer.concat([Buffer.from(`${head}Connection: close\r\n\r\n`, 'latin1'), answer.body]);
}
