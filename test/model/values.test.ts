// Secrets, the rules of credentials, placeholders and ids.
import assert from 'node:assert/strict';
import { Console } from 'node:console';
import { Writable } from 'node:stream';
import { format, formatWithOptions, inspect } from 'node:util';
import { serialize } from 'node:v8';
import fc from 'fast-check';
import { test } from 'tap';
import {
  findSecretValueFault,
  isHeaderSafe,
  isLowEntropy,
  isMountable,
  SECRET_NAME_PATTERN,
} from '../../model/credential.ts';
import { KeyveilError } from '../../model/errors.ts';
import { createId, ID_PREFIXES, isId, type IdKind } from '../../model/ids.ts';
import { LOW_ENTROPY_BYTES_BELOW, SECRET_VALUE_BYTES_MAX } from '../../model/limits.ts';
import {
  createPlaceholder,
  PLACEHOLDER_MARKER,
  PLACEHOLDER_PATTERN,
  PLACEHOLDER_PREFIX_CHARACTERS_MAX,
  PLACEHOLDER_PREFIX_PATTERN,
  PLACEHOLDER_RANDOM_CHARACTERS,
} from '../../model/placeholder.ts';
import { Secret } from '../../model/secret.ts';
import { holds } from '../support/property.ts';

// ---- secrets

const VALUE = 'canary-value-7f3a';

/** Every way in which a program turns a value into text by accident. */
function accidents(secret: Secret): string[] {
  const holder = { name: 'x', secret, list: [secret], map: new Map([['key', secret]]), set: new Set([secret]) };
  const error = new KeyveilError('internal_error', 'failed', { cause: holder });
  const printed: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      printed.push(chunk.toString());
      done();
    },
  });
  const printer = new Console({ stdout: sink, stderr: sink });
  printer.log(secret, holder, [secret]);
  printer.error('%s %o %O %j %d %i', secret, secret, secret, secret, secret, secret);
  printer.dir(secret, { showHidden: true, depth: null });
  printer.table([holder]);
  return [
    ...printed,
    String(secret),
    // eslint-disable-next-line @typescript-eslint/restrict-template-expressions -- this mistake is what is tried
    `${secret}`,
    // eslint-disable-next-line @typescript-eslint/restrict-plus-operands -- as above
    'text ' + secret,
    [secret, secret].join(),
    secret.toLocaleString(),
    JSON.stringify(secret),
    JSON.stringify(holder),
    JSON.stringify({ ...secret }),
    JSON.stringify(Object.entries(secret)),
    JSON.stringify(structuredClone(secret)),
    inspect(secret),
    inspect(holder, { depth: null, showHidden: true, getters: true }),
    inspect(secret, { customInspect: false, showHidden: true, getters: true }),
    inspect(error, { depth: null }),
    format('%s %o %O %j', secret, holder, holder, holder),
    formatWithOptions({ showHidden: true, customInspect: false }, '%o', secret),
    serialize(structuredClone(secret)).toString('latin1'),
    Object.getOwnPropertyNames(secret).join(),
    error.stack ?? '',
    JSON.stringify(error),
  ];
}

test('no way of printing a secret shows its value, in text, base64 or hexadecimal', (t) => {
  const bytes = Buffer.from(VALUE);
  const forms = [VALUE, bytes.toString('base64').slice(0, 20), bytes.toString('hex'), '63 61 6e 61 72', '99,97,110'];
  for (const [index, text] of accidents(Secret.fromText(VALUE)).entries())
    t.strictSame(
      forms.filter((form) => text.includes(form)),
      [],
      `way ${index}`,
    );
  t.end();
});

test('a secret prints as [secret]', (t) => {
  const secret = Secret.fromText(VALUE);
  t.equal(String(secret), '[secret]');
  t.equal(JSON.stringify({ secret }), '{"secret":"[secret]"}');
  t.equal(inspect({ secret }), '{ secret: [secret] }');
  t.equal(format('%s', secret), '[secret]');
  t.end();
});

test('a secret reveals the bytes that it was made of, and zeros once it is wiped', (t) => {
  const text = Secret.fromText('schlüssel');
  t.equal(text.reveal().toString('utf8'), 'schlüssel');
  t.equal(text.byteLength, 10);
  const bytes = Buffer.from([0, 255, 10]);
  const secret = Secret.fromBytes(bytes);
  t.equal(secret.reveal(), bytes, 'the bytes are taken over, not copied');
  secret.wipe();
  t.strictSame([...bytes], [0, 0, 0]);
  t.equal(secret.byteLength, 3);
  t.end();
});

// ---- credentials

test('a value has 1 to 32,768 bytes of UTF-8 and no NUL', (t) => {
  t.equal(findSecretValueFault(Secret.fromText('')), 'empty');
  t.equal(findSecretValueFault(Secret.fromText('x')), null);
  t.equal(findSecretValueFault(Secret.fromText('x'.repeat(SECRET_VALUE_BYTES_MAX))), null);
  t.equal(findSecretValueFault(Secret.fromText('x'.repeat(SECRET_VALUE_BYTES_MAX + 1))), 'too_long');
  t.equal(findSecretValueFault(Secret.fromText('ü'.repeat(SECRET_VALUE_BYTES_MAX / 2 + 1))), 'too_long', 'bytes count');
  t.equal(findSecretValueFault(Secret.fromText('a\u0000b')), 'nul');
  t.equal(findSecretValueFault(Secret.fromText('\u0000')), 'nul');
  t.equal(findSecretValueFault(Secret.fromText('line\r\nline')), null);
  t.end();
});

test('a header-safe value holds no control character, at any place', (t) => {
  for (let code = 0; code < 256; code += 1) {
    const isControl = code < 0x20 || code === 0x7f;
    for (const bytes of [[code], [0x61, code], [code, 0x61], [0x61, code, 0x61]])
      if (isHeaderSafe(Secret.fromBytes(Buffer.from(bytes))) === isControl) t.fail(`byte ${code}`);
  }
  t.ok(isHeaderSafe(Secret.fromText('Schlüssel "mit" \\ & 🔑')));
  t.notOk(isHeaderSafe(Secret.fromText('a\r\nX-Evil: 1')));
  t.notOk(isHeaderSafe(Secret.fromText('a\tb')));
  t.end();
});

test('a value is of low entropy below 16 bytes or when it is digits only', (t) => {
  t.equal(LOW_ENTROPY_BYTES_BELOW, 16);
  t.ok(isLowEntropy(Secret.fromText('x'.repeat(15))));
  t.notOk(isLowEntropy(Secret.fromText('x'.repeat(16))));
  t.ok(isLowEntropy(Secret.fromText('0123456789'.repeat(4))));
  t.notOk(isLowEntropy(Secret.fromText('0123456789a0123456789')));
  t.notOk(isLowEntropy(Secret.fromText('/'.repeat(20))), 'the character before 0');
  t.notOk(isLowEntropy(Secret.fromText(':'.repeat(20))), 'the character after 9');
  t.end();
});

test('a credential is mountable with a placeholder and a location', (t) => {
  const injectionLocation = { header: true, body: false };
  t.ok(isMountable({ placeholder: 'p', injectionLocation }));
  t.notOk(isMountable({ placeholder: null, injectionLocation }));
  t.notOk(isMountable({ placeholder: 'p', injectionLocation: null }));
  t.notOk(isMountable({ placeholder: null, injectionLocation: null }));
  t.end();
});

test('a secret name is an identifier of the shell of at most 128 characters', (t) => {
  for (const name of ['A', '_', 'a1', 'NOTION_API_KEY', '__proto__', 'x'.repeat(128)])
    t.match(name, SECRET_NAME_PATTERN);
  for (const name of ['', '1A', 'A-B', 'A B', 'A=B', 'Ä', 'A\n', 'A\u0000', '$A', 'x'.repeat(129), 'ＡＰＩ'])
    t.notMatch(name, SECRET_NAME_PATTERN);
  t.end();
});

// ---- placeholders

test('a placeholder is its prefix, the marker and 32 random base-62 characters', (t) => {
  for (const prefix of ['', 'ntn_', 'sk-ant-', 'kvph_', 'x'.repeat(PLACEHOLDER_PREFIX_CHARACTERS_MAX)]) {
    const placeholder = createPlaceholder(prefix);
    t.ok(placeholder.startsWith(prefix + PLACEHOLDER_MARKER));
    t.equal(placeholder.length, prefix.length + PLACEHOLDER_MARKER.length + PLACEHOLDER_RANDOM_CHARACTERS);
    t.match(placeholder, PLACEHOLDER_PATTERN);
    t.match(prefix, PLACEHOLDER_PREFIX_PATTERN);
  }
  for (const prefix of ['x'.repeat(33), 'a b', 'a"', 'a/', 'ä', 'a\n', 'a+', 'a%']) {
    t.notMatch(prefix, PLACEHOLDER_PREFIX_PATTERN);
    t.notMatch(createPlaceholder(prefix), PLACEHOLDER_PATTERN);
  }
  t.end();
});

test('placeholders are unlike each other and favour no character at any place', (t) => {
  const rounds = 4000;
  const made = Array.from({ length: rounds }, () => createPlaceholder().slice(PLACEHOLDER_MARKER.length));
  t.equal(new Set(made).size, rounds);
  const counts = new Map<string, number>();
  for (const character of made.join('')) counts.set(character, (counts.get(character) ?? 0) + 1);
  t.equal(counts.size, 62);
  // Chi-squared with 61 degrees of freedom: above 150 once in 10 to the 9; a modulo bias of bytes gives about 2,000.
  const expected = (rounds * PLACEHOLDER_RANDOM_CHARACTERS) / 62;
  const chiSquared = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  t.ok(chiSquared < 150, `chi-squared is ${chiSquared.toFixed(1)}`);
  t.end();
});

// ---- ids

const kinds = Object.keys(ID_PREFIXES) as IdKind[];

test('an id names its kind and is of no other kind', (t) => {
  for (const kind of kinds) {
    const id = createId(kind, Date.UTC(2026, 0, 15));
    t.match(id, new RegExp(`^${ID_PREFIXES[kind]}_[0-9a-hjkmnp-tv-z]{26}$`));
    t.strictSame(
      kinds.filter((other) => isId(other, id)),
      [kind],
    );
  }
  t.equal(new Set(Object.values(ID_PREFIXES)).size, kinds.length);
  t.end();
});

test('the random part of an id uses every character of its alphabet at every place', (t) => {
  const randoms = Array.from({ length: 2000 }, () => createId('session', 0).slice(-16));
  for (let place = 0; place < 16; place += 1)
    t.equal(new Set(randoms.map((random) => random.charAt(place))).size, 32, `place ${place}`);
  t.end();
});

test('text that only looks like an id is none', (t) => {
  const good = createId('vault', 0);
  const rest = good.slice(4);
  t.ok(isId('vault', good));
  const texts = ['', 'vlt_', rest, `vlt-${rest}`, `VLT_${rest}`, `vlt_${rest}0`, `vlt_${rest.slice(1)}`, ` ${good}`]
    .concat([`${good}\n`, `vlt_${rest.slice(0, 25)}A`, `../${good}`])
    .concat([...'ilou/%_\u0000ａ'].map((character) => `vlt_${rest.slice(0, 25)}${character}`));
  t.strictSame(
    texts.filter((text) => isId('vault', text)),
    [],
  );
  t.end();
});

test('property: ids of different milliseconds sort by time, and two of one millisecond differ', (t) => {
  const time = fc.integer({ min: 0, max: 2 ** 45 });
  holds(
    t,
    fc.property(time, time, fc.constantFrom(...kinds), (one, other, kind) => {
      const [first, second] = [createId(kind, one), createId(kind, other)];
      assert.ok(isId(kind, first) && isId(kind, second));
      assert.notEqual(first, second);
      if (one !== other) assert.equal(first < second, one < other);
    }),
  );
  t.end();
});
