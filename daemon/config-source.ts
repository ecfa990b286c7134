// Finds the text of each setting (flag over environment over default) and parses it; the errors name where it came from.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { StartError } from '../model/errors.ts';
import { SETTINGS, type SettingName, type SettingValues } from './config-schema.ts';
import { flagOf, type Setting } from './config-setting.ts';

/** Variables as a process has them. */
export type Variables = Readonly<Record<string, string | undefined>>;

export interface ConfigSources {
  readonly env: Variables;
  /** Flags without their dashes, such as `proxy-listen`. */
  readonly flags: Readonly<Record<string, string>>;
  /** What relative paths start from. */
  readonly cwd: string;
}

interface Found {
  readonly text: string;
  /** The variable or flag, as the person wrote it. */
  readonly origin: string;
}

// What Kubernetes puts into every pod beside a service that is named keyveil; none of it is ours. A bare `…_PORT` is
// only told from a mistyped setting by its value.
const SERVICE_LINK =
  /^KEYVEIL(?:_[A-Z0-9]+)*_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;
const PORT_NAME = /^KEYVEIL(?:_[A-Z0-9]+)*_PORT$/;
const SERVICE_URL = /^(?:tcp|udp|sctp):\/\//;

function isServiceLink(name: string, value: string | undefined): boolean {
  return SERVICE_LINK.test(name) || (PORT_NAME.test(name) && SERVICE_URL.test(value ?? ''));
}

function adviceFor(name: string, known: readonly string[]): string {
  if (PORT_NAME.test(name)) return 'ports are set by KEYVEIL_PROXY_LISTEN and KEYVEIL_ADMIN_LISTEN';
  const nearest = nearestName(name, known);
  return nearest === null ? 'docs/configuration.md lists them all' : `did you mean ${nearest}?`;
}

function fileVariableOf(setting: Setting<unknown>): string {
  return `${setting.variable}_FILE`;
}

/** Every variable that is understood. */
export function knownVariables(): string[] {
  return Object.values(SETTINGS).flatMap((setting) =>
    setting.isSecret ? [setting.variable, fileVariableOf(setting)] : [setting.variable],
  );
}

/** Every flag that is understood, without its dashes. A secret has none but the one that names its file. */
export function knownFlags(): string[] {
  return Object.values(SETTINGS).map((setting) =>
    flagOf(setting.isSecret ? fileVariableOf(setting) : setting.variable).slice(2),
  );
}

function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const replaced = (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    previous = current;
  }
  return previous[right.length] ?? 0;
}

/** The known name that is most like a name, or null when none is within that many edits. */
export function nearestName(
  name: string,
  known: readonly string[],
  editsMax = Math.max(3, Math.floor(name.length / 4)),
): string | null {
  let best: string | null = null;
  let bestDistance = editsMax + 1;
  for (const candidate of known) {
    const distance = editDistance(name, candidate);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Throws a StartError when the environment has a `KEYVEIL_*` variable that nothing reads, such as a misspelt one. */
export function refuseUnknownVariables(env: Variables): void {
  const known = knownVariables();
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith('KEYVEIL_') || known.includes(name) || isServiceLink(name, value)) continue;
    const shown = JSON.stringify(name).slice(1, -1);
    throw new StartError(`${shown} is not a variable of Keyveil: ${adviceFor(name, known)}`);
  }
}

/** The flag that a setting was given by, else its variable. */
export function originOf(name: SettingName, sources: ConfigSources): string {
  const { variable } = SETTINGS[name];
  const flag = flagOf(variable);
  return sources.flags[flag.slice(2)] === undefined ? variable : flag;
}

/** Reads a text file that a setting names; the StartError names both. */
export function readNamedFile(path: string, origin: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unreadable';
    throw new StartError(
      `${origin} names the file ${path}, which can't be read (${code}): check that it exists and that this user may read it`,
    );
  }
}

function findText(setting: Setting<unknown>, sources: ConfigSources): Found | null {
  const name = setting.isSecret ? fileVariableOf(setting) : setting.variable;
  const flag = flagOf(name);
  const flagText = sources.flags[flag.slice(2)];
  if (flagText !== undefined) return { text: flagText, origin: flag };
  const text = sources.env[name];
  return text === undefined ? null : { text, origin: name };
}

function findSecret(setting: Setting<unknown>, sources: ConfigSources): Found | null {
  const file = findText(setting, sources);
  if (file !== null) {
    const path = resolve(sources.cwd, file.text);
    return { text: readNamedFile(path, file.origin).trim(), origin: `The content of ${path} (${file.origin})` };
  }
  const text = sources.env[setting.variable];
  return text === undefined ? null : { text, origin: setting.variable };
}

/** Where a secret was named: its file with the flag or variable, or the variable that holds it; null when nowhere. */
export function secretOriginOf(name: SettingName, sources: ConfigSources): string | null {
  const setting = SETTINGS[name] as unknown as Setting<unknown>;
  const file = findText(setting, sources);
  if (file !== null) return `${resolve(sources.cwd, file.text)} (${file.origin})`;
  return sources.env[setting.variable] === undefined ? null : setting.variable;
}

/** The value of one setting. Throws a StartError of one line with the origin, the problem and an example. */
export function resolveSetting<Name extends SettingName>(name: Name, sources: ConfigSources): SettingValues[Name] {
  const setting = SETTINGS[name] as unknown as Setting<SettingValues[Name]>;
  const found = setting.isSecret ? findSecret(setting, sources) : findText(setting, sources);
  const text = found?.text ?? setting.fallback;
  // Only the settings whose type admits null have no fallback.
  if (text === null) return null as SettingValues[Name];
  const result = setting.schema.safeParse(text);
  if (result.success) return result.data;
  const origin = found?.origin ?? setting.variable;
  const example = origin.startsWith('--')
    ? `${flagOf(setting.variable)}=${setting.example}`
    : `${setting.variable}=${setting.example}`;
  throw new StartError(`${origin} ${result.error.issues[0]?.message ?? 'is not valid'} (for example ${example})`);
}
