// Reads a secret: from standard input, a file, or a person who types it unseen; never from an argument.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { SECRET_VALUE_BYTES_MAX } from '../model/limits.ts';
import { StartError } from '../model/errors.ts';
import { UsageError, type Invocation, type Terminal } from './command.ts';

const READ_BYTES_MAX = 64 * SECRET_VALUE_BYTES_MAX;

function decode(bytes: Buffer, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UsageError(`${source} is not UTF-8 text`);
  }
}

// `echo` and editors end a file with a line end that is not part of the secret.
function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}

async function readAll(terminal: Terminal): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of terminal.stdin as AsyncIterable<Buffer | string>) {
    const buffer = Buffer.from(chunk);
    bytes += buffer.length;
    if (bytes > READ_BYTES_MAX) throw new UsageError('standard input is too long for a secret');
    chunks.push(buffer);
  }
  return Buffer.concat(chunks);
}

/** One line that is typed without echo; Ctrl-C and Ctrl-D give up. */
async function prompt(terminal: Terminal, label: string): Promise<string> {
  const { stdin } = terminal;
  terminal.err(label);
  stdin.setRawMode?.(true);
  let typed = '';
  try {
    for await (const chunk of stdin as AsyncIterable<Buffer | string>) {
      for (const character of chunk.toString()) {
        if (character === '\r' || character === '\n') return typed;
        if (character === '\u0003' || character === '\u0004') throw new UsageError('given up: no value was read');
        typed = character === '\u007f' || character === '\b' ? typed.slice(0, -1) : typed + character;
      }
    }
    return typed;
  } finally {
    stdin.setRawMode?.(false);
    terminal.err('\n');
  }
}

/** The whole text of a file that a flag names. Throws a StartError that names both. */
export function readTextFile(invocation: Invocation, flag: string, path: string): string {
  try {
    return decode(readFileSync(resolve(invocation.cwd, path)), path);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new StartError(
      `--${flag} names the file ${path}, which can't be read (${(error as NodeJS.ErrnoException).code ?? 'unreadable'})`,
    );
  }
}

/** The secret for a command; one line end at its end is not part of it. */
export async function readSecret(invocation: Invocation, label: string): Promise<string> {
  const path = invocation.flag('from-file');
  if (path !== undefined) return withoutLineEnd(readTextFile(invocation, 'from-file', path));
  const { terminal } = invocation;
  const text =
    terminal.stdin.isTTY === true
      ? await prompt(terminal, label)
      : withoutLineEnd(decode(await readAll(terminal), 'standard input'));
  if (text === '') throw new UsageError('the secret is empty: give it on standard input, or by --from-file FILE');
  return text;
}
