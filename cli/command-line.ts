// Runs one command line: finds the command, runs it, and turns every failure into one line and an exit code.
import { describeError } from '../daemon/error-description.ts';
import { loadClientConfig } from '../daemon/config.ts';
import { explainSystemError } from '../daemon/system-error.ts';
import type { Variables } from '../daemon/config-source.ts';
import { StartError } from '../model/errors.ts';
import { escapeControls } from '../model/printable.ts';
import { findCommand, parseLine, refuseCommand, type ParsedLine } from './arguments.ts';
import { SpawnFailure } from './child.ts';
import { ApiError, createClient, UnreachableError, type AdminClient } from './client.ts';
import { UsageError, type Command, type Invocation, type Terminal } from './command.ts';
import { inWordsOfFlags } from './field-names.ts';
import { COMMANDS } from './commands.ts';
import { helpOfAll, helpOfCommand, helpOfGroup } from './help.ts';

export interface CommandLineOptions {
  readonly terminal: Terminal;
  readonly env: Variables;
  readonly cwd: string;
  readonly version: string;
}

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;
/** EX_UNAVAILABLE of sysexits.h. */
const EXIT_UNAVAILABLE = 69;

// What names the daemon was typed, here or into a variable.
function openClient(flags: Readonly<Record<string, string>>, { env, cwd }: CommandLineOptions): AdminClient {
  try {
    return createClient(loadClientConfig({ env, flags, cwd }));
  } catch (error) {
    throw error instanceof StartError ? new UsageError(error.message) : error;
  }
}

function createInvocation(line: ParsedLine, options: CommandLineOptions): Invocation {
  const textFlags = Object.fromEntries([...line.texts].map(([name, values]) => [name, values.at(-1) ?? '']));
  let client: AdminClient | null = null;
  return {
    terminal: options.terminal,
    env: options.env,
    cwd: options.cwd,
    positionals: line.positionals,
    rest: line.rest,
    textFlags,
    flag: (name) => textFlags[name],
    flags: (name) => line.texts.get(name) ?? [],
    isOn: (name) => line.switches.has(name),
    client: () => (client ??= openClient(textFlags, options)),
  };
}

function withoutHelp(words: readonly string[]): string[] {
  return words.filter((word) => word !== '--help' && word !== '-h' && word !== 'help');
}

/** Help for what was typed, or null when a command is to be run. */
function helpFor(words: readonly string[], commands: readonly Command[]): string | null {
  const plain = withoutHelp(words);
  const asks = words.length === 0 || (plain.length < words.length && findCommand(plain, commands) === null);
  const [group] = plain;
  if (group === undefined) return asks ? helpOfAll(commands) : null;
  const members = commands.filter((command) => command.name.startsWith(`${group} `));
  const isBareGroup = plain.length === 1 && members.length > 0 && findCommand(plain, commands) === null;
  // A second word that is no command of the group is a mistake, whatever was asked about it.
  return isBareGroup ? helpOfGroup(group, members) : null;
}

async function runWords(words: readonly string[], options: CommandLineOptions): Promise<number> {
  const { terminal } = options;
  if (words[0] === '--version') {
    await terminal.out(`${options.version}\n`);
    return 0;
  }
  const help = helpFor(words, COMMANDS);
  if (help !== null) {
    await terminal.out(help);
    return words.length === 0 ? EXIT_USAGE : 0;
  }
  const found =
    findCommand(words[0] === 'help' ? words.slice(1) : words, COMMANDS) ?? refuseCommand(withoutHelp(words), COMMANDS);
  const line = parseLine(found.command, words[0] === 'help' ? ['--help'] : found.tail);
  if (line.wantsHelp) {
    await terminal.out(helpOfCommand(found.command));
    return 0;
  }
  const invocation = createInvocation(line, options);
  try {
    return await found.command.run(invocation);
  } catch (error) {
    throw error instanceof ApiError ? inWordsOfFlags(error, found.command, invocation) : error;
  }
}

function unexpected(error: unknown): string {
  const { name, code, frames } = describeError(error);
  const where = Array.isArray(frames) && typeof frames[0] === 'string' ? ` ${frames[0]}` : '';
  return `unexpected ${String(name)}${typeof code === 'string' ? ` (${code})` : ''}${where}`;
}

function explain(error: unknown): { exitCode: number; message: string } {
  if (error instanceof UsageError) return { exitCode: EXIT_USAGE, message: error.message };
  if (error instanceof UnreachableError) return { exitCode: EXIT_UNAVAILABLE, message: error.message };
  if (error instanceof SpawnFailure) return { exitCode: error.exitCode, message: error.message };
  if (error instanceof StartError) return { exitCode: EXIT_FAILURE, message: error.message };
  if (error instanceof ApiError) {
    return {
      exitCode: EXIT_FAILURE,
      message: error.code === null ? error.message : `${error.message} (${error.code})`,
    };
  }
  return { exitCode: EXIT_FAILURE, message: explainSystemError(error) ?? unexpected(error) };
}

/** Runs a command line (without the interpreter and the script) and resolves to its exit code; never rejects. */
export async function runCommandLine(words: readonly string[], options: CommandLineOptions): Promise<number> {
  try {
    return await runWords(words, options);
  } catch (error) {
    const { exitCode, message } = explain(error);
    // Lines are kept apart (a failed mount names one credential per line), everything else is escaped.
    options.terminal.err(`keyveil: ${message.split('\n').map(escapeControls).join('\n')}\n`);
    return exitCode;
  }
}
