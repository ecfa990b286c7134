// Address classes: what is refused in every spelling, and what the operator's ranges open.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { test } from 'tap';
import { bareHost, normaliseHost } from '../../model/authority.ts';
import {
  classifyAddress,
  decideAddress,
  isAddressInside,
  parseAddress,
  parseCidr,
  type Cidr,
  type IpClass,
} from '../../model/ip-class.ts';
import { holds } from '../support/property.ts';

interface AddressVectors {
  readonly refused: readonly string[];
  readonly admitted: readonly string[];
}

const vectors = JSON.parse(
  readFileSync(join(import.meta.dirname, '../vectors/addresses.json'), 'utf8'),
) as AddressVectors;

function ranges(...texts: string[]): Cidr[] {
  return texts.map((text) => parseCidr(text) as Cidr);
}

function hex(value: number): string {
  return value.toString(16);
}

const byte = fc.integer({ min: 0, max: 255 });
const ipv4Bytes = fc.oneof(
  fc.tuple(byte, byte, byte, byte),
  // Near to the ranges that are refused.
  fc.tuple(fc.constantFrom(0, 10, 100, 127, 168, 169, 172, 192, 198, 203, 224, 240, 255), byte, byte, byte),
  fc.constantFrom<[number, number, number, number][]>(
    [169, 254, 169, 254],
    [127, 0, 0, 1],
    [192, 168, 0, 1],
    [8, 8, 8, 8],
  ),
);
const hextets = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff })), { minLength: 8, maxLength: 8 });

test('the addresses of the vectors are refused and admitted as they say', (t) => {
  for (const text of vectors.refused) {
    t.equal(decideAddress(text, []), 'refuse', text);
    t.not(classifyAddress(text), 'global', text);
  }
  for (const text of vectors.admitted) {
    t.equal(decideAddress(text, []), 'admit', text);
    t.equal(classifyAddress(text), 'global', text);
  }
  t.end();
});

test('each class holds the first and the last address of its ranges and not their neighbours', (t) => {
  const rows: readonly (readonly [IpClass, string, string, ...string[]])[] = [
    ['unspecified', '0.0.0.0', '0.0.0.0'],
    ['reserved', '0.0.0.1', '0.255.255.255', '1.0.0.0'],
    ['private', '10.0.0.0', '10.255.255.255', '9.255.255.255', '11.0.0.0'],
    ['shared', '100.64.0.0', '100.127.255.255', '100.63.255.255', '100.128.0.0'],
    ['loopback', '127.0.0.0', '127.255.255.255', '126.255.255.255', '128.0.0.0'],
    ['cloud_metadata', '168.63.129.16', '168.63.129.16', '168.63.129.15', '168.63.129.17'],
    ['link_local', '169.254.0.0', '169.254.255.255', '169.253.255.255', '169.255.0.0'],
    ['private', '172.16.0.0', '172.31.255.255', '172.15.255.255', '172.32.0.0'],
    ['protocol', '192.0.0.0', '192.0.0.255', '191.255.255.255', '192.0.1.0'],
    ['documentation', '192.0.2.0', '192.0.2.255', '192.0.1.255', '192.0.3.0'],
    ['relay', '192.88.99.0', '192.88.99.255', '192.88.98.255', '192.88.100.0'],
    ['private', '192.168.0.0', '192.168.255.255', '192.167.255.255', '192.169.0.0'],
    ['benchmark', '198.18.0.0', '198.19.255.255', '198.17.255.255', '198.20.0.0'],
    ['documentation', '198.51.100.0', '198.51.100.255', '198.51.99.255', '198.51.101.0'],
    ['documentation', '203.0.113.0', '203.0.113.255', '203.0.112.255', '203.0.114.0'],
    ['multicast', '224.0.0.0', '239.255.255.255', '223.255.255.255'],
    ['reserved', '240.0.0.0', '255.255.255.254'],
    ['broadcast', '255.255.255.255', '255.255.255.255'],
    ['unspecified', '::', '::'],
    ['loopback', '::1', '::1'],
    ['reserved', '::2', '::fffe:ffff:ffff'],
    ['reserved', '::1:0:0:0', '64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['reserved', '64:ff9b:0:0:0:1::', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '2000::'],
    ['protocol', '2001:1::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff', '2001:200::'],
    ['benchmark', '2001:2::', '2001:2:0:ffff:ffff:ffff:ffff:ffff'],
    ['documentation', '2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', '2001:db7::', '2001:db9::'],
    ['documentation', '3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff', '3ffe:ffff::', '3fff:1000::'],
    ['reserved', '4000::', 'fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['unique_local', 'fc00::', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['reserved', 'fe00::', 'fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['link_local', 'fe80::', 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['site_local', 'fec0::', 'feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['multicast', 'ff00::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['unique_local', 'fd00:ec2::254', 'fd20:ce::254'], // metadata services of AWS and Google Cloud
    ['link_local', '::ffff:169.254.169.254', '64:ff9b::169.254.169.254'],
    ['private', '2002:a00:1::', '2002:c0a8:101:ffff:ffff:ffff:ffff:ffff'],
    ['unspecified', '64:ff9b::', '::ffff:0.0.0.0'],
    ['broadcast', '::ffff:255.255.255.255', '2002:ffff:ffff::'],
    ['loopback', '2001::80ff:fffe', '2001:0:808:808:0:0:80ff:fffe'],
  ];
  for (const [expected, first, last, ...neighbours] of rows) {
    t.equal(classifyAddress(first), expected, first);
    t.equal(classifyAddress(last), expected, last);
    for (const neighbour of neighbours) t.equal(classifyAddress(neighbour), 'global', neighbour);
  }
  t.end();
});

test('a Teredo address never passes, whatever client and server it names', (t) => {
  for (const client of ['f7f7:f7f7', '80ff:fffe', '0:0', 'ffff:ffff'])
    for (const server of ['808:808', 'a00:1', '7f00:1', '0:0'])
      t.equal(decideAddress(`2001:0:${server}:0:0:${client}`, []), 'refuse', `${server} ${client}`);
  t.equal(classifyAddress('2001:0:808:808:0:0:f7f7:f7f7'), 'protocol');
  t.end();
});

test('text that is no address, or has a zone, a port, a bracket or another spelling, is refused', (t) => {
  const texts = ['', 'localhost', 'example.com', '127.1', '0x7f.0.0.1', '8.8.8.08', '2130706433', '1.2.3', '8.8.8.8 ']
    .concat([' 8.8.8.8', '8.8.8.8\n', '8.8.8.8:80', '[2606:4700::1]', '2606:4700::1%eth0', 'fe80::1%lo', '1.2.3.4.5'])
    .concat(['８.8.8.8', '8.8.8.8\u0000', '2606:4700:::1', '1:2:3:4:5:6:7:8:9', '::ffff:8.8.8', '2606:4700::1/64', ':'])
    .concat(['::ffff:8.8.8.08', '12345::', '2606:4700::1::', '-1.2.3.4', '1.2.3.256']);
  for (const text of texts) {
    t.equal(parseAddress(text), null, JSON.stringify(text));
    t.equal(classifyAddress(text), 'reserved', JSON.stringify(text));
    t.equal(decideAddress(text, ranges('0.0.0.0/0', '::/0')), 'refuse', JSON.stringify(text));
    t.equal(isAddressInside(text, ranges('0.0.0.0/0', '::/0')), false, JSON.stringify(text));
  }
  t.end();
});

test('an address becomes 4 or 16 bytes', (t) => {
  t.strictSame([...(parseAddress('192.0.2.255') as Uint8Array)], [192, 0, 2, 255]);
  t.strictSame([...(parseAddress('::') as Uint8Array)], Array(16).fill(0));
  t.strictSame([...(parseAddress('1:203::a:0b0c') as Uint8Array)], [0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 11, 12]);
  t.strictSame([...(parseAddress('::ffff:1.2.3.4') as Uint8Array).slice(10)], [255, 255, 1, 2, 3, 4]);
  t.strictSame([...(parseAddress('fe80::') as Uint8Array)].slice(0, 3), [0xfe, 0x80, 0]);
  t.end();
});

test('a range is an address, a slash and a prefix, with no bit beyond it', (t) => {
  for (const text of [
    '10.0.0.0/8',
    '0.0.0.0/0',
    '10.1.2.3/32',
    '10.128.0.0/9',
    'fd00::/8',
    '::/0',
    '::1/128',
    '::ffff:0:0/96',
  ])
    t.ok(parseCidr(text), text);
  const refused = [
    '10.0.0.0',
    '10.0.0.0/',
    '/8',
    '10.0.0.0/33',
    '10.0.0.0/08',
    '10.0.0.0/+8',
    '10.0.0.0/-1',
    '10.0.0.1/8',
  ]
    .concat(['10.64.0.0/9', '10.0.0.0/8/8', '10.0.0.0/ 8', '10.0.0/8', 'fd00::/129', 'fd00::1/64', '[fd00::]/8', ''])
    .concat(['fe80::%lo/10', 'localhost/8', '10.0.0.0/255.0.0.0', '10.0.0.0/8\n', '0x0a.0.0.0/8', '10.0.0.0/1000']);
  for (const text of refused) t.equal(parseCidr(text), null, text);
  t.strictSame(parseCidr('10.128.0.0/9'), { bytes: Uint8Array.of(10, 128, 0, 0), prefixBits: 9 });
  t.end();
});

test('the operator’s ranges open what lies in them and nothing beside', (t) => {
  const allowed = ranges('10.1.0.0/16', '192.168.7.9/32', 'fd12:3456::/33');
  for (const text of ['10.1.0.0', '10.1.255.255', '192.168.7.9', 'fd12:3456:7fff::1', '::ffff:10.1.2.3', '8.8.8.8'])
    t.equal(decideAddress(text, allowed), 'admit', text);
  for (const text of [
    '10.0.255.255',
    '10.2.0.0',
    '192.168.7.8',
    '127.0.0.1',
    'fd12:3456:8000::1',
    '::1',
    '::ffff:10.2.0.0',
  ])
    t.equal(decideAddress(text, allowed), 'refuse', text);
  t.end();
});

test('an allowed IPv4 range does not open the forms that a translator routes elsewhere', (t) => {
  const allowed = ranges('10.0.0.0/8');
  for (const text of [
    '64:ff9b::a00:1',
    '2002:a00:1::',
    '2001:0:808:808:0:0:f5ff:fffe',
    '::10.0.0.1',
    '::ffff:0:10.0.0.1',
  ])
    t.equal(decideAddress(text, allowed), 'refuse', text);
  t.equal(decideAddress('64:ff9b::a00:1', ranges('64:ff9b::/96')), 'admit', 'a range of that form does');
  t.end();
});

test('an allowed IPv6 range does not open IPv4 by its v4-mapped form', (t) => {
  for (const text of ['::ffff:127.0.0.1', '::ffff:169.254.169.254', '127.0.0.1'])
    t.equal(decideAddress(text, ranges('::/0')), 'refuse', text);
  t.equal(decideAddress('fd00::1', ranges('::/0')), 'admit');
  t.end();
});

test('a range that is refused holds every form of its addresses', (t) => {
  const own = ranges('10.1.2.3/32', 'fd00::5/128');
  for (const text of [
    '10.1.2.3',
    '::ffff:10.1.2.3',
    '64:ff9b::a01:203',
    '2002:a01:203::9',
    '2001::f5fe:fdfc',
    'fd00::5',
  ])
    t.ok(isAddressInside(text, own), text);
  for (const text of ['10.1.2.4', '::ffff:10.1.2.4', 'fd00::6', '8.8.8.8', '2606:4700::1'])
    t.notOk(isAddressInside(text, own), text);
  t.notOk(isAddressInside('10.1.2.3', []));
  t.end();
});

test('property: classifying never throws, whatever the text', (t) => {
  const nearAddress = fc.string({ unit: fc.constantFrom(...'0123456789abcdefF.::::%/[]xX １'), maxLength: 45 });
  holds(
    t,
    fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' }), nearAddress), (text) => {
      if (parseAddress(text) === null) assert.equal(classifyAddress(text), 'reserved');
      parseCidr(text);
      assert.match(decideAddress(text, []), /^(?:admit|refuse)$/);
    }),
    5000,
  );
  t.end();
});

test('property: an IPv6 address has one class in all its spellings', (t) => {
  holds(
    t,
    fc.property(hextets, fc.nat(7), fc.boolean(), (parts, from, upper) => {
      const full = parts.map((part) => hex(part).padStart(4, '0')).join(':');
      const short = parts.map(hex);
      const spellings = [full, short.join(':')];
      // `::` in the place of any run of zeros.
      let to = from;
      while (to < 8 && parts[to] === 0) to += 1;
      if (to > from) spellings.push(`${short.slice(0, from).join(':')}::${short.slice(to).join(':')}`);
      const [high, low] = [parts[6] as number, parts[7] as number];
      const dotted = [high >>> 8, high & 255, low >>> 8, low & 255].join('.');
      spellings.push(`${short.slice(0, 6).join(':')}:${dotted}`);
      const expected = parseAddress(full);
      for (const spelling of spellings.map((text) => (upper ? text.toUpperCase() : text))) {
        assert.deepEqual(parseAddress(spelling), expected, spelling);
        assert.equal(classifyAddress(spelling), classifyAddress(full), spelling);
        assert.equal(classifyAddress(bareHost(normaliseHost(`[${spelling}]`) as string)), classifyAddress(full));
      }
    }),
    2000,
  );
  t.end();
});

test('property: what carries a refused IPv4 address is refused', (t) => {
  holds(
    t,
    fc.property(ipv4Bytes, (bytes) => {
      const text = bytes.join('.');
      const [a, b, c, d] = bytes;
      const pair = [hex((a << 8) | b), hex((c << 8) | d)];
      const expected = decideAddress(text, []);
      for (const form of [`::ffff:${text}`, `64:ff9b::${text}`, `2002:${pair.join(':')}::1`])
        assert.equal(decideAddress(form, []), expected, form);
      for (const form of [`::${text}`, `::ffff:0:${text}`, `64:ff9b:1::${text}`, `2001:0:${pair.join(':')}::1`])
        assert.equal(decideAddress(form, []), 'refuse', form);
    }),
    2000,
  );
  t.end();
});

test('property: every loose spelling of a refused IPv4 address is refused once it is a host', (t) => {
  holds(
    t,
    fc.property(ipv4Bytes, fc.nat(5), (bytes, form) => {
      const [a, b, c, d] = bytes;
      const whole = ((a * 256 + b) * 256 + c) * 256 + d;
      const spellings = [
        String(whole),
        `0x${hex(whole)}`,
        `0${whole.toString(8)}`,
        `${a}.0x${hex(whole % 2 ** 24)}`,
        bytes.map((each) => `0${each.toString(8)}`).join('.'),
        `${bytes.join('。')}.`,
      ];
      assert.equal(normaliseHost(spellings[form] as string), bytes.join('.'));
    }),
    2000,
  );
  t.end();
});

test('property: being inside a range is having its leading bits', (t) => {
  const bits = (text: string): string =>
    [...(parseAddress(text) as Uint8Array)].map((each) => each.toString(2).padStart(8, '0')).join('');
  holds(
    t,
    fc.property(ipv4Bytes, ipv4Bytes, fc.nat(32), (address, base, prefixBits) => {
      const cut = base.map((each, index) => each & (0xff00 >>> Math.max(0, Math.min(8, prefixBits - 8 * index))));
      const range = parseCidr(`${cut.map((each) => each & 255).join('.')}/${prefixBits}`);
      assert.ok(range);
      const expected = bits(address.join('.')).startsWith(bits(base.join('.')).slice(0, prefixBits));
      assert.equal(isAddressInside(address.join('.'), [range]), expected);
    }),
    2000,
  );
  t.end();
});
