// Reads a command line: finds the command, checks its flags, and says in one line what is wrong.
import { parseArgs } from 'node:util';
import { escapeControls } from '../model/printable.ts';
import { nearestName } from '../daemon/config-source.ts';
import { UsageError, type Command, type CommandFlag } from './command.ts';

export interface ParsedLine {
  readonly positionals: readonly string[];
  readonly rest: readonly string[] | null;
  readonly texts: ReadonlyMap<string, readonly string[]>;
  readonly switches: ReadonlySet<string>;
  readonly wantsHelp: boolean;
}

const HELP: CommandFlag = { type: 'boolean', help: 'show this help' };

function quote(text: string): string {
  return escapeControls(JSON.stringify(text));
}

/** The command whose name the words begin with (the longest one), and the words behind it; null when there is none. */
export function findCommand(
  words: readonly string[],
  commands: readonly Command[],
): { command: Command; tail: string[] } | null {
  for (const length of [2, 1]) {
    const name = words.slice(0, length).join(' ');
    const command = words.length >= length ? commands.find((candidate) => candidate.name === name) : undefined;
    if (command !== undefined) return { command, tail: words.slice(length) };
  }
  return null;
}

// A short word is two edits away from almost everything.
const SHORT_WORD_CHARACTERS = 4;

/** What a mistyped first word was most likely meant to be; `env` stands for `environment`. */
function nearestFirstWord(typed: string, commands: readonly Command[]): string | null {
  const words = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? ''))];
  const longer = typed.length < 3 ? [] : words.filter((word) => word.startsWith(typed));
  return longer.length === 1
    ? String(longer[0])
    : nearestName(typed, words, typed.length <= SHORT_WORD_CHARACTERS ? 1 : 2);
}

function nearestCommand(words: readonly string[], commands: readonly Command[]): string | null {
  const [first = '', second] = words;
  const group = commands.filter((command) => command.name.startsWith(`${first} `)).map(({ name }) => name);
  if (group.length > 0) return nearestName(`${first} ${second ?? ''}`, group);
  const word = nearestFirstWord(first, commands);
  if (word === null || second === undefined) return word;
  const names = commands.map(({ name }) => name).filter((name) => name.startsWith(`${word} `));
  return nearestName(`${word} ${second}`, names) ?? word;
}

/** Throws the UsageError for words that begin with no command. */
export function refuseCommand(words: readonly string[], commands: readonly Command[]): never {
  const [first = '', second] = words;
  const isGroup = commands.some((command) => command.name.startsWith(`${first} `));
  const typed = isGroup && second !== undefined ? `${first} ${second}` : first;
  const nearest = nearestCommand(words, commands);
  const advice = nearest === null ? 'keyveil --help lists the commands' : `did you mean ${quote(nearest)}?`;
  throw new UsageError(`unknown command ${quote(typed)}: ${advice}`);
}

function refuseFlag(command: Command, rawName: string, positionals: readonly string[]): never {
  // In `run sh -c true` the first mistake is the word `sh`, and what is said of it shows where -- belongs.
  if (command.takesRest === true) checkCount(command, positionals);
  const nearest = nearestName(
    rawName,
    Object.keys(command.flags).map((name) => `--${name}`),
  );
  const advice = nearest === null ? `keyveil ${command.name} --help lists the flags` : `did you mean ${nearest}?`;
  throw new UsageError(`unknown flag ${escapeControls(rawName)} of ${command.name}: ${advice}`);
}

function checkCount(command: Command, positionals: readonly string[]): void {
  const { min, max } = command.positionals;
  const synopsis = `keyveil ${command.name} ${command.usage}`.trim();
  if (positionals.length < min) throw new UsageError(`${command.name} needs more arguments: ${synopsis}`);
  const extra = positionals[max];
  if (extra !== undefined) throw new UsageError(`unexpected argument ${quote(extra)}: ${synopsis}`);
}

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number];
type OptionToken = Extract<Token, { kind: 'option' }>;

interface Collected {
  readonly positionals: string[];
  readonly texts: Map<string, string[]>;
  readonly switches: Set<string>;
}

function findFlag(
  command: Command,
  token: OptionToken,
  { positionals }: Collected,
): { name: string; flag: CommandFlag } {
  if (token.rawName === '-h' || token.rawName === '--help') return { name: 'help', flag: HELP };
  const found = Object.entries(command.flags).find(([known]) => token.rawName === `--${known}`);
  if (found === undefined) return refuseFlag(command, token.rawName, positionals);
  return { name: found[0], flag: found[1] };
}

function collectOption(command: Command, token: OptionToken, into: Collected): void {
  const { rawName, value } = token;
  const { name, flag } = findFlag(command, token, into);
  if (flag.type === 'boolean') {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value, and got ${quote(value)}`);
    into.switches.add(name);
    return;
  }
  // `--name --other` was most likely meant as two flags; a value that begins with dashes is written --name=--x.
  if (value === undefined || (token.inlineValue !== true && value.startsWith('--'))) {
    throw new UsageError(`${rawName} needs a value: ${rawName} ${flag.value ?? 'VALUE'}`);
  }
  const before = into.texts.get(name) ?? [];
  if (before.length > 0 && flag.multiple !== true) throw new UsageError(`${rawName} is given twice`);
  into.texts.set(name, [...before, value]);
}

/** Reads the words behind a command's name. Throws a UsageError. */
export function parseLine(command: Command, words: readonly string[]): ParsedLine {
  const dashes = words.indexOf('--');
  const own = dashes < 0 ? words : words.slice(0, dashes);
  const rest = dashes < 0 ? null : words.slice(dashes + 1);
  if (rest !== null && command.takesRest !== true) throw new UsageError(`${command.name} takes nothing behind --`);
  const types = Object.entries(command.flags).map(([name, { type }]) => [name, { type }] as const);
  const options = { ...Object.fromEntries(types), help: { type: 'boolean', short: 'h' } as const };
  const { tokens } = parseArgs({ args: [...own], options, strict: false, allowPositionals: true, tokens: true });
  const collected: Collected = { positionals: [], texts: new Map(), switches: new Set() };
  for (const token of tokens) {
    if (token.kind === 'positional') collected.positionals.push(token.value);
    else if (token.kind === 'option') collectOption(command, token, collected);
  }
  const wantsHelp = collected.switches.has('help');
  if (!wantsHelp) checkCount(command, collected.positionals);
  return { rest, ...collected, wantsHelp };
}
