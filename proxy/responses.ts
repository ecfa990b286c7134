// Answers of Keyveil's own: the JSON envelope, Proxy-Status (RFC 9209), and their raw HTTP/1.1 form.
import { STATUS_CODES } from 'node:http';
import { errorTypeOf, KeyveilError } from '../model/errors.ts';
import type { MissRecord } from '../model/audit.ts';
import { headerValues, withHeader, withoutHeaders, type RawHeaders } from './exchange.ts';
import { proxyErrorType } from './proxy-status.ts';

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
function describeError(error: KeyveilError, host: string): string {
  const { code } = error;
  return `keyveil; error=${proxyErrorType(error)}; details=${quote(host === '' ? code : `${code}: ${host}`)}`;
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
  headers.push('Proxy-Status', describeError(error, host));
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
