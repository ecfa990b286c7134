// The byte forms in which a credential's value is looked for in responses, and what each of them becomes.
import { VEIL_ALL_FORMS_VALUE_BYTES_MAX } from '../../model/limits.ts';
import { BASE64_EDGE_BYTES, base64Forms, type Base64Form } from './base64-form.ts';
import { escapedLengthMax } from './escapes.ts';

/** Bytes that stand as they are in the response. */
export interface LiteralForm {
  readonly bytes: Buffer;
  /** Set for base64, whose neighbouring characters belong to it too. */
  readonly base64: Base64Form | null;
}

/** All forms of one value. */
export interface ValueForms {
  readonly value: Buffer;
  readonly placeholder: Buffer;
  readonly literals: readonly LiteralForm[];
  /** Percent-encoding, JSON escapes and HTML references, mixed freely with plain characters, are looked for too. */
  readonly isEscapedToo: boolean;
  /** Most bytes that one occurrence can take, with the neighbours that decide how far it reaches. */
  readonly longest: number;
}

export type FormSelection = 'all' | 'raw';

/**
 * Makes the forms of a value of at least 8 bytes. Values over 1 KiB have their raw and base64 forms only.
 * The value is copied: it outlives the `Secret` it came from only as long as the compiled forms do.
 */
export function createForms(revealed: Buffer, placeholder: string, selection: FormSelection): ValueForms {
  const value = Buffer.from(revealed);
  const isShort = value.length <= VEIL_ALL_FORMS_VALUE_BYTES_MAX;
  const isEscapedToo = selection === 'all' && isShort;
  const literals: LiteralForm[] = [{ bytes: value, base64: null }];
  if (selection === 'all') {
    for (const form of base64Forms(value)) literals.push({ bytes: form.core, base64: form });
    if (isShort) for (const bytes of hexForms(value)) literals.push({ bytes, base64: null });
  }
  return {
    value,
    placeholder: Buffer.from(placeholder, 'latin1'),
    literals,
    isEscapedToo,
    longest: Math.max(isEscapedToo ? escapedLengthMax(value) : 0, ...literals.map(literalLengthMax)),
  };
}

function literalLengthMax({ bytes, base64 }: LiteralForm): number {
  return bytes.length + (base64 === null ? 0 : BASE64_EDGE_BYTES);
}

function hexForms(value: Buffer): Buffer[] {
  const lower = value.toString('hex');
  const upper = lower.toUpperCase();
  return (lower === upper ? [lower] : [lower, upper]).map((text) => Buffer.from(text, 'latin1'));
}
