// Refusals of the admin API name fields of its JSON; a person who typed flags is told the flag.
import { ApiError } from './client.ts';
import type { Command, Invocation } from './command.ts';

/** Fields of request bodies and the flags that fill them, the longest path first. */
const FLAG_OF_FIELD: readonly (readonly [field: string, flag: string])[] = [
  ['auth.networking.allowed_hosts', 'host'],
  ['auth.networking', 'host'],
  ['auth.injection_location.header', 'header'],
  ['auth.injection_location.body', 'body'],
  ['auth.injection_location', 'header'],
  ['auth.placeholder_prefix', 'placeholder-prefix'],
  ['config.networking.allowed_hosts', 'host'],
  ['config.networking.allow_package_managers', 'package-managers'],
  ['config.networking', 'host'],
  ['config.allowed_private_cidrs', 'private-cidr'],
  ['display_name', 'display-name'],
  ['environment_id', 'environment'],
  ['ca_directory', 'ca-directory'],
  ['vault_ids', 'vault'],
  ['expires_in', 'expires-in'],
  ['description', 'description'],
  ['metadata', 'metadata'],
  ['session_id', 'session'],
  ['credential_id', 'credential'],
  ['created_at_gte', 'since'],
  ['created_at_lt', 'until'],
  ['title', 'title'],
  ['scope', 'scope'],
  ['reason', 'reason'],
  ['outcome', 'outcome'],
];
/** Fields that an argument or the standard input fills. */
const WORDS_OF_FIELD: Readonly<Record<string, string>> = {
  'auth.secret_name': 'NAME',
  'auth.secret_value': 'the value',
  display_name: 'NAME',
  name: 'NAME',
};

function wordsFor(param: string, command: Command, invocation: Invocation): string | null {
  const found = FLAG_OF_FIELD.find(([field]) => param === field || param.startsWith(`${field}.`));
  const flag = found === undefined ? undefined : command.flags[found[1]];
  if (found === undefined || flag === undefined) return WORDS_OF_FIELD[param] ?? null;
  const [field, name] = found;
  const index = Number(param.slice(field.length + 1));
  const typed = flag.multiple === true && param !== field ? invocation.flags(name)[index] : undefined;
  return typed === undefined ? `--${name}` : `--${name} ${JSON.stringify(typed)}`;
}

/** The same refusal, with the flag (and which of several values) in place of the field's path. */
export function inWordsOfFlags(error: ApiError, command: Command, invocation: Invocation): ApiError {
  const { param, message } = error;
  const words = param === null || !message.includes(param) ? null : wordsFor(param, command, invocation);
  if (param === null || words === null) return error;
  return new ApiError(error.status, error.code, { message: message.replaceAll(param, () => words), param });
}
