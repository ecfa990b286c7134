// One pass over text or bytes that finds every placeholder of a set, at a cost that does not depend on how many there are.
import {
  PLACEHOLDER_MARKER,
  PLACEHOLDER_PREFIX_CHARACTERS_MAX,
  PLACEHOLDER_RANDOM_CHARACTERS,
} from '../../model/placeholder.ts';

/** What is searched: text whose characters are bytes (Latin-1), or bytes. */
export type Haystack = string | Buffer;

/** A placeholder that was found: `bytes[start, end)` is the one at `index` of the list that the scanner was made of. */
interface PlaceholderMatch {
  readonly start: number;
  readonly end: number;
  readonly index: number;
}

export interface PlaceholderScanner {
  /** The first placeholder that lies wholly at or after `from`; null when there is none. */
  find(haystack: Haystack, from: number): PlaceholderMatch | null;
  /**
   * The first place at or after `from` where a placeholder may begin that is cut off by the end: what is before it can
   * leave at once. The place depends on bytes that the sandbox sent, never on a secret, so it tells it nothing.
   */
  heldFrom(bytes: Buffer, from: number): number;
}

const MARKER_LENGTH = PLACEHOLDER_MARKER.length;
const TAIL_LENGTH = MARKER_LENGTH + PLACEHOLDER_RANDOM_CHARACTERS;
const MARKER_BYTES = Buffer.from(PLACEHOLDER_MARKER, 'latin1');
const RANDOM_ONLY = /^[0-9A-Za-z]*$/;

interface Candidate {
  readonly prefix: string;
  readonly index: number;
}

function sliceOf(haystack: Haystack, start: number, end: number): string {
  return typeof haystack === 'string' ? haystack.slice(start, end) : haystack.toString('latin1', start, end);
}

function markerIn(haystack: Haystack, from: number): number {
  return typeof haystack === 'string'
    ? haystack.indexOf(PLACEHOLDER_MARKER, from)
    : haystack.indexOf(MARKER_BYTES, from);
}

/** Whether text can hold a placeholder at all; the cheapest question that can be asked of it. */
export function holdsMarker(haystack: Haystack): boolean {
  return markerIn(haystack, 0) >= 0;
}

function candidatesByRandom(placeholders: readonly string[]): Map<string, Candidate[]> {
  const byRandom = new Map<string, Candidate[]>();
  for (const [index, placeholder] of placeholders.entries()) {
    const random = placeholder.slice(-PLACEHOLDER_RANDOM_CHARACTERS);
    const candidates = byRandom.get(random) ?? [];
    candidates.push({ prefix: placeholder.slice(0, -TAIL_LENGTH), index });
    // The longest prefix starts leftmost.
    candidates.sort((one, other) => other.prefix.length - one.prefix.length);
    byRandom.set(random, candidates);
  }
  return byRandom;
}

/** Every beginning of a prefix and its marker, the whole of both left out. */
function headsOf(prefixes: ReadonlySet<string>): Set<string> {
  const heads = new Set<string>();
  for (const prefix of prefixes) {
    const head = prefix + PLACEHOLDER_MARKER;
    for (let length = 1; length < head.length; length += 1) heads.add(head.slice(0, length));
  }
  return heads;
}

/**
 * Makes a scanner of placeholders, each as `PLACEHOLDER_PATTERN` says. A prefix has at most 32 characters and the random
 * part holds no `_`, so going from marker to marker meets overlapping candidates in the order of their starts.
 */
export function createScanner(placeholders: readonly string[]): PlaceholderScanner {
  const byRandom = candidatesByRandom(placeholders);
  const prefixes = new Set(placeholders.map((placeholder) => placeholder.slice(0, -TAIL_LENGTH)));
  const prefixLengths = [...new Set([...prefixes].map((prefix) => prefix.length))].sort((one, other) => other - one);
  const heads = headsOf(prefixes);
  const headLengthMax = Math.min(
    (prefixLengths[0] ?? 0) + MARKER_LENGTH - 1,
    PLACEHOLDER_PREFIX_CHARACTERS_MAX + MARKER_LENGTH - 1,
  );
  const headEnds = new Uint8Array(256);
  for (const head of heads) headEnds[head.charCodeAt(head.length - 1)] = 1;

  function find(haystack: Haystack, from: number): PlaceholderMatch | null {
    for (let marker = markerIn(haystack, from); marker >= 0; marker = markerIn(haystack, marker + MARKER_LENGTH)) {
      const end = marker + TAIL_LENGTH;
      if (end > haystack.length) return null;
      const candidates = byRandom.get(sliceOf(haystack, marker + MARKER_LENGTH, end));
      if (candidates === undefined) continue;
      for (const { prefix, index } of candidates) {
        const start = marker - prefix.length;
        if (start >= from && sliceOf(haystack, start, marker) === prefix) return { start, end, index };
      }
    }
    return null;
  }

  /** The case that the end lies in the random part. */
  function heldByMarker(bytes: Buffer, from: number): number {
    const windowStart = Math.max(from, bytes.length - TAIL_LENGTH + 1);
    const marker = windowStart + bytes.subarray(windowStart).lastIndexOf(MARKER_BYTES);
    if (marker < windowStart || !RANDOM_ONLY.test(bytes.toString('latin1', marker + MARKER_LENGTH)))
      return bytes.length;
    const length = prefixLengths.find(
      (each) => marker - each >= from && prefixes.has(bytes.toString('latin1', marker - each, marker)),
    );
    return length === undefined ? bytes.length : marker - length;
  }

  /** The case that the end lies in the prefix or in the marker. */
  function heldByHead(bytes: Buffer, from: number): number {
    if (bytes.length === 0 || headEnds[bytes[bytes.length - 1] as number] === 0) return bytes.length;
    for (let start = Math.max(from, bytes.length - headLengthMax); start < bytes.length; start += 1) {
      if (heads.has(bytes.toString('latin1', start))) return start;
    }
    return bytes.length;
  }

  return { find, heldFrom: (bytes, from) => Math.min(heldByMarker(bytes, from), heldByHead(bytes, from)) };
}
