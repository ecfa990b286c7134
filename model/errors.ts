// The one error type of the project and the one table from error code to HTTP status and wire type.

/** Stable words of ours, each with the status it is answered with (api.md and proxy.md of the design). */
const STATUS_BY_CODE = {
  // admin API
  invalid_request: 400,
  invalid_field: 400,
  unknown_field: 400,
  missing_field: 400,
  immutable_field: 400,
  invalid_json: 400,
  invalid_page: 400,
  archived: 400,
  secret_name_reserved: 400,
  unsupported_auth_type: 400,
  secret_value_not_header_safe: 400,
  host_too_broad: 400,
  vault_full: 400,
  vault_archived: 400,
  environment_archived: 400,
  mitm_disabled: 400,
  credential_not_mountable: 400,
  session_not_suspended: 400,
  unauthenticated: 401,
  insufficient_scope: 403,
  not_found: 404,
  method_not_allowed: 405,
  secret_name_taken: 409,
  environment_in_use: 409,
  request_too_large: 413,
  admin_host_refused: 421,
  unsupported_media_type: 415,
  too_many_failed_logins: 429,
  internal_error: 500,
  store_unavailable: 503,
  // data plane
  bad_request: 400,
  environment_denied: 403,
  address_denied: 403,
  port_denied: 403,
  connect_not_allowed: 405,
  proxy_authentication_required: 407,
  session_inactive: 407,
  swap_too_large: 413,
  host_mismatch: 421,
  header_too_large: 431,
  too_many_requests: 429,
  upstream_connect_failed: 502,
  upstream_tls_failed: 502,
  upstream_protocol_error: 502,
  credential_unreadable: 502,
  swap_value_refused: 502,
  shutting_down: 503,
  overloaded: 503,
  emergency_stop: 503,
  upstream_timeout: 504,
} as const;

export type ErrorCode = keyof typeof STATUS_BY_CODE;

/** The wire types of the admin API's error envelope. */
export type ErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'not_found_error'
  | 'conflict_error'
  | 'request_too_large'
  | 'rate_limit_error'
  | 'api_error'
  | 'overloaded_error';

const TYPE_BY_STATUS: Readonly<Record<number, ErrorType>> = {
  401: 'authentication_error',
  407: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  409: 'conflict_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  502: 'api_error',
  503: 'overloaded_error',
  504: 'api_error',
};

export interface KeyveilErrorOptions {
  /** Path of the offending field, such as `auth.networking`. */
  readonly param?: string;
  /** What caused it; logged by name, never sent. */
  readonly cause?: unknown;
  /** Where one code is answered with another status than the table's: `mitm_disabled` is 503 in the data plane. */
  readonly status?: number;
}

/** A refusal or failure with a stable code. The message is for people and never holds a secret value. */
export class KeyveilError extends Error {
  override readonly name = 'KeyveilError';
  readonly code: ErrorCode;
  readonly status: number;
  readonly param: string | null;

  constructor(code: ErrorCode, message: string, options: KeyveilErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.status = options.status ?? STATUS_BY_CODE[code];
    this.param = options.param ?? null;
  }
}

/** HTTP status that answers an error code. */
export function statusOf(code: ErrorCode): number {
  return STATUS_BY_CODE[code];
}

/** Wire type that goes with an HTTP status; every 4xx without its own type is an invalid request. */
export function errorTypeOf(status: number): ErrorType {
  return TYPE_BY_STATUS[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
}

/** All codes, for the documentation and the OpenAPI schema. */
export const ERROR_CODES = Object.keys(STATUS_BY_CODE) as readonly ErrorCode[];

/** Why the daemon could not start (or a command could not run): one line with what, where, and what to do. */
export class StartError extends Error {
  override readonly name = 'StartError';
}
