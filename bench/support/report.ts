// What a case found: figures with their spread, and rows that are held against what must be and what is aimed at.
import { spreadOf } from './statistics.ts';

/** One figure of one subject, one value per round. */
export interface Measurement {
  readonly subject: string;
  readonly figure: string;
  readonly unit: string;
  readonly values: readonly number[];
}

/** A goal: the median of the values is held against it. */
export interface Row {
  readonly work: string;
  readonly unit: string;
  readonly values: readonly number[];
  readonly must: number;
  readonly aim: number;
  readonly better: 'lower' | 'higher';
}

export interface CaseResult {
  readonly measurements: readonly Measurement[];
  readonly rows: readonly Row[];
  /** What has to be known to read the figures. */
  readonly notes: readonly string[];
}

export type Verdict = 'aim' | 'must' | 'short';

export function verdictOf(row: Row): Verdict {
  const { median } = spreadOf(row.values);
  const reaches = (goal: number): boolean => (row.better === 'lower' ? median <= goal : median >= goal);
  if (reaches(row.aim)) return 'aim';
  return reaches(row.must) ? 'must' : 'short';
}

function number(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return value >= 1000
    ? value.toFixed(0)
    : value >= 100
      ? value.toFixed(0)
      : value >= 10
        ? value.toFixed(1)
        : value.toFixed(2);
}

function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) => Math.max(title.length, ...lines.map((line) => line[column]?.length ?? 0)));
  const format = (line: readonly string[]): string =>
    `| ${line.map((cell, column) => cell.padEnd(widths[column] as number)).join(' | ')} |`;
  const rule = `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`;
  return [format(head), rule, ...lines.map(format)].join('\n');
}

function measurementLine({ subject, figure, unit, values }: Measurement): string[] {
  const { min, median, max } = spreadOf(values);
  return [subject, `${figure}, ${unit}`, number(median), `${number(min)} – ${number(max)}`, String(values.length)];
}

const MARKS: Readonly<Record<Verdict, string>> = { aim: 'aim reached', must: 'must reached', short: 'SHORT' };

function rowLine(row: Row): string[] {
  const { min, median, max } = spreadOf(row.values);
  const sign = row.better === 'lower' ? '≤' : '≥';
  const goals = [`${sign} ${row.must}`, `${sign} ${row.aim}`];
  return [
    row.work,
    `${number(median)} ${row.unit}`,
    `${number(min)} – ${number(max)}`,
    ...goals,
    MARKS[verdictOf(row)],
  ];
}

/** Tables in Markdown, which can be read in a terminal too. */
export function formatResult(name: string, result: CaseResult): string {
  const parts = [`## ${name}`];
  if (result.measurements.length > 0) {
    parts.push(table(['subject', 'figure', 'median', 'min – max', 'rounds'], result.measurements.map(measurementLine)));
  }
  if (result.rows.length > 0) {
    parts.push(table(['work', 'median', 'min – max', 'must', 'aim', ''], result.rows.map(rowLine)));
  }
  return [...parts, ...result.notes.map((note) => `- ${note}`)].join('\n\n').replaceAll('\n\n- ', '\n- ') + '\n';
}
