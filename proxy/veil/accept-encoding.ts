// Narrows Accept-Encoding to what can be decoded here, so that every response can be veiled (RFC 9110 section 12.5.3).
import { type RawHeaders, headerValue, headerValues, withHeader } from '../exchange.ts';
import { DECODABLE_CODINGS } from '../swap/content-coding.ts';

const DECODABLE: ReadonlySet<string> = new Set(DECODABLE_CODINGS);
/** What `*` is turned into: `x-gzip` is but another name (RFC 9110 section 8.4.1.3). */
const WILDCARD_CODINGS = DECODABLE_CODINGS.filter((coding) => coding !== 'x-gzip');

/** Values that stay as they are: clients send few different ones, with every request. */
const unchanged = new Set<string>();
const UNCHANGED_MAX = 64;
const UNCHANGED_CHARACTERS_MAX = 128;

interface Preference {
  readonly coding: string;
  /** The item as it was written. */
  readonly text: string;
  /** The part behind the coding, such as `;q=0.5`. */
  readonly weight: string;
  readonly isRefusal: boolean;
}

/**
 * Keeps the codings that can be decoded here, with their weights; `*` becomes the decodable ones that are not named.
 * When nothing but refusals is left, `identity` is asked for. A part of a coded body can't be decoded, so a request with `Range`
 * asks for `identity` too. Without the field (servers then send identity), and when nothing changes, the list is the same.
 */
export function narrowAcceptEncoding(headers: RawHeaders): RawHeaders {
  const values = headerValues(headers, 'accept-encoding');
  const [value] = values;
  if (value === undefined) return headers;
  const isRange = headerValue(headers, 'range') !== undefined;
  const isAlone = values.length === 1 && !isRange;
  if (isAlone && unchanged.has(value)) return headers;
  const preferences = values.flatMap(parsePreferences);
  const named = new Set(preferences.map(({ coding }) => coding));
  const narrowed = isRange ? ['identity'] : preferences.flatMap((preference) => narrow(preference, named));
  const isSame =
    narrowed.length === preferences.length && preferences.every(({ text }, index) => text === narrowed[index]);
  if (isSame) {
    if (isAlone && unchanged.size < UNCHANGED_MAX && value.length <= UNCHANGED_CHARACTERS_MAX) unchanged.add(value);
    return headers;
  }
  const isAnyWanted = isRange || preferences.some((preference) => isWanted(preference));
  return withHeader(headers, 'Accept-Encoding', isAnyWanted ? narrowed.join(', ') : 'identity');
}

function parsePreferences(value: string): Preference[] {
  return value
    .split(',')
    .map((item) => item.trim())
    .filter((text) => text !== '')
    .map((text) => {
      const semicolon = text.indexOf(';');
      const coding = (semicolon < 0 ? text : text.slice(0, semicolon)).trim().toLowerCase();
      const weight = semicolon < 0 ? '' : text.slice(semicolon);
      return { coding, text, weight, isRefusal: /;\s*q\s*=\s*0(\.0*)?\s*$/i.test(weight) };
    });
}

/** Whether something is left of a preference that asks for a coding rather than refusing one. */
function isWanted({ coding, isRefusal }: Preference): boolean {
  return !isRefusal && (coding === '*' || coding === 'identity' || DECODABLE.has(coding));
}

/** The items that a preference becomes. A refusal of any coding is no danger and stays. */
function narrow(preference: Preference, named: ReadonlySet<string>): string[] {
  const { coding, text, weight, isRefusal } = preference;
  if (isRefusal || coding === 'identity' || DECODABLE.has(coding)) return [text];
  if (coding !== '*') return [];
  return WILDCARD_CODINGS.filter((candidate) => !named.has(candidate)).map((candidate) => candidate + weight);
}
