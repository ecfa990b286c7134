// Records of the control plane: errors, metadata, networking of environments, and the state of a session.
import { test } from 'tap';
import { mergeNetworking } from '../../model/environment.ts';
import { ERROR_CODES, errorTypeOf, KeyveilError, StartError, statusOf, type ErrorCode } from '../../model/errors.ts';
import { parseHostPattern } from '../../model/host-pattern.ts';
import { METADATA_PAIRS_MAX } from '../../model/limits.ts';
import * as limits from '../../model/limits.ts';
import {
  compileAdmission,
  compileCoverage,
  PACKAGE_MANAGER_HOSTS,
  type EnvironmentNetworking,
} from '../../model/networking.ts';
import { decideSessionStatus } from '../../model/session.ts';
import { patchMetadata } from '../../model/vault.ts';

// ---- errors

test('codes of the documented refusals have their documented statuses', (t) => {
  const statuses: readonly (readonly [number, readonly ErrorCode[]])[] = [
    [400, ['bad_request', 'archived', 'secret_name_reserved', 'unsupported_auth_type', 'secret_value_not_header_safe']],
    [400, ['host_too_broad', 'vault_full', 'vault_archived', 'environment_archived', 'mitm_disabled']],
    [400, ['credential_not_mountable', 'unknown_field', 'missing_field', 'immutable_field', 'invalid_page']],
    [401, ['unauthenticated']],
    [403, ['environment_denied', 'address_denied', 'port_denied', 'insufficient_scope']],
    [404, ['not_found']],
    [405, ['connect_not_allowed', 'method_not_allowed']],
    [407, ['proxy_authentication_required', 'session_inactive']],
    [409, ['secret_name_taken', 'environment_in_use']],
    [413, ['swap_too_large', 'request_too_large']],
    [421, ['host_mismatch', 'admin_host_refused']],
    [429, ['too_many_failed_logins']],
    [431, ['header_too_large']],
    [500, ['internal_error']],
    [502, ['upstream_connect_failed', 'upstream_tls_failed', 'upstream_protocol_error', 'credential_unreadable']],
    [503, ['shutting_down', 'overloaded', 'emergency_stop', 'store_unavailable']],
    [504, ['upstream_timeout']],
  ];
  for (const [status, codes] of statuses)
    for (const code of codes) {
      t.equal(statusOf(code), status, code);
      t.equal(new KeyveilError(code, 'message').status, status, code);
    }
  for (const code of ERROR_CODES) {
    t.match(code, /^[a-z0-9_]+$/);
    t.ok(statusOf(code) >= 400 && statusOf(code) <= 504, code);
  }
  t.equal(new Set(ERROR_CODES).size, ERROR_CODES.length);
  t.end();
});

test('every status has the wire type of the documentation', (t) => {
  const types = {
    400: 'invalid_request_error',
    401: 'authentication_error',
    403: 'permission_error',
    404: 'not_found_error',
    405: 'invalid_request_error',
    407: 'authentication_error',
    409: 'conflict_error',
    413: 'request_too_large',
    415: 'invalid_request_error',
    421: 'invalid_request_error',
    429: 'rate_limit_error',
    431: 'invalid_request_error',
    500: 'api_error',
    502: 'api_error',
    503: 'overloaded_error',
    504: 'api_error',
    507: 'api_error',
  } as const;
  for (const [status, type] of Object.entries(types)) t.equal(errorTypeOf(Number(status)), type, status);
  for (const code of ERROR_CODES) t.ok(statusOf(code) in types, `${code} has a tested status`);
  t.end();
});

test('an error keeps its code, field and cause, and takes another status where one is given', (t) => {
  const cause = new Error('inner');
  const error = new KeyveilError('mitm_disabled', 'Interception is off.', { status: 503, param: 'vault_ids', cause });
  t.match(error, { name: 'KeyveilError', code: 'mitm_disabled', status: 503, param: 'vault_ids', cause });
  t.ok(error instanceof Error);
  const plain = new KeyveilError('not_found', 'No such vault.');
  t.match(plain, { message: 'No such vault.', status: 404, param: null });
  t.notOk('cause' in plain);
  t.equal(new StartError('what, where, what to do').name, 'StartError');
  t.end();
});

test('every limit is a whole number above zero', (t) => {
  for (const [name, value] of Object.entries(limits)) t.ok(Number.isSafeInteger(value) && value > 0, name);
  t.end();
});

// ---- metadata

test('a metadata patch sets strings, deletes nulls and keeps the rest', (t) => {
  const before = { keep: '1', change: '2', drop: '3' };
  t.strictSame(patchMetadata(before, { change: 'x', drop: null, add: '', absent: null }), {
    keep: '1',
    change: 'x',
    add: '',
  });
  t.strictSame(before, { keep: '1', change: '2', drop: '3' }, 'what was there is not changed');
  t.strictSame(patchMetadata({}, {}), {});
  t.end();
});

test('metadata holds 16 pairs at most, counted after the patch', (t) => {
  const full = Object.fromEntries(Array.from({ length: METADATA_PAIRS_MAX }, (_, index) => [`k${index}`, 'v']));
  t.equal(Object.keys(patchMetadata({}, full)).length, 16);
  t.throws(() => patchMetadata(full, { extra: 'v' }), { code: 'invalid_field', param: 'metadata', status: 400 });
  t.equal(Object.keys(patchMetadata(full, { extra: 'v', k0: null })).length, 16);
  t.end();
});

test('metadata with a name of the object’s own machinery is plain data', (t) => {
  const patch = JSON.parse('{"__proto__":"x","constructor":"y","toString":"z"}') as Record<string, string>;
  const patched = patchMetadata({}, patch);
  t.strictSame(Object.keys(patched), ['__proto__', 'constructor', 'toString']);
  t.equal(JSON.stringify(patched), JSON.stringify(patch));
  t.equal(Object.getPrototypeOf(patched), Object.prototype);
  t.end();
});

// ---- networking

const unrestricted: EnvironmentNetworking = { type: 'unrestricted' };
const limited: EnvironmentNetworking = { type: 'limited', allowedHosts: ['a.example'], allowPackageManagers: true };

test('an update of networking keeps the fields of a limited environment that were not sent', (t) => {
  t.strictSame(mergeNetworking(limited, {}), limited);
  t.strictSame(mergeNetworking(limited, { type: 'limited' }), limited);
  t.strictSame(mergeNetworking(limited, { allowedHosts: [] }), { ...limited, allowedHosts: [] });
  t.strictSame(mergeNetworking(limited, { allowPackageManagers: false }), { ...limited, allowPackageManagers: false });
  t.strictSame(mergeNetworking(limited, { type: 'unrestricted' }), unrestricted);
  t.end();
});

test('an unrestricted environment becomes limited only by name, and then admits nothing that was not listed', (t) => {
  t.strictSame(mergeNetworking(unrestricted, {}), unrestricted);
  const closed = mergeNetworking(unrestricted, { type: 'limited' });
  t.strictSame(closed, { type: 'limited', allowedHosts: [], allowPackageManagers: false });
  t.notOk(compileAdmission(closed).covers('a.example'));
  t.strictSame(mergeNetworking(unrestricted, { type: 'limited', allowedHosts: ['b.example'] }), {
    type: 'limited',
    allowedHosts: ['b.example'],
    allowPackageManagers: false,
  });
  t.end();
});

test('hosts for an environment that stays unrestricted are refused, since they would change nothing', (t) => {
  const refusal = { code: 'invalid_field', param: 'config.networking.type', status: 400 };
  for (const patch of [{ allowedHosts: ['a.example'] }, { allowedHosts: [] }, { allowPackageManagers: false }]) {
    t.throws(() => mergeNetworking(unrestricted, patch), refusal);
    t.throws(() => mergeNetworking(limited, { ...patch, type: 'unrestricted' }), refusal);
  }
  t.end();
});

test('networking compiles to the hosts that it names', (t) => {
  t.ok(compileCoverage({ type: 'unrestricted' }).covers('any.example'));
  const coverage = compileCoverage({ type: 'limited', allowedHosts: ['a.example', '*.b.example'] });
  t.strictSame(
    ['a.example', 'x.b.example', 'b.example', 'c.example'].map((host) => coverage.covers(host)),
    [true, true, false, false],
  );
  t.ok(compileAdmission(unrestricted).covers('any.example'));
  const withRegistries = compileAdmission(limited);
  const without = compileAdmission({ ...limited, allowPackageManagers: false });
  for (const host of PACKAGE_MANAGER_HOSTS) {
    t.ok(withRegistries.covers(host), host);
    t.notOk(without.covers(host), host);
    t.strictSame(parseHostPattern(host), { ok: true, pattern: host }, 'the list is in normal form');
  }
  t.ok(withRegistries.covers('a.example') && without.covers('a.example'));
  t.notOk(withRegistries.covers('evil.registry.npmjs.org'));
  t.end();
});

// ---- sessions

test('a session is archived before it is expired, expired before it is suspended, else active', (t) => {
  const none = { archivedAt: null, expiresAt: null, suspendedAt: null };
  t.equal(decideSessionStatus(none, 1000), 'active');
  t.equal(decideSessionStatus({ ...none, expiresAt: 1001 }, 1000), 'active');
  t.equal(decideSessionStatus({ ...none, expiresAt: 1000 }, 1000), 'expired', 'the end itself is past it');
  t.equal(decideSessionStatus({ ...none, suspendedAt: 5 }, 1000), 'suspended');
  t.equal(decideSessionStatus({ ...none, suspendedAt: 5, expiresAt: 1001 }, 1000), 'suspended');
  t.equal(decideSessionStatus({ ...none, suspendedAt: 5, expiresAt: 999 }, 1000), 'expired');
  t.equal(decideSessionStatus({ archivedAt: 0, suspendedAt: 5, expiresAt: 999 }, 1000), 'archived');
  t.equal(decideSessionStatus({ ...none, archivedAt: 5000 }, 1000), 'archived', 'whatever the clock says');
  t.end();
});
