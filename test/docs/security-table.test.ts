// docs/security.md: every guarantee names files that enforce it and tests that prove it, and all of them exist.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'tap';

const root = join(import.meta.dirname, '../..');
const page = 'docs/security.md';
const text = readFileSync(join(root, page), 'utf8');

interface Row {
  readonly guarantee: number;
  readonly enforcers: readonly string[];
  readonly proofs: readonly string[];
}

/** Links of a cell, as paths from the root; each must be named by the path that it leads to. */
function linksOf(cell: string): string[] {
  return [...cell.matchAll(/\[([^\]]*)\]\(([^)]*)\)/g)].map(([link, label, target]) => {
    const path = join(dirname(page), target as string);
    if (path !== label) throw new Error(`${link} leads to ${path}`);
    return path;
  });
}

const rows: readonly Row[] = text
  .split('\n')
  .filter((line) => /^\| [0-9]/.test(line))
  .map((line) => {
    const [, guarantee = '', , enforcers = '', proofs = ''] = line.split('|');
    return { guarantee: Number.parseInt(guarantee, 10), enforcers: linksOf(enforcers), proofs: linksOf(proofs) };
  });

test('the seven guarantees are there, each stated once and in order', (t) => {
  const stated = [...text.matchAll(/^\| ([0-9])\. /gm)].map((match) => Number(match[1]));
  t.strictSame(stated, [1, 2, 3, 4, 5, 6, 7]);
  const order = rows.map(({ guarantee }) => guarantee);
  t.strictSame(
    order,
    [...order].sort((a, b) => a - b),
  );
  t.strictSame([...new Set(order)], stated);
  t.end();
});

test('every row names what enforces it and what proves it, and each file exists', (t) => {
  for (const { guarantee, enforcers, proofs } of rows) {
    t.ok(enforcers.length > 0 && proofs.length > 0, `guarantee ${guarantee} has both`);
    for (const path of [...enforcers, ...proofs]) t.ok(existsSync(join(root, path)), path);
    for (const path of enforcers) t.match(path, /^(?:model|proxy|ca|store|admin-api|daemon|cli)\/.*\.ts$/);
    for (const path of proofs) t.match(path, /^test\/.*\.test\.ts$/, `${path} is run as a test`);
  }
  t.end();
});
