// The veil's memory: what a value's forms cost, and which values of one host must do with their raw form alone.
import { VEIL_ALL_FORMS_VALUE_BYTES_MAX, VEIL_COMPILED_BYTES_MAX, VEIL_VALUE_BYTES_MIN } from './limits.ts';

/** A credential and the size of its value, bytes. */
interface SizedValue {
  readonly id: string;
  readonly byteLength: number;
}

/** Rough cost in memory of finding a literal, and of finding a value's escaped forms for each of its bytes. */
const LITERAL_COST_BYTES = 400;
const ESCAPED_COST_BYTES = 24;
/** Three alignments in two alphabets; lower and upper case. */
const BASE64_FORMS = 6;
const HEX_FORMS = 2;

/** Whether a value of this many bytes is long enough that its occurrence in a response is no accident. */
export function isVeilableLength(byteLength: number): boolean {
  return byteLength >= VEIL_VALUE_BYTES_MIN;
}

function literalsCost(count: number, byteLength: number): number {
  return count * (byteLength + LITERAL_COST_BYTES);
}

function allFormsCost(byteLength: number): number {
  const base64 = literalsCost(BASE64_FORMS, Math.ceil((byteLength * 4) / 3));
  const hexAndEscaped =
    byteLength > VEIL_ALL_FORMS_VALUE_BYTES_MAX
      ? 0
      : literalsCost(HEX_FORMS, byteLength * 2) + byteLength * ESCAPED_COST_BYTES;
  return literalsCost(1, byteLength) + base64 + hexAndEscaped;
}

/**
 * Ids of the values that are looked for in their raw form alone, when all of these cover one host: short ones come
 * first, then older ones, so that as many as fit are looked for in every form. It knows sizes only, and so can be told
 * before any value is opened.
 */
export function findRawOnly(values: readonly SizedValue[]): ReadonlySet<string> {
  const rawOnly = new Set<string>();
  const inOrder = values
    .filter(({ byteLength }) => isVeilableLength(byteLength))
    .sort((one, other) => one.byteLength - other.byteLength || (one.id < other.id ? -1 : 1));
  let total = 0;
  for (const { id, byteLength } of inOrder) {
    const cost = allFormsCost(byteLength);
    const isWhole = total + cost <= VEIL_COMPILED_BYTES_MAX;
    if (!isWhole) rawOnly.add(id);
    total += isWhole ? cost : literalsCost(1, byteLength);
  }
  return rawOnly;
}
