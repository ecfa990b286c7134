// Turns the text of one configuration value into a domain type, or says in half a sentence what is wrong with it.
import { bareHost, tryParseAuthority, type Authority } from '../model/authority.ts';
import { createHostSet, explainPatternFault, parseHostPattern, type HostSet } from '../model/host-pattern.ts';
import { classifyAddress, parseCidr, type Cidr } from '../model/ip-class.ts';
import type { EnvironmentNetworking } from '../model/networking.ts';
import { Secret } from '../model/secret.ts';

/** The end of the sentence "KEYVEIL_… must …"; never quotes a secret. */
export class ValueFault extends Error {
  override readonly name = 'ValueFault';
}

/** Where a server listens. The host has no brackets; port 0 lets the system choose. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** A proxy through which upstream connections are chained. */
export interface ChainedProxy {
  readonly scheme: 'http' | 'https';
  readonly authority: Authority;
  /** Value of `Proxy-Authorization`, such as `Basic …`; null without userinfo. */
  readonly authorization: Secret | null;
}

/** Patterns as they were written (normalised), and the set that they make. */
export interface HostList {
  readonly patterns: readonly string[];
  readonly hosts: HostSet;
}

const PORT_MAX = 65_535;
const MASTER_KEY_BYTES = 32;
const SIZE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** Comma-separated entries, trimmed; empty text is an empty list. */
function splitList(text: string): string[] {
  if (text.trim() === '') return [];
  const entries = text.split(',').map((entry) => entry.trim());
  if (entries.includes('')) throw new ValueFault('must not hold an empty entry between its commas');
  return entries;
}

function quote(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

/** `on` or `off`. */
export function parseSwitch(text: string): boolean {
  if (text === 'on') return true;
  if (text === 'off') return false;
  throw new ValueFault(`must be on or off, not ${quote(text)}`);
}

/** A parser of whole numbers within bounds, both included. */
export function integerWithin(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max))
      throw new ValueFault(`must be a whole number from ${min} to ${max}, not ${quote(text)}`);
    return value;
  };
}

/** A parser of sizes in bytes, with an optional unit (`KiB`, `MiB`, `GiB`, `TiB`), from a smallest one on. */
export function bytesAtLeast(minBytes: number): (text: string) => number {
  return (text) => {
    const match = /^([0-9]{1,15}) ?([a-z]{0,3})$/i.exec(text);
    const unit = SIZE_UNITS[(match?.[2] ?? '?').toLowerCase()];
    const bytes = unit === undefined ? Number.NaN : Number(match?.[1]) * unit;
    if (!Number.isSafeInteger(bytes))
      throw new ValueFault(`must be a number of bytes or a size such as 64MiB, not ${quote(text)}`);
    if (bytes < minBytes) throw new ValueFault(`must be at least ${minBytes} bytes, not ${quote(text)}`);
    return bytes;
  };
}

/** `host:port` or `[::1]:port`; port 0 is allowed. */
export function parseListen(text: string): ListenAddress {
  const match = /^(.+):([0-9]{1,5})$/.exec(text);
  // Parsed with a stand-in, since an authority has no port 0.
  const authority = match?.[1] === undefined ? null : tryParseAuthority(`${match[1]}:1`);
  const port = Number(match?.[2]);
  if (authority === null || port > PORT_MAX) throw new ValueFault(`must be host:port, not ${quote(text)}`);
  return { host: bareHost(authority.host), port };
}

/** Whether an address to listen on is reached from this machine alone. */
export function isLoopback(address: ListenAddress): boolean {
  return (
    address.host === 'localhost' || address.host.endsWith('.localhost') || classifyAddress(address.host) === 'loopback'
  );
}

/** Comma-separated host patterns, as in an allow-list. */
export function parseHostList(text: string): HostList {
  const patterns = splitList(text).map((entry) => {
    const result = parseHostPattern(entry);
    if (!result.ok) throw new ValueFault(`has the entry ${quote(entry)}, which ${explainPatternFault(result.fault)}`);
    return result.pattern;
  });
  return { patterns, hosts: createHostSet(patterns) };
}

/** `unrestricted`, `none`, or the hosts that are admitted. */
export function parseNetworking(text: string): EnvironmentNetworking {
  if (text === 'unrestricted') return { type: 'unrestricted' };
  const allowedHosts = text === 'none' ? [] : parseHostList(text).patterns;
  if (text !== 'none' && allowedHosts.length === 0)
    throw new ValueFault('must be unrestricted, none, or a list of hosts');
  return { type: 'limited', allowedHosts, allowPackageManagers: false };
}

/** Comma-separated ranges such as `10.0.0.0/8`. */
export function parseCidrList(text: string): readonly Cidr[] {
  return splitList(text).map((entry) => {
    const cidr = parseCidr(entry);
    if (cidr === null)
      throw new ValueFault(
        `has the entry ${quote(entry)}, which is not a range address/bits without bits beyond its prefix`,
      );
    return cidr;
  });
}

/** Comma-separated ports, or `*` for all. */
export function parsePorts(text: string): ReadonlySet<number> | 'every' {
  if (text === '*') return 'every';
  const ports = splitList(text).map(integerWithin(1, PORT_MAX));
  if (ports.length === 0) throw new ValueFault('must name at least one port, or be * for all');
  return new Set(ports);
}

/** Comma-separated `host:port=host:port`; keys are authorities in normal form. */
export function parseOverrides(text: string): ReadonlyMap<string, Authority> {
  const overrides = new Map<string, Authority>();
  for (const entry of splitList(text)) {
    const [from, to, ...rest] = entry.split('=').map((part) => tryParseAuthority(part));
    if (!from || !to || rest.length > 0)
      throw new ValueFault(`has the entry ${quote(entry)}, which is not host:port=host:port`);
    const key = `${from.host}:${from.port}`;
    if (overrides.has(key)) throw new ValueFault(`names ${quote(key)} twice`);
    overrides.set(key, to);
  }
  return overrides;
}

/** Comma-separated names of variables. */
export function parseNames(text: string): readonly string[] {
  return splitList(text).map((entry) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(entry))
      throw new ValueFault(`has the entry ${quote(entry)}, which is no variable's name`);
    return entry;
  });
}

function tryParseUrl(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null;
}

function isBareUrl(url: URL | null): url is URL {
  return url !== null && /^https?:$/.test(url.protocol) && url.pathname === '/' && url.search === '' && url.hash === '';
}

/** `http://host:port` or `https://host:port` without userinfo or path; answered without a trailing slash. */
export function parseBaseUrl(text: string): string {
  const url = tryParseUrl(text);
  if (!isBareUrl(url) || url.username !== '' || url.password !== '') {
    throw new ValueFault(
      'must be a URL of the form http://host:port or https://host:port, without user, path or query',
    );
  }
  return `${url.protocol}//${url.host}`;
}

/** `http://user:password@host:port`; the userinfo is percent-decoded. Quotes nothing, since it may hold a password. */
export function parseChainedProxy(text: string): ChainedProxy {
  const url = tryParseUrl(text);
  const authority = url === null ? null : tryParseAuthority(url.host, url.protocol === 'https:' ? 443 : 80);
  if (!isBareUrl(url) || authority === null)
    throw new ValueFault('must be a URL of the form http://host:port or https://user:password@host:port');
  return { scheme: url.protocol === 'https:' ? 'https' : 'http', authority, authorization: readUserinfo(url) };
}

function readUserinfo(url: URL): Secret | null {
  if (url.username === '' && url.password === '') return null;
  try {
    const login = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
    return Secret.fromText(`Basic ${Buffer.from(login, 'utf8').toString('base64')}`);
  } catch {
    // The platform's message would quote the password.
    throw new ValueFault('must have its user and password percent-encoded correctly');
  }
}

/** Base64 of 32 bytes. */
export function parseMasterKey(text: string): Secret {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== MASTER_KEY_BYTES || bytes.toString('base64').replace(/=+$/, '') !== text.replace(/=+$/, '')) {
    throw new ValueFault('must be 32 random bytes in base64');
  }
  return Secret.fromBytes(bytes);
}

/** Comma-separated keys, each base64 of 32 bytes. */
export function parseMasterKeys(text: string): readonly Secret[] {
  return splitList(text).map(parseMasterKey);
}

/** A token of printable ASCII without spaces, of at least so many characters. */
export function tokenAtLeast(minCharacters: number): (text: string) => Secret {
  return (text) => {
    if (text.length < minCharacters)
      throw new ValueFault(`must have at least ${minCharacters} characters, and has ${text.length}`);
    if (!/^[\x21-\x7e]+$/.test(text)) throw new ValueFault('must be printable ASCII without spaces');
    return Secret.fromText(text);
  };
}

/** A parser that admits the given words alone. */
export function oneOf<const Word extends string>(words: readonly Word[]): (text: string) => Word {
  return (text) => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new ValueFault(`must be one of ${words.join(', ')}, not ${quote(text)}`);
    return word;
  };
}

/** A path; nothing is looked up yet. */
export function parsePath(text: string): string {
  if (text === '' || text.includes('\0')) throw new ValueFault('must be a path');
  return text;
}

/** `off`, or a whole number of at least 1. */
export function parseOptionalCount(text: string): number | null {
  return text === 'off' ? null : integerWithin(1, 1_000_000)(text);
}
