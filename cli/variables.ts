// Writes environment variables in the formats that shells, containers and programs read.
import { asObject, type Json } from './client.ts';
import { UsageError } from './command.ts';

export type Environment = Readonly<Record<string, string>>;

/** The variables of a session's `startup_context`. */
export function variablesOf(session: Json): Environment {
  const variables = asObject(asObject(session['startup_context'])['environment_variables']);
  return Object.fromEntries(
    Object.entries(variables).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}

// In single quotes a POSIX shell takes everything but the single quote itself as it stands (XCU 2.2.2).
function shellQuote(value: string): string {
  return /^[\w@%+=:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
}

const FORMATS: Readonly<Record<string, (name: string, value: string) => string>> = {
  sh: (name, value) => `export ${name}=${shellQuote(value)}\n`,
  dotenv: (name, value) => `${name}=${/^[\w@%+=:,./-]*$/.test(value) ? value : JSON.stringify(value)}\n`,
  // docker run --env-file takes the rest of the line as it is; a line end has no spelling there.
  docker: (name, value) => `${name}=${value}\n`,
};

export const FORMAT_NAMES = 'sh|dotenv|docker|json';

/** The variables in a format. Throws a UsageError for an unknown one. */
export function formatVariables(variables: Environment, format: string): string {
  if (format === 'json') return JSON.stringify(variables, null, 2) + '\n';
  const write = Object.entries(FORMATS).find(([name]) => name === format)?.[1];
  if (write === undefined)
    throw new UsageError(
      `--format must be one of ${FORMAT_NAMES.replaceAll('|', ', ')}, not ${JSON.stringify(format)}`,
    );
  return Object.entries(variables)
    .map(([name, value]) => write(name, value))
    .join('');
}
