// Turns one JSON line of the log into a line for people, in which nothing can steer the terminal.
import { escapeControls } from '../model/printable.ts';

const COLOURS: Readonly<Record<string, string>> = {
  debug: '\u001b[2m',
  info: '\u001b[32m',
  warn: '\u001b[33m',
  error: '\u001b[31m',
};
const RESET = '\u001b[0m';

function show(value: unknown): string {
  if (typeof value !== 'string') return escapeControls(JSON.stringify(value));
  return /^[\w./:@+-]+$/.test(value) ? value : escapeControls(JSON.stringify(value));
}

function showError(error: Readonly<Record<string, unknown>>): string {
  const { name, code, message, frames, cause } = error;
  const words = [name, code, message].filter((word) => typeof word === 'string').map((word) => escapeControls(word));
  const lines = [
    words.join(' '),
    ...(Array.isArray(frames) ? frames.map((frame) => `  ${escapeControls(String(frame))}`) : []),
  ];
  const text = lines.map((line) => `\n    ${line}`).join('');
  return typeof cause === 'object' && cause !== null ? `${text}${showError(cause as Record<string, unknown>)}` : text;
}

/** `12:00:00.000 WARN  message key=value`, in colour if asked for, with an error's frames below. */
export function formatPretty(json: string, hasColours: boolean): string {
  const { level, time, msg, error, ...fields } = JSON.parse(json) as Record<string, unknown>;
  const label = String(level);
  const pairs = Object.entries(fields).map(([name, value]) => ` ${name}=${show(value)}`);
  const tail = typeof error === 'object' && error !== null ? showError(error as Record<string, unknown>) : '';
  const clock = String(time).slice(11, 23);
  const word = label.toUpperCase().padEnd(5);
  const shown = hasColours ? `${COLOURS[label] ?? ''}${word}${RESET}` : word;
  return `${clock} ${shown} ${escapeControls(String(msg))}${pairs.join('')}${tail}\n`;
}
