// From zod's findings to one error of ours: a stable code, the path of the field, and words that never quote what was sent.
import type { z } from 'zod';
import { KeyveilError, type ErrorCode } from '../model/errors.ts';

/** Adds a finding with a code of ours; `phrase` follows the field's path, as in `must be a host name`. */
export function addFinding(
  context: z.core.$RefinementCtx,
  phrase: string,
  options: { readonly code?: ErrorCode; readonly path?: readonly PropertyKey[] } = {},
): void {
  context.addIssue({
    code: 'custom',
    message: phrase,
    params: { code: options.code ?? 'invalid_field' },
    path: [...(options.path ?? [])],
  });
}

interface Part {
  /** What zod was given, to tell an absent field from one of the wrong type; never printed. */
  readonly data: unknown;
  /** `body` or `querystring`. */
  readonly name: string;
}

const NAME_CHARACTERS_MAX = 64;

/** A field's name as a person may see it: what the sender chose is shortened, and control characters are replaced. */
function printable(name: PropertyKey): string {
  return String(name)
    .slice(0, NAME_CHARACTERS_MAX)
    .replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '?');
}

function pathText(path: readonly PropertyKey[]): string {
  return path.map(printable).join('.');
}

function valueAt(data: unknown, path: readonly PropertyKey[]): unknown {
  let value = data;
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

const EXPECTED: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  record: 'an object',
  array: 'a list',
};

function phraseOfSize(issue: z.core.$ZodIssueTooBig | z.core.$ZodIssueTooSmall): string {
  const [word, bound] = issue.code === 'too_big' ? ['at most', issue.maximum] : ['at least', issue.minimum];
  switch (issue.origin) {
    case 'string':
      return `must have ${word} ${bound} characters`;
    case 'array':
    case 'set':
      return `must have ${word} ${bound} entries`;
    default:
      return `must be ${word} ${bound}`;
  }
}

function phraseOf(issue: z.core.$ZodIssue, isNull: boolean): string {
  switch (issue.code) {
    case 'invalid_type': {
      const expected = EXPECTED[issue.expected] ?? 'of another type';
      return isNull ? `must be ${expected}, not null; where it is optional, omit it instead` : `must be ${expected}`;
    }
    case 'invalid_value':
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    case 'too_big':
    case 'too_small':
      return phraseOfSize(issue);
    case 'custom':
      return issue.message;
    case 'invalid_union':
      return 'must be one of the documented forms';
    default:
      return 'is not valid';
  }
}

function codeOf(issue: z.core.$ZodIssue): ErrorCode {
  const code: unknown = issue.code === 'custom' ? issue.params?.['code'] : undefined;
  return (code as ErrorCode | undefined) ?? 'invalid_field';
}

function unknownFields(issues: readonly z.core.$ZodIssue[], part: Part): KeyveilError | null {
  const names = issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys' ? issue.keys.map((key) => pathText([...issue.path, key])) : [],
  );
  if (names.length === 0) return null;
  const what = part.name === 'body' ? 'field' : 'query parameter';
  const shown = names.slice(0, 10).join(', ');
  return new KeyveilError('unknown_field', `Unknown ${what}${names.length > 1 ? 's' : ''}: ${shown}.`, {
    param: names[0] ?? '',
  });
}

// What decides how an object is read comes before complaints about its other fields.
function isDiscriminator(issue: z.core.$ZodIssue): boolean {
  return issue.path.at(-1) === 'type' || (issue.code === 'custom' && issue.params?.['code'] !== 'invalid_field');
}

function fromIssue(issue: z.core.$ZodIssue, part: Part): KeyveilError {
  if (issue.path.length === 0 && issue.code !== 'custom') {
    return new KeyveilError('invalid_request', 'The request needs a body that is one JSON object.');
  }
  const param = pathText(issue.path);
  const value = valueAt(part.data, issue.path);
  if (value === undefined && issue.code !== 'custom') {
    return new KeyveilError('missing_field', `${param} is required.`, { param });
  }
  const subject = param === '' ? 'The body' : param;
  const message = `${subject} ${phraseOf(issue, value === null)}.`;
  return new KeyveilError(codeOf(issue), message, param === '' ? {} : { param });
}

/** The one error that a list of findings is answered with. */
function toValidationError(issues: readonly z.core.$ZodIssue[], part: Part): KeyveilError {
  const first = issues.find(isDiscriminator);
  if (first !== undefined) return fromIssue(first, part);
  const unknown = unknownFields(issues, part);
  if (unknown !== null) return unknown;
  const [issue] = issues;
  if (issue === undefined) return new KeyveilError('invalid_request', 'The request is not valid.');
  return fromIssue(issue, part);
}

type Validated = { readonly value: unknown } | { readonly error: Error };

/** Fastify's validator compiler; an absent body reaches it as null and is taken for undefined. */
export function validatorCompiler(route: { schema: z.ZodType; httpPart?: string }): (data: unknown) => Validated {
  const name = route.httpPart ?? 'body';
  return (data) => {
    const result = route.schema.safeParse(data === null ? undefined : data);
    return result.success ? { value: result.data } : { error: toValidationError(result.error.issues, { data, name }) };
  };
}
