// The log: JSON lines (or lines for people, on a terminal) that are built from a closed list of fields and nothing else.
import type { Writable } from 'node:stream';
import { pino, type Logger as Pino } from 'pino';
import type { LogFields, Logger } from '../model/ports.ts';
import { describeError } from './error-description.ts';
import { formatPretty } from './logger-pretty.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export interface LoggerOptions {
  readonly level: LogLevel;
  /** Lines for people in place of JSON. */
  readonly pretty?: boolean;
  /** Standard output unless given. */
  readonly destination?: Pick<Writable, 'write'> & { readonly isTTY?: boolean };
}

const TEXT_FIELDS = [
  'sessionId',
  'host',
  'method',
  'code',
  'reason',
  'outcome',
  'address',
  'path',
  'objectId',
  'requestId',
  'name',
] as const;
const NUMBER_FIELDS = ['port', 'status', 'durationMs', 'count', 'pid'] as const;
const TEXT_CHARACTERS_MAX = 512;
const MESSAGE_CHARACTERS_MAX = 1024;

function cut(text: string, charactersMax: number): string {
  return text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text;
}

function pick(fields: LogFields): Record<string, unknown> {
  const line: Record<string, unknown> = {};
  for (const name of TEXT_FIELDS) {
    const value = fields[name];
    if (typeof value === 'string') line[name] = cut(value, TEXT_CHARACTERS_MAX);
  }
  for (const name of NUMBER_FIELDS) {
    const value = fields[name];
    if (typeof value === 'number') line[name] = value;
  }
  if (fields.error !== undefined) line['error'] = describeError(fields.error);
  return line;
}

function createPino(options: LoggerOptions): Pino {
  const destination = options.destination ?? pino.destination({ dest: 1, sync: true });
  // A redirected stream is read by programs and editors, which show colours as noise.
  const hasColours = (options.destination ?? process.stdout).isTTY === true;
  const stream =
    options.pretty === true
      ? { write: (line: string) => void destination.write(formatPretty(line, hasColours)) }
      : destination;
  return pino(
    {
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    stream as { write(line: string): void },
  );
}

/** Creates a logger. A line is written before the call returns, so that a crash loses none. */
export function createLogger(options: LoggerOptions): Logger {
  const lines = createPino(options);
  const at = (level: 'debug' | 'info' | 'warn' | 'error') => {
    return (fields: LogFields, message: string): void => {
      if (lines.isLevelEnabled(level)) lines[level](pick(fields), cut(message, MESSAGE_CHARACTERS_MAX));
    };
  };
  const debugIsOn = lines.isLevelEnabled('debug');
  return { debugIsOn, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}
