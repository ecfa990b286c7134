// Swaps placeholders in header and trailer fields, inside Basic logins too; finds those in request targets.
import type { MissRecord, SwapLocation, SwapRecord } from '../../model/audit.ts';
import { KeyveilError } from '../../model/errors.ts';
import { HEADER_BLOCK_BYTES_MAX } from '../../model/limits.ts';
import { PLACEHOLDER_MARKER } from '../../model/placeholder.ts';
import type { RawHeaders } from '../exchange.ts';
import { headerFormOf } from './escaping.ts';
import type { PlanEntry, SwapPlan } from './plan.ts';
import { SwapTally } from './tally.ts';

/** A Basic token that holds a secret, with the one that the client sent in its place; both base64. */
export interface BasicToken {
  readonly credentialId: string;
  /** What went upstream. A secret. */
  readonly sent: string;
  readonly original: string;
}

export interface HeaderSwap {
  /** The very list that was given, when nothing was swapped. */
  readonly headers: RawHeaders;
  readonly swaps: readonly SwapRecord[];
  readonly misses: readonly MissRecord[];
  readonly basicTokens: readonly BasicToken[];
  /** Lower-case names of the fields whose values hold a secret now. */
  readonly sensitiveNames: ReadonlySet<string>;
}

/** Fields that say where a message goes and where it ends; pseudo-headers (RFC 9113 section 8.3) belong to them. */
const FRAMING_NAMES: ReadonlySet<string> = new Set([
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'te',
  'trailer',
  'expect',
]);

const AUTHORIZATION = 'authorization';
const BASIC = /^(basic +)([A-Za-z0-9+/]+={0,2})$/i;
const LETTER_B = 0x62;
const LOWER_CASE_BIT = 0x20;
const FIELD_OVERHEAD_BYTES = ': \r\n'.length;
const NO_NAMES: ReadonlySet<string> = new Set();
const NO_MISSES: readonly MissRecord[] = [];

interface Place {
  readonly location: SwapLocation;
  /** Undefined in trailers. */
  readonly headerName: string | undefined;
}

interface SwappedText {
  readonly text: string;
  readonly swapped: ReadonlySet<PlanEntry>;
}

class HeaderSwapping {
  readonly #plan: SwapPlan;
  readonly #location: 'header' | 'trailer';
  readonly #tally = new SwapTally();
  readonly #basicTokens: BasicToken[] = [];
  readonly #sensitiveNames = new Set<string>();
  readonly #headers: string[];

  constructor(headers: RawHeaders, plan: SwapPlan, location: 'header' | 'trailer') {
    this.#headers = headers.slice();
    this.#plan = plan;
    this.#location = location;
  }

  /** Swaps in the value at an index of the flat list. */
  swapAt(index: number): void {
    const name = this.#headers[index - 1] as string;
    const lowerName = name.toLowerCase();
    if (FRAMING_NAMES.has(lowerName) || lowerName.startsWith(':')) return;
    const value = this.#headers[index] as string;
    const headerName = this.#location === 'header' ? name : undefined;
    const basic = lowerName === AUTHORIZATION ? BASIC.exec(value) : null;
    const replaced =
      basic === null
        ? this.#swapText(value, { location: this.#location, headerName })
        : this.#swapBasic(basic[1] as string, basic[2] as string, headerName);
    if (replaced === null) return;
    this.#headers[index] = replaced.text;
    this.#sensitiveNames.add(lowerName);
  }

  /** Text in which what is to be swapped is; null when nothing was. */
  #swapText(text: string, place: Place): SwappedText | null {
    const { scanner, entries } = this.#plan;
    const swapped = new Set<PlanEntry>();
    let result = '';
    let copied = 0;
    for (let match = scanner.find(text, 0); match !== null; match = scanner.find(text, match.end)) {
      const entry = entries[match.index] as PlanEntry;
      if (entry.header !== 'swap') {
        this.#tally.missed(entry, place.location, entry.header);
        continue;
      }
      result += text.slice(copied, match.start) + headerFormOf(entry);
      copied = match.end;
      swapped.add(entry);
      this.#tally.swapped(entry, place.location, place.headerName);
      // The block is refused below in any case: don't build what may be a thousand times its size.
      if (result.length > HEADER_BLOCK_BYTES_MAX) throw tooLarge();
    }
    return swapped.size === 0 ? null : { text: result + text.slice(copied), swapped };
  }

  /** RFC 7617. A token that isn't padded standard base64 can't be told from text, and holds no marker when it is. */
  #swapBasic(scheme: string, token: string, headerName: string | undefined): SwappedText | null {
    if (token.length % 4 !== 0) return null;
    const login = Buffer.from(token, 'base64').toString('latin1');
    const replaced = this.#swapText(login, { location: headerName === undefined ? 'trailer' : 'basic', headerName });
    if (replaced === null) return null;
    const sent = Buffer.from(replaced.text, 'latin1').toString('base64');
    for (const { credentialId } of replaced.swapped) this.#basicTokens.push({ credentialId, sent, original: token });
    return { text: scheme + sent, swapped: replaced.swapped };
  }

  result(original: RawHeaders): HeaderSwap {
    const isChanged = this.#sensitiveNames.size > 0;
    if (isChanged && blockBytes(this.#headers) > HEADER_BLOCK_BYTES_MAX) throw tooLarge();
    return {
      headers: isChanged ? this.#headers : original,
      swaps: this.#tally.swaps(),
      misses: this.#tally.misses(),
      basicTokens: this.#basicTokens,
      sensitiveNames: this.#sensitiveNames,
    };
  }
}

function tooLarge(): KeyveilError {
  return new KeyveilError(
    'header_too_large',
    `The header fields would be larger than ${HEADER_BLOCK_BYTES_MAX} bytes with the secret values in them. Send fewer placeholders, or a shorter value.`,
  );
}

/** Bytes of the fields on an HTTP/1.1 connection. */
function blockBytes(headers: RawHeaders): number {
  let bytes = 0;
  for (const text of headers) bytes += text.length;
  return bytes + (headers.length / 2) * FIELD_OVERHEAD_BYTES;
}

function mayBeBasic(name: string, value: string): boolean {
  return name.length === AUTHORIZATION.length && (value.charCodeAt(0) | LOWER_CASE_BIT) === LETTER_B;
}

/**
 * Swaps placeholders in field values. Names and the fields that frame a message stay. Throws `credential_unreadable`,
 * `swap_value_refused`, or `header_too_large` when the block grows beyond its limit.
 */
export function swapHeaders(headers: RawHeaders, plan: SwapPlan, location: 'header' | 'trailer'): HeaderSwap {
  let swapping: HeaderSwapping | null = null;
  for (let index = 1; index < headers.length; index += 2) {
    const value = headers[index] as string;
    if (!value.includes(PLACEHOLDER_MARKER) && !mayBeBasic(headers[index - 1] as string, value)) continue;
    swapping ??= new HeaderSwapping(headers, plan, location);
    swapping.swapAt(index);
  }
  return swapping?.result(headers) ?? { headers, swaps: [], misses: [], basicTokens: [], sensitiveNames: NO_NAMES };
}

/**
 * Misses in the path and in the query of a target in origin form. Placeholders consist of unreserved characters (RFC
 * 3986 section 2.3), so a plain search finds them in every target that was written by the usual rules.
 */
export function findUrlMisses(target: string, plan: SwapPlan): readonly MissRecord[] {
  if (!target.includes(PLACEHOLDER_MARKER)) return NO_MISSES;
  const tally = new SwapTally();
  const query = target.indexOf('?');
  for (let match = plan.scanner.find(target, 0); match !== null; match = plan.scanner.find(target, match.end)) {
    const entry = plan.entries[match.index] as PlanEntry;
    const location = query >= 0 && match.start > query ? 'query' : 'path';
    tally.missed(entry, location, entry.header === 'credential_archived' ? 'credential_archived' : 'in_url');
  }
  return tally.misses();
}
