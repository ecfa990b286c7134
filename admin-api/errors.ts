// The error envelope: what each failure is answered with, and which of them are logged.
import { createId } from '../model/ids.ts';
import { ADMIN_BODY_BYTES_MAX } from '../model/limits.ts';
import { errorTypeOf, KeyveilError } from '../model/errors.ts';
import type { Clock, Logger } from '../model/ports.ts';

/** `{"type":"error","error":{…},"request_id":"req_…"}`, as the SDKs of the Claude API read it. */
export interface ErrorEnvelope {
  readonly type: 'error';
  readonly error: { readonly type: string; readonly message: string; readonly code: string; readonly param?: string };
  readonly request_id: string;
}

export function toEnvelope(error: KeyveilError, requestId: string): ErrorEnvelope {
  const { code, message, status, param } = error;
  return {
    type: 'error',
    error: { type: errorTypeOf(status), message, code, ...(param === null ? {} : { param }) },
    request_id: requestId,
  };
}

/** Headers that an error carries besides `request-id`. */
export function errorHeaders(error: KeyveilError): Readonly<Record<string, string>> {
  // The SDKs retry 409 and 429 on their own; neither a taken name nor a wrong token gets better by that.
  const isFinal = error.status === 409 || error.code === 'too_many_failed_logins';
  return isFinal ? { 'x-should-retry': 'false' } : {};
}

const UNSUPPORTED_MEDIA = 'Send the body as JSON, with content-type: application/json.';

// Failures of the framework, by its code. Their own messages may quote the request, so none is passed on.
function fromFrameworkCode(code: unknown): KeyveilError | null {
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new KeyveilError('request_too_large', `The body is larger than ${ADMIN_BODY_BYTES_MAX} bytes.`);
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_INVALID_TYPE':
    case 'FST_ERR_CTP_EMPTY_TYPE':
      return new KeyveilError('unsupported_media_type', UNSUPPORTED_MEDIA);
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new KeyveilError('invalid_request', 'The body does not have the length that content-length says.');
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new KeyveilError('invalid_request', 'The path is not a valid URL path.');
    case 'ECONNRESET':
    case 'ECONNABORTED':
      return new KeyveilError('invalid_request', 'The connection ended before the whole request had come.');
    default:
      return null;
  }
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
}

/** Turns whatever was thrown into one of our errors; what is not known is `internal_error` and says nothing more. */
export function toKeyveilError(error: unknown): KeyveilError {
  if (error instanceof KeyveilError) return error;
  return (
    fromFrameworkCode(codeOf(error)) ??
    new KeyveilError('internal_error', 'The request failed inside Keyveil. The log has more under this request id.', {
      cause: error,
    })
  );
}

/** Logs a failure of ours, once; refusals are the sender's affair and show as debug lines of their requests. */
export function logFailure(logger: Logger, error: KeyveilError, requestId: string): void {
  if (error.status < 500 || error.code === 'shutting_down') return;
  logger.error({ requestId, code: error.code, status: error.status, error: error.cause ?? error }, 'request failed');
}

/** A whole HTTP/1.1 answer for bytes that were no HTTP request, to be written to the socket before it is closed. */
export function rawErrorResponse(cause: unknown, clock: Clock): string {
  const isTooLarge = codeOf(cause) === 'HPE_HEADER_OVERFLOW';
  const error = isTooLarge
    ? new KeyveilError('header_too_large', 'The header fields are larger than 16 KiB.')
    : new KeyveilError('invalid_request', 'This is not a valid HTTP/1.1 request.');
  const requestId = createId('request', clock.now());
  const body = JSON.stringify(toEnvelope(error, requestId));
  const head = [
    `HTTP/1.1 ${error.status} ${isTooLarge ? 'Request Header Fields Too Large' : 'Bad Request'}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    `request-id: ${requestId}`,
    'connection: close',
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}
