import t from 'tap';
import type { RawHeaders } from '../../../proxy/exchange.ts';
import { OPENED_VALUE_UNUSED_MS, VEIL_COMPILED_BYTES_MAX, VEILS_KEPT_BYTES_MAX } from '../../../model/limits.ts';
import type { SessionPolicy } from '../../../model/ports.ts';
import { askForIdentity } from '../../../proxy/veil/accept-encoding.ts';
import { findRawOnly } from '../../../model/veil-budget.ts';
import { compileVeil, dropVeils, sweepVeils } from '../../../proxy/veil/compile.ts';
import { sessionPolicy } from '../../support/policies.ts';
import { PLACEHOLDER, placeholderOf } from './echoes.ts';

function found(policy: ReturnType<typeof sessionPolicy>, host: string, text: string): string[] {
  const veil = compileVeil(policy, host);
  return (veil?.find(Buffer.from(text)) ?? []).map(({ credential }) => veil?.credentialId(credential) as string);
}

void t.test('a veil is made of the credentials that cover the host', async (t) => {
  const policy = sessionPolicy([
    { value: 'first-value', placeholder: placeholderOf(0), hosts: ['a.test', 'b.test'] },
    { value: 'second-value', placeholder: placeholderOf(1), hosts: ['*.test'] },
    { value: 'short', placeholder: placeholderOf(2), hosts: ['c.example'] },
  ]);
  const text = 'first-value second-value short';
  t.strictSame(found(policy, 'a.test', text), ['vcrd_1', 'vcrd_2']);
  t.strictSame(found(policy, 'c.test', text), ['vcrd_2']);
  t.equal(compileVeil(policy, 'c.example'), null, 'a value that is too short alone is not veiled');
  t.equal(compileVeil(policy, 'd.example'), null);
  t.equal(compileVeil(policy, 'a.test'), compileVeil(policy, 'a.test'), 'it is compiled once');
  t.equal(compileVeil(policy, 'a.test'), compileVeil(policy, 'b.test'), 'for hosts with the same credentials too');
  t.not(
    compileVeil(policy, 'a.test'),
    compileVeil(sessionPolicy([{ value: 'first-value', placeholder: PLACEHOLDER }]), 'a.test'),
  );
});

void t.test('a credential that cannot be opened is listed, and the others are veiled', async (t) => {
  const policy = sessionPolicy([
    { value: null, placeholder: placeholderOf(0) },
    { value: 'second-value', placeholder: placeholderOf(1) },
  ]);
  t.strictSame(found(policy, 'a.test', 'second-value'), ['vcrd_2']);
  t.strictSame(compileVeil(policy, 'a.test')?.unopened, ['vcrd_1']);
  const blind = compileVeil(sessionPolicy([{ value: null, placeholder: PLACEHOLDER }]), 'a.test');
  t.strictSame(blind?.unopened, ['vcrd_1']);
  t.equal(blind?.find(Buffer.from('anything at all, as long as it takes')), null);
  t.equal(blind?.longest, 1);
});

void t.test('beyond its bound a set has raw forms only: of the longest values', async (t) => {
  const value = (index: number): string => `${String(index).padStart(4, '0')}${'x'.repeat(32_000 - index)}`;
  const count = Math.ceil(VEIL_COMPILED_BYTES_MAX / (value(0).length * 4)) + 4;
  const policy = sessionPolicy([
    { value: 'short', placeholder: placeholderOf(count) },
    ...Array.from({ length: count }, (_, index) => ({ value: value(index), placeholder: placeholderOf(index) })),
  ]);
  const veil = compileVeil(policy, 'a.test');
  const isFoundInBase64 = (index: number): boolean =>
    veil?.find(Buffer.from(Buffer.from(value(index)).toString('base64'))) !== null;
  const found = Array.from({ length: count }, (_, index) => isFoundInBase64(index));
  const first = found.indexOf(true);
  t.ok(first > 0 && first < count - 1);
  t.ok(found.slice(first).every(Boolean), 'the shorter ones are looked for in every form');
  t.ok(!found.slice(0, first).some(Boolean));
  for (let index = 0; index < count; index += 1)
    t.ok(veil?.find(Buffer.from(value(index))), 'and all of them as they are');
  const told = findRawOnly(policy.credentials.map((each) => ({ id: each.id, byteLength: each.open().byteLength })));
  t.equal(told.size, first, 'which sizes alone tell');
});

void t.test('what was not used for a minute is dropped, and compiled anew when it is asked for', async (t) => {
  let nowMs = 1;
  const sweep = (): void => sweepVeils((nowMs += OPENED_VALUE_UNUSED_MS / 2));
  const policy = sessionPolicy([{ value: 'first-value', placeholder: PLACEHOLDER }]);
  const first = compileVeil(policy, 'a.test');
  sweep();
  t.equal(compileVeil(policy, 'a.test'), first, 'it was used before the first sweep');
  sweep();
  sweep();
  const second = compileVeil(policy, 'a.test');
  t.not(second, first);
  for (let count = 0; count < 100; count += 1) sweepVeils((nowMs += 250));
  t.equal(compileVeil(policy, 'a.test'), second, 'however often it is called meanwhile');
  sweep();
  t.equal(compileVeil(policy, 'a.test'), second, 'and is swept again like any other');
  sweep();
  sweep();
  t.not(compileVeil(policy, 'a.test'), second);
});

void t.test('all that is kept is bounded, and a stop drops it', async (t) => {
  const create = (number: number): SessionPolicy =>
    sessionPolicy(
      Array.from({ length: 24 }, (_, index) => ({
        value: `${number}-${index}-${'x'.repeat(32_000)}`,
        placeholder: placeholderOf(index),
      })),
    );
  const oldest = create(0);
  const before = compileVeil(oldest, 'a.test');
  let bytes = 0;
  let last = oldest;
  for (let number = 1; bytes <= VEILS_KEPT_BYTES_MAX; number += 1) {
    last = create(number);
    bytes += compileVeil(last, 'a.test')?.byteLength ?? Number.NaN;
  }
  const newest = compileVeil(last, 'a.test');
  t.equal(compileVeil(last, 'a.test'), newest);
  t.not(compileVeil(oldest, 'a.test') === before, true, 'the oldest had made room');
  dropVeils();
  t.not(compileVeil(last, 'a.test') === newest, true);
  dropVeils();
});

void t.test('hosts that a sandbox makes up do not pile up', async (t) => {
  const policy = sessionPolicy([
    { value: 'first-value', placeholder: PLACEHOLDER },
    ...Array.from({ length: 300 }, (_, index) => ({
      value: 'second-value',
      placeholder: PLACEHOLDER,
      hosts: [`h${index}.test`],
    })),
  ]);
  const first = compileVeil(policy, 'x.test');
  for (let index = 0; index < 300; index += 1) compileVeil(policy, `${index}.test`);
  t.equal(compileVeil(policy, 'y.test'), first);
  for (let index = 0; index < 300; index += 1) compileVeil(policy, `h${index}.test`);
  t.not(compileVeil(policy, 'z.test'), first);
});

void t.test('Accept-Encoding becomes identity, once, where a client sends it', async (t) => {
  for (const value of ['gzip, deflate, br', '*', 'br;q=0.1, identity;q=0', 'Identity', '']) {
    const headers: RawHeaders = ['A', '1', 'accept-ENCODING', value, 'B', '2'];
    t.strictSame(askForIdentity(headers), ['A', '1', 'accept-ENCODING', 'identity', 'B', '2'], value);
    t.equal(headers[3], value, 'the list that was given is not changed');
  }
  for (const same of [
    ['A', '1'],
    ['A', '1', 'Accept-Encoding', 'identity'],
    ['Accept-Language', 'gzip'],
  ]) {
    t.equal(askForIdentity(same), same);
  }
  const several = ['Accept-Encoding', 'identity', 'X', '1', 'accept-encoding', 'gzip', 'Accept-Encoding', 'br'];
  t.strictSame(askForIdentity(several), ['Accept-Encoding', 'identity', 'X', '1']);
});
