// Tables and JSON for standard output; text that others chose is escaped, so that it can't steer a terminal.
import { escapeControls } from '../model/printable.ts';
import type { Json } from './client.ts';
import type { Invocation, Terminal } from './command.ts';

/** A column: its heading and what stands in it. */
export type Column = readonly [heading: string, read: (item: Json) => unknown];

const GAP = 2;
const CELL_CHARACTERS_MIN = 8;

function cellOf(value: unknown): string {
  if (value === null || value === undefined || value === '') return '-';
  if (Array.isArray(value)) return value.length === 0 ? '-' : value.map(cellOf).join(',');
  return escapeControls(typeof value === 'string' ? value : JSON.stringify(value));
}

function cut(text: string, width: number): string {
  return text.length > width ? `${text.slice(0, Math.max(0, width - 1))}…` : text;
}

// The widest columns give way first, until the row fits or every cell is at its smallest; ids are never cut.
function fitWidths(widths: readonly number[], firstIsFixed: boolean, columns: number): number[] {
  const fitted = [...widths];
  const total = (): number => fitted.reduce((sum, width) => sum + width, 0) + GAP * (fitted.length - 1);
  while (total() > columns) {
    let widest = -1;
    for (let index = firstIsFixed ? 1 : 0; index < fitted.length; index += 1) {
      if (widest < 0 || (fitted[index] ?? 0) > (fitted[widest] ?? 0)) widest = index;
    }
    if (widest < 0 || (fitted[widest] ?? 0) <= CELL_CHARACTERS_MIN) break;
    fitted[widest] = (fitted[widest] ?? 0) - 1;
  }
  return fitted;
}

/** A table that fits into so many columns; null for no limit. */
export function formatTable(
  items: readonly Json[],
  columns: readonly Column[],
  terminalColumns: number | null,
): string {
  const rows = [
    columns.map(([heading]) => heading),
    ...items.map((item) => columns.map(([, read]) => cellOf(read(item)))),
  ];
  const natural = columns.map((_, index) => Math.max(...rows.map((row) => row[index]?.length ?? 0)));
  const widths = terminalColumns === null ? natural : fitWidths(natural, true, terminalColumns);
  const lines = rows.map((row) =>
    row
      .map((cell, index) => cut(cell, widths[index] ?? 0).padEnd(widths[index] ?? 0))
      .join(' '.repeat(GAP))
      .trimEnd(),
  );
  return lines.join('\n') + '\n';
}

/** One object as `field  value` lines; nested fields as `auth.placeholder`. */
export function formatObject(item: Json): string {
  const rows: [string, string][] = [];
  const walk = (value: Json, prefix: string): void => {
    for (const [name, field] of Object.entries(value)) {
      const path = `${prefix}${escapeControls(name)}`;
      const isNested =
        typeof field === 'object' && field !== null && !Array.isArray(field) && Object.keys(field).length > 0;
      if (isNested) walk(field as Json, `${path}.`);
      else if (typeof field !== 'object' || field === null || Array.isArray(field)) rows.push([path, cellOf(field)]);
      else rows.push([path, '-']);
    }
  };
  walk(item, '');
  const width = Math.max(0, ...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join('');
}

function formatJson(value: unknown): string {
  // Escaped as well: what JSON leaves as it is (C1 controls, bidi marks) stays valid JSON as \uXXXX.
  return JSON.stringify(value, null, 2).split('\n').map(escapeControls).join('\n') + '\n';
}

/** Prints one object, as JSON under `--json`. */
export async function printObject(invocation: Invocation, item: Json): Promise<void> {
  await invocation.terminal.out(invocation.isOn('json') ? formatJson(item) : formatObject(item));
  await printWarnings(invocation.terminal, item);
}

/** Prints a list, as a JSON array under `--json`. */
export async function printList(
  invocation: Invocation,
  items: AsyncIterable<Json>,
  columns: readonly Column[],
): Promise<void> {
  const all: Json[] = [];
  for await (const item of items) all.push(item);
  const text = invocation.isOn('json') ? formatJson(all) : formatTable(all, columns, invocation.terminal.columns);
  await invocation.terminal.out(text);
}

/** Warnings of the API that are one word, in the words of docs/admin-api.md. */
const WARNING_WORDS: Readonly<Record<string, string>> = {
  low_entropy_value:
    'the value is shorter than 16 bytes or all digits, so that what an upstream answers could confirm a guess',
  value_not_veiled: 'the value is shorter than 8 bytes, too short to be veiled in responses',
  private_suffix_wildcard:
    'a host is a wildcard on a suffix whose names a hosting service gives to its customers: strangers get the secret too',
};

function wordsOf(warning: unknown): string {
  const words = typeof warning === 'string' ? WARNING_WORDS[warning] : undefined;
  return words === undefined ? cellOf(warning) : `${cellOf(warning)}: ${words}`;
}

/** Says the `warnings` of an answer on standard error. */
export async function printWarnings(terminal: Terminal, item: Json): Promise<void> {
  for (const warning of Array.isArray(item['warnings']) ? item['warnings'] : []) {
    terminal.err(`keyveil: warning: ${wordsOf(warning)}\n`);
  }
  return Promise.resolve();
}
