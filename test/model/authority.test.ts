// Hosts, authorities and allow-list patterns: one normal form for every spelling, and nothing that gets past it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { test } from 'tap';
import { decideBreadth } from '../../admin-api/public-suffix.ts';
import {
  bareHost,
  formatAuthority,
  isAddressLiteral,
  normaliseHost,
  parseAuthority,
  parseIpv4Loose,
  tryParseAuthority,
} from '../../model/authority.ts';
import {
  createHostSet,
  EVERY_HOST,
  explainPatternFault,
  parseHostPattern,
  patternCovers,
  type PatternFault,
} from '../../model/host-pattern.ts';
import { holds } from '../support/property.ts';

interface HostVectors {
  readonly patterns_valid: readonly (readonly [string, string])[];
  readonly patterns_invalid: readonly string[];
  readonly matches: readonly (readonly [pattern: string, host: string, covered: boolean])[];
  readonly authorities: readonly (readonly [string, string, number])[];
  readonly authorities_invalid: readonly string[];
}

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, '../vectors/hosts.json'), 'utf8')) as HostVectors;

// ---- generators

const label = fc.stringMatching(/^[a-z][a-z0-9_-]{0,12}$/).filter((text) => !text.includes('xn--'));
const name = fc.array(label, { minLength: 1, maxLength: 5 }).map((labels) => labels.join('.'));
const byte = fc.integer({ min: 0, max: 255 });
const ipv4 = fc.tuple(byte, byte, byte, byte).map((bytes) => bytes.join('.'));
const ipv6 = fc.ipV6().map((text) => normaliseHost(`[${text}]`) as string);
const host = fc.oneof(name, ipv4, ipv6);
const port = fc.integer({ min: 1, max: 65_535 });
const authority = fc.record({ host, port }, { noNullPrototype: true });
// Text that is near to a host: look-alikes, invisible characters, punycode, digits and dots of other scripts.
const nearHost = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom(...'abxn-_.0179ßIiİKſ。．｡１２ａ\u00ad\u200b\u200d\u0301ｘ٠אé[]:%*@/') },
      { weight: 1, arbitrary: fc.constantFrom('xn--', '0x', '..', '127.') },
      { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 2 }) },
    ),
    { maxLength: 14 },
  )
  .map((parts) => parts.join(''));

/** C's `inet_aton`, written from its manual page with exact integers; null when it is no address. */
function inetAton(text: string): string | null {
  const parts = text.split('.');
  if (parts.length > 4) return null;
  const values: bigint[] = [];
  for (const part of parts) {
    if (/^0x[0-9a-f]+$/i.test(part)) values.push(BigInt(part.toLowerCase()));
    else if (/^0[0-7]+$/.test(part)) values.push(BigInt(`0o${part.slice(1)}`));
    else if (/^(?:0|[1-9][0-9]*)$/.test(part)) values.push(BigInt(part));
    else return null;
  }
  const last = values.pop() as bigint;
  if (values.some((value) => value > 255n) || last >= 1n << BigInt(8 * (4 - values.length))) return null;
  const whole = values.reduce((sum, value, index) => sum | (value << BigInt(24 - 8 * index)), last);
  return [24n, 16n, 8n, 0n].map((shift) => String((whole >> shift) & 255n)).join('.');
}

// ---- authorities

test('the authorities of the vectors are normalised as they say', (t) => {
  for (const [text, expectedHost, expectedPort] of vectors.authorities) {
    t.strictSame(parseAuthority(text), { host: expectedHost, port: expectedPort }, text);
    t.strictSame(tryParseAuthority(text), parseAuthority(text), text);
  }
  t.end();
});

test('the invalid authorities of the vectors are refused with a message that does not quote them', (t) => {
  for (const text of vectors.authorities_invalid) {
    t.equal(tryParseAuthority(text), null, text);
    const error = t.throws(
      () => parseAuthority(text),
      { code: 'bad_request', status: 400, name: 'KeyveilError' },
      text,
    );
    t.notOk((error as Error).message.includes(text), text);
  }
  t.end();
});

test('a default port stands in for a missing one and for nothing else', (t) => {
  t.strictSame(parseAuthority('Example.com', 443), { host: 'example.com', port: 443 });
  t.strictSame(parseAuthority('[::1]', 80), { host: '[::1]', port: 80 });
  t.strictSame(parseAuthority('example.com:8080', 443), { host: 'example.com', port: 8080 });
  for (const text of [
    'example.com:',
    'example.com:0',
    'example.com:x',
    '',
    ':',
    '[::1]:',
    '[::1]x',
    '[::1]]',
    '[]',
    '[',
  ])
    t.equal(tryParseAuthority(text, 443), null, text);
  t.end();
});

test('a port is one to five ASCII digits from 1 to 65535', (t) => {
  t.strictSame(parseAuthority('a:00443'), { host: 'a', port: 443 });
  t.strictSame(parseAuthority('a:1'), { host: 'a', port: 1 });
  t.strictSame(parseAuthority('a:65535'), { host: 'a', port: 65_535 });
  for (const text of [
    'a:-1',
    'a:+1',
    'a: 1',
    'a:1 ',
    'a:1e2',
    'a:0x1',
    'a:000443',
    'a:４４３',
    'a:4.3',
    'a:443\n',
    'a:99999',
  ])
    t.equal(tryParseAuthority(text), null, JSON.stringify(text));
  t.end();
});

test('property: parsing what was formatted gives the same authority', (t) => {
  holds(
    t,
    fc.property(authority, (value) => {
      assert.deepEqual(parseAuthority(formatAuthority(value)), value);
    }),
  );
  t.end();
});

test('property: the case of a host and its trailing dot make no difference', (t) => {
  holds(
    t,
    fc.property(name, fc.boolean(), (text, upper) => {
      assert.equal(normaliseHost(`${upper ? text.toUpperCase() : text}.`), normaliseHost(text));
    }),
  );
  t.end();
});

// ---- hosts

test('every spelling of an IPv4 address becomes dotted decimal', (t) => {
  const spellings: readonly (readonly [string, string])[] = [
    ['127.1', '127.0.0.1'],
    ['127.0.1', '127.0.0.1'],
    ['2130706433', '127.0.0.1'],
    ['0x7F000001', '127.0.0.1'],
    ['017700000001', '127.0.0.1'],
    ['0x7f.0.0x0.01', '127.0.0.1'],
    ['0000000177.0.0.1', '127.0.0.1'],
    ['127.0.0.1.', '127.0.0.1'],
    ['0', '0.0.0.0'],
    ['0x', '0.0.0.0'],
    ['255.255.255.255', '255.255.255.255'],
    ['4294967295', '255.255.255.255'],
    ['１２７．０．０．１', '127.0.0.1'],
    ['127。0。0。1', '127.0.0.1'],
    ['127｡0｡0｡1', '127.0.0.1'],
    ['①②⑦.0.0.1', '127.0.0.1'],
    ['0ｘ7f.1', '127.0.0.1'],
    ['169.254.43518', '169.254.169.254'],
    ['１６９.254.169.254', '169.254.169.254'],
    ['12\u00ad7.0.0.1', '127.0.0.1'],
    ['127.0.0.\u200b1', '127.0.0.1'],
  ];
  for (const [text, expected] of spellings) {
    const normal = normaliseHost(text) as string;
    t.equal(normal, expected, text);
    t.ok(isAddressLiteral(normal), text);
  }
  t.end();
});

test('a name that ends in a number and is no address is refused, since a resolver might read one', (t) => {
  const texts = ['1.2.3.4.5', '1.2.3.256', '256.1', '1.16777216', '4294967296', '08.1', '09', 'a.1', 'example.0x7f']
    .concat(['1..2', '.1', '1.2.3.', '0xg.1', '1.2.3.0x', '99999999999999999999', `0x${'f'.repeat(30)}`])
    .concat(['1.2.3.4..', '0.0.0.0x100', 'xn--0.0', '٠.1']);
  const admitted = new Set(['1.2.3.', '1.2.3.0x']);
  for (const text of texts) t.equal(normaliseHost(text) === null, !admitted.has(text), text);
  t.equal(normaliseHost('1.2.3.'), '1.2.0.3');
  t.equal(normaliseHost('1.2.3.0x'), '1.2.3.0');
  for (const text of ['1e3', '0xg', '1-2', '3com.example', '1.2.3.a']) t.equal(normaliseHost(text), text);
  t.end();
});

test('property: IPv4 text is read as inet_aton reads it', (t) => {
  const part = fc.oneof(
    fc.integer({ min: 0, max: 300 }).map(String),
    fc.integer({ min: 0, max: 300 }).map((value) => `0x${value.toString(16)}`),
    fc.integer({ min: 0, max: 300 }).map((value) => `0${value.toString(8)}`),
    fc.bigInt({ min: 0n, max: 1n << 34n }).map(String),
    fc.bigInt({ min: 0n, max: 1n << 34n }).map((value) => `0X${value.toString(16).toUpperCase()}`),
    fc.stringMatching(/^[0-9a-fx]{0,6}$/),
  );
  const text = fc.array(part, { minLength: 1, maxLength: 5 }).map((parts) => parts.join('.'));
  holds(
    t,
    fc.property(text, (spelling) => {
      // WHATWG URL, unlike inet_aton, takes a bare `0x` as zero; so does this project, to refuse what could be zero.
      const reference = inetAton(spelling.replace(/(^|\.)0x(?=\.|$)/gi, '$10'));
      const loose = parseIpv4Loose(spelling);
      if (reference === null) assert.ok(loose === null || loose === 'invalid', `${spelling} → ${String(loose)}`);
      else assert.equal(loose, reference, spelling);
    }),
    2000,
  );
  t.end();
});

test('property: the platform, which parses hosts by itself, agrees on digits, hexadecimal and dots', (t) => {
  const text = fc.string({ unit: fc.constantFrom(...'0123456789abcdefxX.'), maxLength: 16 });
  holds(
    t,
    fc.property(text, (spelling) => {
      let expected = URL.canParse(`http://${spelling}/`) ? new URL(`http://${spelling}/`).hostname : null;
      if (expected !== null) expected = expected.replace(/\.$/, '');
      if (expected?.split('.').includes('') === true) expected = null;
      assert.equal(normaliseHost(spelling), expected, spelling);
    }),
    2000,
  );
  t.end();
});

test('an internationalised name is held in its ASCII form, whatever characters it was written in', (t) => {
  const spellings: readonly (readonly [string, string])[] = [
    ['bücher.example', 'xn--bcher-kva.example'],
    ['BÜCHER.example', 'xn--bcher-kva.example'],
    ['bu\u0308cher.example', 'xn--bcher-kva.example'],
    ['XN--BCHER-KVA.example', 'xn--bcher-kva.example'],
    ['example．com', 'example.com'],
    ['example。com。', 'example.com'],
    ['ｅｘａｍｐｌｅ.com', 'example.com'],
    ['ⓔxample.com', 'example.com'],
    ['exam\u00adple.com', 'example.com'],
    ['ex\u2060ample.com', 'example.com'],
    ['\u212aelvin.example', 'kelvin.example'],
    ['ſecret.example', 'secret.example'],
    ['api.еxample.com', 'api.xn--xample-2of.com'], // a Cyrillic е stays another name
  ];
  for (const [text, expected] of spellings) t.equal(normaliseHost(text), expected, text);
  for (const text of ['xn--a.example', 'xn--.example', 'xn--99zzzzzz99999999.com', 'a\u200d.example', '\ud800.example'])
    t.equal(normaliseHost(text), null, JSON.stringify(text));
  t.end();
});

test('delimiters, white space, controls, percent and their look-alikes are in no host', (t) => {
  const forbidden = [...' \t\r\n\u0000\u0001\u001f\u007f\u0080\u009f\u00a0#%/:<>?@[\\]^`{|}"*,;=&!$\'()+~'];
  const alike = [...'／：？＃＠％＊［］＼；＂'].concat('℀', '℆', '…', '․', '\u2028', '\ufffd', '\u202e');
  const texts = [...forbidden, ...alike].flatMap((character) => [
    `a${character}b.example`,
    `${character}a.example`,
    `a.example${character}`,
  ]);
  const encoded = ['ex%61mple.com', 'ex％61mple.com', '127.0.0.1%00.example', 'a.test\u0000.evil.test', '%5B::1%5D'];
  t.strictSame(
    [...texts, ...encoded].filter((text) => normaliseHost(text) !== null),
    [],
  );
  t.end();
});

test('a name has labels of 1 to 63 characters and 253 in all', (t) => {
  const longest = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(61)}`;
  t.equal(longest.length, 253);
  t.equal(normaliseHost(longest), longest);
  t.equal(normaliseHost(`${longest}.`), longest);
  const refused = [`${longest}e`, `${'a'.repeat(64)}.example`, 'ü'.repeat(64), 'a..b', '.a', '.', '..', 'a..', ''];
  for (const text of [...refused, 'a'.repeat(1_000_000), 'ﷺ'.repeat(60), `${'1'.repeat(64)}`])
    t.equal(normaliseHost(text), null, text.slice(0, 80));
  t.end();
});

test('an IPv6 address is compressed and in brackets, without a zone', (t) => {
  t.equal(normaliseHost('[2001:DB8:0:0:0:0:0:1]'), '[2001:db8::1]');
  t.equal(normaliseHost('[::FFFF:127.0.0.1]'), '[::ffff:7f00:1]');
  t.equal(normaliseHost('[0000:0000:0000:0000:0000:0000:0000:0000]'), '[::]');
  const refused = [
    '[fe80::1%eth0]',
    '[fe80::1%25eth0]',
    '[::1',
    '::1',
    '[]',
    '[1.2.3.4]',
    '[::1]]',
    '[[::1]]',
    '[:::1]',
  ];
  for (const text of [...refused, '[::1].', '[v1.a]', '[::1 ]', '[::１]', '[::ffff:127.1]', '[1:2:3:4:5:6:7:8:9]'])
    t.equal(normaliseHost(text), null, text);
  t.equal(bareHost('[2001:db8::1]'), '2001:db8::1');
  t.equal(bareHost('example.com'), 'example.com');
  t.ok(isAddressLiteral('[::1]'));
  t.notOk(isAddressLiteral('1.2.3.4.example'));
  t.end();
});

test('property: normalising twice is normalising once, and gives plain ASCII or an IPv6 literal', (t) => {
  let normalised = 0;
  holds(
    t,
    fc.property(fc.oneof(nearHost, host, fc.string()), (text) => {
      const once = normaliseHost(text);
      if (once === null) return;
      normalised += 1;
      if (normaliseHost(once) !== once)
        assert.fail(`${JSON.stringify(text)} → ${once} → ${String(normaliseHost(once))}`);
      if (!/^(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:]+\])$/.test(once))
        assert.fail(`${JSON.stringify(text)} → ${once}`);
    }),
    20_000,
  );
  t.ok(normalised > 1000, `${normalised} texts were hosts`);
  t.end();
});

// ---- patterns

test('the valid patterns of the vectors are normalised as they say', (t) => {
  for (const [text, expected] of vectors.patterns_valid) {
    t.strictSame(parseHostPattern(text), { ok: true, pattern: expected }, text);
    t.equal(decideBreadth(expected), 'fine', text);
  }
  t.end();
});

test('the invalid patterns of the vectors are refused, those on a public suffix for their breadth', (t) => {
  for (const text of vectors.patterns_invalid) {
    const result = parseHostPattern(text);
    t.ok(!result.ok || decideBreadth(result.pattern) === 'too_broad', text);
  }
  t.end();
});

test('the matches of the vectors hold, for a pattern alone and in a set', (t) => {
  for (const [text, hostText, expected] of vectors.matches) {
    const parsed = parseHostPattern(text);
    if (!parsed.ok) throw new Error(`${text} is no pattern`);
    const normal = normaliseHost(hostText) as string;
    t.equal(patternCovers(parsed.pattern, normal), expected, `${text} ${hostText}`);
    t.equal(createHostSet([parsed.pattern]).covers(normal), expected, `${text} ${hostText}`);
  }
  t.end();
});

test('each kind of fault has its word and an explanation of what to write', (t) => {
  const examples: Readonly<Record<PatternFault, readonly string[]>> = {
    empty: [''],
    not_a_host: ['a.example:443', 'a b', '.example', '*..', 'https://a', '＊.example', 'a.1', '*.a.example.0x7f'],
    ipv6: ['[::1]', '::1', '*.[::1]', '2001:db8::1', '*.::1'],
    bare_wildcard: ['*', '*.'],
    wildcard_place: ['a.*', '*a.example', '**.example', '*.*.example', '*。example.com', 'a*b.example'],
    wildcard_address: ['*.1.2.3.4', '*.1', '*.0x7f', '*.127.0.0.1', '*.１', '*.1.2.3.'],
    address_spelling: ['0x7f.1', '2130706433', '127.1', '0177.0.0.1', '１２７.0.0.1', '01.2.3.4'],
  };
  for (const [fault, texts] of Object.entries(examples)) {
    for (const text of texts) t.strictSame(parseHostPattern(text), { ok: false, fault }, text);
    t.match(explainPatternFault(fault as PatternFault), /^(?:must|may) /);
  }
  t.strictSame(parseHostPattern('127.0.0.1.'), { ok: true, pattern: '127.0.0.1' });
  t.end();
});

test('a wildcard covers every depth below its name and neither the name, a look-alike nor an address', (t) => {
  const set = createHostSet(['*.example.com', 'api.other.test', '203.0.113.9']);
  for (const covered of [
    'a.example.com',
    'a.b.c.example.com',
    'api.other.test',
    '203.0.113.9',
    'xn--bcher-kva.example.com',
  ])
    t.ok(set.covers(covered), covered);
  const uncovered = [
    'example.com',
    '.example.com',
    'badexample.com',
    'example.com.evil.test',
    'x.api.other.test',
    'com',
  ];
  for (const text of [...uncovered, 'other.test', '203.0.113.90', '1.203.0.113.9', '[::ffff:cb00:7109]', '', '.'])
    t.notOk(set.covers(text), text);
  t.notOk(patternCovers('*.example.com', '.example.com'));
  t.notOk(patternCovers('*.example.com', 'example.com'));
  // Patterns that parseHostPattern never gives must not cover an address either.
  t.notOk(createHostSet(['*.0.0.1']).covers('127.0.0.1'));
  t.ok(EVERY_HOST.covers('[::1]'));
  t.equal(EVERY_HOST.shareOf('*.example.com'), 'all');
  t.end();
});

test('a set tells how much of a pattern it covers', (t) => {
  const set = createHostSet(['*.example.com', 'api.other.test', '*.deep.third.test']);
  const shares = {
    'a.example.com': 'all',
    '*.example.com': 'all',
    '*.a.example.com': 'all',
    'example.com': 'none',
    '*.com': 'some',
    '*.other.test': 'some',
    'api.other.test': 'all',
    '*.api.other.test': 'none',
    '*.third.test': 'some',
    '*.deep.third.test': 'all',
    'third.test': 'none',
    '*.ther.test': 'none',
  } as const;
  for (const [pattern, share] of Object.entries(shares)) t.equal(set.shareOf(pattern), share, pattern);
  t.equal(createHostSet(['x.example.com']).shareOf('*.example.com'), 'some');
  t.end();
});

test('property: what a pattern covers is its name or ends in its suffix, and a set says what its patterns say', (t) => {
  // Few labels, so that patterns and hosts meet often.
  const few = fc
    .array(fc.constantFrom('a', 'b', 'c', 'ab'), { minLength: 1, maxLength: 4 })
    .map((all) => all.join('.'));
  const pattern = fc.tuple(fc.boolean(), few).map(([isWildcard, text]) => (isWildcard ? `*.${text}` : text));
  holds(
    t,
    fc.property(fc.array(pattern, { maxLength: 5 }), few, (patterns, text) => {
      for (const each of patterns) {
        const expected = each.startsWith('*.')
          ? text !== each.slice(2) && `.${text}`.endsWith(each.slice(1))
          : text === each;
        assert.equal(patternCovers(each, text), expected, `${each} ${text}`);
      }
      assert.equal(
        createHostSet(patterns).covers(text),
        patterns.some((each) => patternCovers(each, text)),
      );
    }),
    2000,
  );
  t.end();
});

test('property: a pattern that was accepted is accepted again, and covers the host that it was made of', (t) => {
  holds(
    t,
    fc.property(fc.oneof(nearHost, name), fc.boolean(), (text, isWildcard) => {
      const parsed = parseHostPattern(isWildcard ? `*.${text}` : text);
      if (!parsed.ok) return;
      if (JSON.stringify(parseHostPattern(parsed.pattern)) !== JSON.stringify(parsed))
        assert.fail(JSON.stringify(text));
      const normal = normaliseHost(isWildcard ? `deep.er.${text}` : text);
      // A name may outgrow its limit below a wildcard.
      if (normal !== null && !createHostSet([parsed.pattern]).covers(normal)) assert.fail(JSON.stringify(text));
    }),
    5000,
  );
  t.end();
});
