// What a command is: its words, its flags, and how it runs.
import type { Readable } from 'node:stream';
import type { AdminClient } from './client.ts';
import type { Variables } from '../daemon/config-source.ts';

export { UsageError } from './usage-error.ts';

/** One flag. */
export interface CommandFlag {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** Placeholder for the value in the help, such as `NAME`. */
  readonly value?: string;
  readonly help: string;
}

/** Where a command reads and writes; handed over, so that tests see everything. */
export interface Terminal {
  readonly stdin: Readable & { readonly isTTY?: boolean; setRawMode?(mode: boolean): unknown };
  /** Resolves when the text has been taken, so that a closed pipe is noticed. */
  out(text: string): Promise<void>;
  err(text: string): void;
  /** Width of the terminal; null when the output is not one. */
  readonly columns: number | null;
}

/** A command under way. */
export interface Invocation {
  readonly terminal: Terminal;
  readonly env: Variables;
  readonly cwd: string;
  readonly positionals: readonly string[];
  /** What stood behind `--`; null when there was none. */
  readonly rest: readonly string[] | null;
  flag(name: string): string | undefined;
  flags(name: string): readonly string[];
  isOn(name: string): boolean;
  /** Every text flag, for the configuration. */
  readonly textFlags: Readonly<Record<string, string>>;
  /** The admin API of the daemon that the flags and the environment name. */
  client(): AdminClient;
}

export interface Command {
  /** One or two words, such as `vault create`. */
  readonly name: string;
  readonly summary: string;
  /** What stands behind the name, such as `NAME`. */
  readonly usage: string;
  /** Lines that work as they are. */
  readonly examples: readonly string[];
  readonly flags: Readonly<Record<string, CommandFlag>>;
  /** A line below the flags in the help. */
  readonly note?: string;
  readonly positionals: { readonly min: number; readonly max: number };
  /** Whether `-- CMD ARGS` is taken. */
  readonly takesRest?: boolean;
  /** Resolves to the exit code. */
  run(invocation: Invocation): Promise<number>;
}

/** Flags of every command that talks to a daemon. */
export const CLIENT_FLAGS: Readonly<Record<string, CommandFlag>> = {
  url: {
    type: 'string',
    value: 'URL',
    help: 'admin API, such as http://127.0.0.1:7081 (default: the socket in the data directory)',
  },
  'data-dir': { type: 'string', value: 'DIR', help: 'data directory of the daemon (default: ./data)' },
  'admin-token-file': { type: 'string', value: 'FILE', help: 'file with the admin token, for --url' },
};

/** The same, and `--json`. */
export const JSON_FLAGS: Readonly<Record<string, CommandFlag>> = {
  ...CLIENT_FLAGS,
  json: { type: 'boolean', help: 'print the JSON of the admin API' },
};
