// Reads dotenv files: NAME=VALUE per line, with comments, `export`, and single, double or no quotes.
import { UsageError } from './command.ts';

export interface DotenvEntry {
  /** Where it begins; the first line is 1. */
  readonly line: number;
  readonly name: string;
  readonly value: string;
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' };
const BLANK = /^[ \t]*(?:#[^\r\n]*)?(?:\r?\n|$)/;
const NAME = /^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*/;
// A quoted value may go over several lines, as a PEM key does. Without quotes a comment needs a blank before it.
const QUOTED = /^(?:'([^']*)'|"((?:[^"\\]|\\[\s\S])*)")[ \t]*(?:#[^\r\n]*)?(?:\r?\n|$)/;
const PLAIN = /^((?:(?![ \t]+(?:#|\r?\n|$))[^\r\n])*)[ \t]*(?:#[^\r\n]*)?(?:\r?\n|$)/;

function unescape(text: string): string {
  return text.replace(/\\([\s\S])/g, (_, character: string) => ESCAPES[character] ?? character);
}

/** The value at the beginning of a text and the length of what it took, or what is wrong with it. */
function readValue(text: string): { value: string; length: number } | string {
  const quoted = QUOTED.exec(text);
  if (quoted !== null) return { value: quoted[1] ?? unescape(quoted[2] ?? ''), length: quoted[0].length };
  if (/^['"]/.test(text)) return 'a quote is not closed, or something stands behind it';
  const plain = PLAIN.exec(text);
  const value = plain?.[1] ?? '';
  return value.startsWith('#')
    ? { value: '', length: text.length }
    : { value, length: plain?.[0].length ?? text.length };
}

/** The entries in order. Throws a UsageError that names the line; it never quotes a value. */
export function parseDotenv(text: string, source: string): readonly DotenvEntry[] {
  const entries = new Map<string, DotenvEntry>();
  const whole = text.replace(/^\ufeff/, '');
  let at = 0;
  const lineHere = (): number => whole.slice(0, at).split('\n').length;
  const refuse = (problem: string): never => {
    throw new UsageError(`${source}, line ${lineHere()}: ${problem}`);
  };
  while (at < whole.length) {
    const blank = BLANK.exec(whole.slice(at));
    if (blank !== null) {
      at += blank[0].length;
      continue;
    }
    const name = NAME.exec(whole.slice(at));
    if (name?.[1] === undefined) return refuse('not NAME=VALUE');
    const read = readValue(whole.slice(at + name[0].length));
    if (typeof read === 'string') return refuse(read);
    if (read.value === '') return refuse(`${name[1]} has no value`);
    if (entries.has(name[1])) return refuse(`${name[1]} stands there twice`);
    entries.set(name[1], { name: name[1], value: read.value, line: lineHere() });
    at += name[0].length + read.length;
  }
  if (entries.size === 0) throw new UsageError(`${source} holds no NAME=VALUE`);
  return [...entries.values()];
}
