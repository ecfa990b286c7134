// The matrix as a table for the terminal and for docs/clients.md.
import { readFileSync, writeFileSync } from 'node:fs';
import { COLUMNS, type Client } from './client.ts';

/** `none`: the client has no means for it. */
export type Cell = 'works' | 'fails' | 'none' | 'skipped';

export interface Row {
  readonly client: Client;
  /** Null when it was not installed. */
  readonly version: string | null;
  readonly cells: readonly Cell[];
}

const DOCUMENT = new URL('../../docs/clients.md', import.meta.url);
const BEGIN = '<!-- matrix: written by npm run test:clients -->\n';
const END = '<!-- end of matrix -->';
const HEADINGS: Record<(typeof COLUMNS)[number], string> = {
  header: 'header swap',
  body: 'body swap',
  upload: 'upload',
  stream: 'stream',
  websocket: 'WebSocket',
};
const WORDS: Record<Cell, string> = { works: 'yes', fails: '**no**', none: '–', skipped: 'not run' };

/** A Markdown table, its columns of equal width. */
export function formatTable(rows: readonly Row[]): string {
  const lines = [
    ['client', 'version', ...COLUMNS.map((column) => HEADINGS[column]), 'needs beyond the variables'],
    ...rows.map(({ client, version, cells }) => [
      client.name,
      version ?? 'not installed',
      ...cells.map((cell) => WORDS[cell]),
      client.needs === '' ? 'nothing' : client.needs,
    ]),
  ];
  const widths = (lines[0] ?? []).map((_, at) => Math.max(...lines.map((line) => (line[at] ?? '').length)));
  const format = (cells: readonly string[]): string => {
    return `| ${cells.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(' | ')} |`;
  };
  const [head = [], ...rest] = lines;
  return `${[format(head), `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...rest.map(format)].join('\n')}\n`;
}

/** Replaces the table between the two marks in docs/clients.md. */
export function writeDocument(rows: readonly Row[]): void {
  const text = readFileSync(DOCUMENT, 'utf8');
  const begin = text.indexOf(BEGIN);
  const end = text.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`docs/clients.md has lost its marks: ${BEGIN.trim()} and ${END}`);
  writeFileSync(DOCUMENT, `${text.slice(0, begin)}${BEGIN}\n${formatTable(rows)}\n${text.slice(end)}`);
}
