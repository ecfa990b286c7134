// Classes of IP addresses: which of them a sandbox may be connected to, and why not.
import { isIPv4, isIPv6 } from 'node:net';

/** Name of a class of addresses; `global` is the only one that is dialled by default. */
export type IpClass =
  | 'global'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'link_local'
  | 'cloud_metadata'
  | 'shared'
  | 'protocol'
  | 'documentation'
  | 'benchmark'
  | 'relay'
  | 'multicast'
  | 'reserved'
  | 'broadcast'
  | 'unique_local'
  | 'site_local';

/** A range of addresses; IPv4 has 4 bytes, IPv6 16. */
export interface Cidr {
  readonly bytes: Uint8Array;
  readonly prefixBits: number;
}

function parseIpv4(text: string): Uint8Array {
  return Uint8Array.from(text.split('.'), Number);
}

function parseIpv6(text: string): Uint8Array {
  // Let the platform expand the dotted tail, then expand the zeros.
  const hextets = new URL(`http://[${text}]/`).hostname.slice(1, -1);
  const [head = '', tail] = hextets.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: 8 - left.length - right.length }, () => '0');
  const bytes = new Uint8Array(16);
  for (const [index, hextet] of [...left, ...zeros, ...right].entries()) {
    const value = Number.parseInt(hextet, 16);
    bytes[index * 2] = value >>> 8;
    bytes[index * 2 + 1] = value & 255;
  }
  return bytes;
}

/** Bytes of an address (4 or 16), or null when the text is none or has a zone. */
export function parseAddress(text: string): Uint8Array | null {
  if (isIPv4(text)) return parseIpv4(text);
  if (isIPv6(text) && !text.includes('%')) return parseIpv6(text);
  return null;
}

/** Parses `address/bits`; null when it is not that, or when bits beyond the prefix are set. */
export function parseCidr(text: string): Cidr | null {
  const match = /^([0-9a-fA-F.:]+)\/(0|[1-9][0-9]{0,2})$/.exec(text);
  const bytes = match?.[1] === undefined ? null : parseAddress(match[1]);
  const prefixBits = Number(match?.[2]);
  if (bytes === null || prefixBits > bytes.length * 8) return null;
  for (let bit = prefixBits; bit < bytes.length * 8; bit += 1) {
    if ((byteAt(bytes, bit >>> 3) >>> (7 - (bit & 7))) & 1) return null;
  }
  return { bytes, prefixBits };
}

function byteAt(bytes: Uint8Array, index: number): number {
  return bytes[index] as number;
}

function isInside(bytes: Uint8Array, cidr: Cidr): boolean {
  if (bytes.length !== cidr.bytes.length) return false;
  const whole = cidr.prefixBits >>> 3;
  for (let index = 0; index < whole; index += 1) if (bytes[index] !== cidr.bytes[index]) return false;
  const rest = cidr.prefixBits & 7;
  return rest === 0 || (byteAt(bytes, whole) ^ byteAt(cidr.bytes, whole)) >>> (8 - rest) === 0;
}

type Row = readonly [cidr: Cidr, ipClass: IpClass];

function row(text: string, ipClass: IpClass): Row {
  return [parseCidr(text) as Cidr, ipClass];
}

// IANA's special-purpose registries (RFC 6890 and its successors); the first row that holds the address decides.
const IPV4_ROWS: readonly Row[] = [
  row('0.0.0.0/32', 'unspecified'),
  row('0.0.0.0/8', 'reserved'), // RFC 791, "this network"
  row('10.0.0.0/8', 'private'), // RFC 1918
  row('100.64.0.0/10', 'shared'), // RFC 6598, carrier-grade NAT
  row('127.0.0.0/8', 'loopback'), // RFC 1122
  row('168.63.129.16/32', 'cloud_metadata'), // Azure's host agent, on a public address
  row('169.254.0.0/16', 'link_local'), // RFC 3927; cloud metadata services live here
  row('172.16.0.0/12', 'private'), // RFC 1918
  row('192.0.0.0/24', 'protocol'), // RFC 6890
  row('192.0.2.0/24', 'documentation'), // RFC 5737
  row('192.88.99.0/24', 'relay'), // RFC 7526, 6to4 relays
  row('192.168.0.0/16', 'private'), // RFC 1918
  row('198.18.0.0/15', 'benchmark'), // RFC 2544
  row('198.51.100.0/24', 'documentation'), // RFC 5737
  row('203.0.113.0/24', 'documentation'), // RFC 5737
  row('224.0.0.0/4', 'multicast'), // RFC 5771
  row('255.255.255.255/32', 'broadcast'), // RFC 919
  row('240.0.0.0/4', 'reserved'), // RFC 1112
];

const IPV6_ROWS: readonly Row[] = [
  row('::/128', 'unspecified'), // RFC 4291
  row('::1/128', 'loopback'), // RFC 4291
  row('fe80::/10', 'link_local'), // RFC 4291
  row('fec0::/10', 'site_local'), // RFC 3879
  row('fc00::/7', 'unique_local'), // RFC 4193
  row('ff00::/8', 'multicast'), // RFC 4291
  row('2001:db8::/32', 'documentation'), // RFC 3849
  row('3fff::/20', 'documentation'), // RFC 9637
  row('2001:2::/48', 'benchmark'), // RFC 5180
  row('2001::/23', 'protocol'), // RFC 2928; Teredo is looked at before
];

// Forms that carry an IPv4 address: the offset of its bytes, and whether they are inverted (Teredo, RFC 4380).
const V4_MAPPED = parseCidr('::ffff:0:0/96') as Cidr;
const TEREDO = parseCidr('2001::/32') as Cidr;
const EMBEDDED: readonly (readonly [cidr: Cidr, offset: number, inverted: boolean])[] = [
  [V4_MAPPED, 12, false], // RFC 4291
  [parseCidr('64:ff9b::/96') as Cidr, 12, false], // RFC 6052, NAT64
  [parseCidr('2002::/16') as Cidr, 2, false], // RFC 3056, 6to4
  [TEREDO, 12, true], // RFC 4380, Teredo's client
];

const GLOBAL_UNICAST = parseCidr('2000::/3') as Cidr;

function embeddedIpv4(bytes: Uint8Array): Uint8Array | null {
  for (const [cidr, offset, inverted] of EMBEDDED) {
    if (isInside(bytes, cidr)) return bytes.slice(offset, offset + 4).map((byte) => (inverted ? byte ^ 255 : byte));
  }
  return null;
}

function classify(bytes: Uint8Array): IpClass {
  const inner = bytes.length === 16 ? embeddedIpv4(bytes) : null;
  if (inner !== null) {
    const innerClass = classify(inner);
    // A Teredo relay also sends to the server that the address names (RFC 4380 section 5.4.1): no such address passes.
    return innerClass === 'global' && isInside(bytes, TEREDO) ? 'protocol' : innerClass;
  }
  for (const [cidr, ipClass] of bytes.length === 4 ? IPV4_ROWS : IPV6_ROWS) if (isInside(bytes, cidr)) return ipClass;
  // IPv6 outside of the one block that is handed out is reserved, v4-compatible and v4-translated forms included.
  return bytes.length === 4 || isInside(bytes, GLOBAL_UNICAST) ? 'global' : 'reserved';
}

/** Class of an address; text that is no address is `reserved`, so that it is refused. */
export function classifyAddress(text: string): IpClass {
  const bytes = parseAddress(text);
  return bytes === null ? 'reserved' : classify(bytes);
}

/**
 * Whether an address lies in one of the ranges, in any form that embeds an IPv4 address as well. It is meant for
 * ranges that are refused; `decideAddress` reads ranges that are allowed, and is narrower.
 */
export function isAddressInside(text: string, ranges: readonly Cidr[]): boolean {
  const bytes = parseAddress(text);
  if (bytes === null) return false;
  const inner = bytes.length === 16 ? embeddedIpv4(bytes) : null;
  return ranges.some((range) => isInside(bytes, range) || (inner !== null && isInside(inner, range)));
}

/**
 * Whether an address may be dialled: a global one, or one inside ranges that the operator allowed. A v4-mapped address
 * is the IPv4 address for the socket, and counts as that alone. The other forms with an IPv4 address inside are routed
 * by whoever translates them, to networks that the operator did not speak of (RFC 6052 section 3.1 and RFC 3056
 * section 2 rule out private addresses in them): an IPv4 range does not admit them.
 */
export function decideAddress(text: string, allowedRanges: readonly Cidr[]): 'admit' | 'refuse' {
  const bytes = parseAddress(text);
  if (bytes === null) return 'refuse';
  if (classify(bytes) === 'global') return 'admit';
  const dialled = isInside(bytes, V4_MAPPED) ? bytes.slice(12) : bytes;
  return allowedRanges.some((range) => isInside(dialled, range)) ? 'admit' : 'refuse';
}
