// Wire shapes that several resources share: text, times, metadata, lists, and the answers of every route.
import { z } from 'zod';
import { ERROR_CODES, errorTypeOf, statusOf, type ErrorCode } from '../../model/errors.ts';
import {
  METADATA_KEY_CHARACTERS_MAX,
  METADATA_PAIRS_MAX,
  METADATA_VALUE_CHARACTERS_MAX,
  PAGE_LIMIT_DEFAULT,
  PAGE_LIMIT_MAX,
} from '../../model/limits.ts';
import { addFinding } from '../validation.ts';

/** Whether the text holds half of a surrogate pair, which has no UTF-8 form and would be stored as another character. */
export function hasLoneSurrogate(text: string): boolean {
  return /\p{Cs}/u.test(text);
}

function findTextFault(value: string, min: number, max: number): string | null {
  if (hasLoneSurrogate(value)) return 'must be valid Unicode text';
  const characters = value.length <= min ? value.length : Array.from(value).length;
  if (characters < min) return min === 1 ? 'must not be empty' : `must have at least ${min} characters`;
  return characters > max ? `must have at most ${max} characters` : null;
}

/** Text of `min` to `max` Unicode characters. */
export function textField(min: number, max: number) {
  return z
    .string()
    .superRefine((value, context) => {
      const fault = findTextFault(value, min, max);
      if (fault !== null) addFinding(context, fault);
    })
    .meta({ minLength: min, maxLength: max });
}

/** RFC 3339, UTC, with `Z`. */
export const Timestamp = z.string().meta({ format: 'date-time', examples: ['2026-01-31T12:00:00.000Z'] });

/** From milliseconds since the epoch to the wire. */
export function toTimestamp(timeMs: number): string {
  return new Date(timeMs).toISOString();
}

export function toOptionalTimestamp(timeMs: number | null): string | null {
  return timeMs === null ? null : toTimestamp(timeMs);
}

function checkMetadataPairs(metadata: Readonly<Record<string, unknown>>, context: z.core.$RefinementCtx): void {
  for (const [key, value] of Object.entries(metadata)) {
    const keyFault = findTextFault(key, 1, METADATA_KEY_CHARACTERS_MAX);
    if (keyFault !== null) addFinding(context, `must have keys of 1 to ${METADATA_KEY_CHARACTERS_MAX} characters`);
    const fault = typeof value === 'string' ? findTextFault(value, 0, METADATA_VALUE_CHARACTERS_MAX) : null;
    if (fault !== null) addFinding(context, fault, { path: [key] });
  }
}

/** Up to 16 pairs of short strings. */
export const MetadataInput = z
  .record(z.string(), z.string())
  .superRefine((metadata, context) => {
    if (Object.keys(metadata).length > METADATA_PAIRS_MAX) {
      addFinding(context, `must have at most ${METADATA_PAIRS_MAX} pairs`);
    }
    checkMetadataPairs(metadata, context);
  })
  .meta({ maxProperties: METADATA_PAIRS_MAX, description: 'Keys of 1 to 64 characters, values of at most 512.' });

/** A string sets a key, null deletes it. */
export const MetadataPatchInput = z
  .record(z.string(), z.string().nullable())
  .superRefine(checkMetadataPairs)
  .meta({ description: 'A string sets a key, null deletes it, other keys stay.' });

export const Metadata = z.record(z.string(), z.string());

/** Drops keys whose value is undefined, which `exactOptionalPropertyTypes` tells from absent ones. */
export function definedOnly<T extends object>(input: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(input).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}

const BooleanQuery = z
  .string()
  .transform((text, context) => {
    if (text !== 'true' && text !== 'false') addFinding(context, 'must be true or false');
    return text === 'true';
  })
  .meta({ type: 'boolean' });

const Limit = z
  .string()
  .optional()
  .transform((text, context) => {
    const limit = text === undefined ? PAGE_LIMIT_DEFAULT : /^[0-9]{1,4}$/.test(text) ? Number(text) : 0;
    if (limit >= 1 && limit <= PAGE_LIMIT_MAX) return limit;
    addFinding(context, `must be a whole number from 1 to ${PAGE_LIMIT_MAX}`);
    return z.NEVER;
  })
  .meta({ type: 'integer', minimum: 1, maximum: PAGE_LIMIT_MAX, default: PAGE_LIMIT_DEFAULT });

const Page = z.string().meta({ description: '`next_page` of the answer before.' });

/** Query parameters of lists; `beta` is what the Claude API's SDKs add to every request. */
export const pageQueryFields = {
  limit: Limit,
  page: Page.optional(),
  beta: z.string().optional().meta({ description: 'Ignored.' }),
};

export const ListQuery = z.strictObject({ ...pageQueryFields, include_archived: BooleanQuery.optional() });

export const PageOnlyQuery = z.strictObject(pageQueryFields);

/** For calls without a body: nothing, or an empty object. */
export const EmptyBody = z.strictObject({}).optional();

export function pageOf<Item extends z.ZodType>(item: Item, id: string) {
  return z
    .object({ data: z.array(item), next_page: z.string().nullable().meta({ description: 'Null on the last page.' }) })
    .meta({ id });
}

const ErrorResponse = z
  .object({
    type: z.literal('error'),
    error: z.object({
      type: z.string(),
      message: z.string().meta({ description: 'For people; never holds a secret value.' }),
      code: z.enum([...ERROR_CODES] as [ErrorCode, ...ErrorCode[]]).meta({ description: 'A stable word.' }),
      param: z.string().optional().meta({ description: 'Path of the offending field, such as auth.networking.' }),
    }),
    request_id: z.string(),
  })
  .meta({ id: 'Error' });

/** What every route that asks for a token can answer. */
const COMMON_CODES: readonly ErrorCode[] = [
  'unauthenticated',
  'insufficient_scope',
  'admin_host_refused',
  'too_many_failed_logins',
  'internal_error',
  'store_unavailable',
  'shutting_down',
];

/** What every route can answer. */
const PUBLIC_CODES: readonly ErrorCode[] = ['internal_error', 'shutting_down'];

/** What every route with a JSON body can answer. */
export const BODY_CODES: readonly ErrorCode[] = [
  'invalid_request',
  'invalid_json',
  'invalid_field',
  'unknown_field',
  'missing_field',
  'request_too_large',
  'unsupported_media_type',
];

/** What every list can answer. */
export const LIST_CODES: readonly ErrorCode[] = ['invalid_field', 'unknown_field', 'invalid_page'];

interface JsonAnswer {
  readonly description: string;
  readonly content: Readonly<Record<string, { readonly schema: z.ZodType }>>;
}

/** The `response` part of a route's schema: the good answer, and one envelope for each status of these codes. */
export function answers(
  good: z.ZodType,
  codes: readonly ErrorCode[],
  options: { readonly contentType?: string; readonly description?: string; readonly isPublic?: boolean } = {},
): Record<number, JsonAnswer> {
  const all = new Set([...(options.isPublic === true ? PUBLIC_CODES : COMMON_CODES), ...codes]);
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of all) byStatus.set(statusOf(code), [...(byStatus.get(statusOf(code)) ?? []), code]);
  const contentType = options.contentType ?? 'application/json';
  return {
    200: { description: options.description ?? 'Done.', content: { [contentType]: { schema: good } } },
    ...Object.fromEntries(
      [...byStatus].map(([status, words]) => [
        status,
        {
          description: `${errorTypeOf(status)}: ${words.join(', ')}`,
          content: { 'application/json': { schema: ErrorResponse } },
        },
      ]),
    ),
  };
}
