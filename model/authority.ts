// Host names and authorities: parsed once, at the edge, into one normal form (RFC 3986 section 3.2.2, RFC 9110 section 7.2).
import { isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';
import { KeyveilError } from './errors.ts';

/** A destination in normal form. */
export interface Authority {
  /** Lower case, no trailing dot, IDN in ASCII, IPv4 as dotted decimal, IPv6 compressed and in brackets. */
  readonly host: string;
  /** 1 to 65535. */
  readonly port: number;
}

const PLAIN_NAME = /^[a-z0-9._-]+$/;
const NAME_CHARACTERS_MAX = 253;
const LABEL_CHARACTERS_MAX = 63;
// What no host may hold, in any spelling: delimiters of a URI, white space, control characters, percent-encoding.
const FORBIDDEN = /[\u0000-\u0020\u007f#%/:<>?@[\\\]^`{|}"*,;=&!$'()+~]/;

function parseIpv4Part(part: string): number | null {
  if (/^0[xX][0-9a-fA-F]*$/.test(part)) return part.length === 2 ? 0 : Number.parseInt(part.slice(2), 16);
  if (/^0[0-7]*$/.test(part)) return Number.parseInt(part, 8);
  if (/^[1-9][0-9]*$/.test(part)) return Number(part);
  return null;
}

/**
 * Reads an IPv4 address in every spelling of `inet_aton` (one to four parts; decimal, octal or hexadecimal).
 * Returns dotted decimal, `null` when the text is a name, `'invalid'` when it ends in a number and is no address
 * (such a name could be taken for an address by a resolver).
 */
export function parseIpv4Loose(text: string): string | null {
  const parts = text.split('.');
  const last = parts.at(-1) as string;
  if (!/^(?:[0-9]+|0[xX][0-9a-fA-F]*)$/.test(last)) return null;
  if (parts.length > 4) return 'invalid';
  const numbers = parts.map(parseIpv4Part);
  let value = 0;
  for (const [index, number] of numbers.entries()) {
    if (number === null || !Number.isSafeInteger(number)) return 'invalid';
    const isLast = index === numbers.length - 1;
    if (number > (isLast ? 256 ** (5 - numbers.length) - 1 : 255)) return 'invalid';
    value += isLast ? number : number * 256 ** (3 - index);
  }
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.');
}

function normaliseIpv6(inner: string): string | null {
  // isIPv6 also admits a zone (`%eth0`), which names an interface of this machine and never a destination.
  if (!isIPv6(inner) || inner.includes('%')) return null;
  return new URL(`http://[${inner}]/`).hostname;
}

function isNameOfValidLabels(name: string): boolean {
  if (name.length === 0 || name.length > NAME_CHARACTERS_MAX) return false;
  return name.split('.').every((label) => label.length > 0 && label.length <= LABEL_CHARACTERS_MAX);
}

/**
 * Normalises a host as it stands in an authority: a name, an IPv4 address in any spelling, or an IPv6 address in
 * brackets. Returns null when it is none of these.
 */
export function normaliseHost(text: string): string | null {
  if (text.startsWith('[')) return text.endsWith(']') ? normaliseIpv6(text.slice(1, -1)) : null;
  if (text.length === 0 || text.length > 4 * NAME_CHARACTERS_MAX || FORBIDDEN.test(text)) return null;
  let name = text.toLowerCase();
  if (!PLAIN_NAME.test(name) || name.includes('xn--')) {
    name = domainToASCII(name);
    if (!PLAIN_NAME.test(name)) return null;
  }
  if (name.endsWith('.')) name = name.slice(0, -1);
  if (!isNameOfValidLabels(name)) return null;
  const address = parseIpv4Loose(name);
  if (address === 'invalid') return null;
  return address ?? name;
}

function parsePort(text: string): number | null {
  if (!/^[0-9]{1,5}$/.test(text)) return null;
  const port = Number(text);
  return port >= 1 && port <= 65_535 ? port : null;
}

function splitHostPort(text: string): { host: string; port: string | null } {
  const bracket = text.startsWith('[') ? text.indexOf(']') : -1;
  const colon = text.indexOf(':', bracket + 1);
  return colon < 0 ? { host: text, port: null } : { host: text.slice(0, colon), port: text.slice(colon + 1) };
}

/**
 * Parses `host:port`, as in a CONNECT request (RFC 9110 section 9.3.6: the port is required), or, with a default
 * port, a `Host` value. Throws `bad_request`; the message quotes no more than that the authority is malformed, since
 * the text comes from the sandbox.
 */
export function parseAuthority(text: string, defaultPort?: number): Authority {
  const authority = tryParseAuthority(text, defaultPort);
  if (authority === null) {
    throw new KeyveilError(
      'bad_request',
      'The authority must be host:port, with a host name or IP address and a port from 1 to 65535.',
    );
  }
  return authority;
}

/** The same as parseAuthority, with null in place of an error. */
export function tryParseAuthority(text: string, defaultPort?: number): Authority | null {
  const split = splitHostPort(text);
  const host = normaliseHost(split.host);
  const port = split.port === null ? (defaultPort ?? null) : parsePort(split.port);
  return host === null || port === null ? null : { host, port };
}

/** `host:port`. */
export function formatAuthority(authority: Authority): string {
  return `${authority.host}:${authority.port}`;
}

/** The host as a socket or a resolver wants it: an IPv6 address without its brackets. */
export function bareHost(host: string): string {
  return host.startsWith('[') ? host.slice(1, -1) : host;
}

/** Whether a normalised host is an IP address literal. */
export function isAddressLiteral(host: string): boolean {
  return host.startsWith('[') || /^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$/.test(host);
}
