// Fails unless the tests that just ran cover every line, branch, function and statement of the folders named below.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import process from 'node:process';
import ts from 'typescript';

/**
 * What one file of the report holds of interest here (Istanbul's format).
 * @typedef {{ start: { line: number } }} Place
 * @typedef {object} FileCoverage
 * @property {Record<string, Place>} statementMap
 * @property {Record<string, number>} s
 * @property {Record<string, { locations: Place[] }>} branchMap
 * @property {Record<string, number[]>} b
 * @property {Record<string, { loc: Place }>} fnMap
 * @property {Record<string, number>} f
 */

const fullyCovered = ['model', 'proxy/swap', 'proxy/veil', 'store', 'ca'];
const root = join(import.meta.dirname, '..');
const report = join(root, '.tap/report/coverage-final.json');

if (!existsSync(report)) {
  console.error(`coverage: no report at ${relative(root, report)}; run tap first`);
  process.exit(1);
}
/** @type {Record<string, FileCoverage>} */
const coverage = JSON.parse(readFileSync(report, 'utf8'));

const complaints = fullyCovered.flatMap(sourcesIn).flatMap(complaintsAbout);
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exit(1);
console.log(`coverage: 100 % of ${fullyCovered.join(', ')}`);

/**
 * @param {string} folder
 * @returns {string[]}
 */
function sourcesIn(folder) {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name))
    .sort();
}

/**
 * @param {string} file
 * @returns {string[]}
 */
function complaintsAbout(file) {
  const found = coverage[join(root, file)];
  if (found === undefined) return hasCode(file) ? [`coverage: ${file}: no test loads it`] : [];
  const lines = [
    ...Object.keys(found.s)
      .filter((key) => found.s[key] === 0)
      .map((key) => found.statementMap[key]),
    ...Object.keys(found.f)
      .filter((key) => found.f[key] === 0)
      .map((key) => found.fnMap[key]?.loc),
    ...Object.entries(found.b).flatMap(([key, counts]) =>
      counts.flatMap((count, arm) => (count === 0 ? [found.branchMap[key]?.locations[arm]] : [])),
    ),
  ].map((place) => place?.start.line ?? 0);
  return lines.length === 0 ? [] : [`coverage: ${file}: not covered: ${ranges(lines)}`];
}

/**
 * A file of types alone leaves nothing to load at run time.
 * @param {string} file
 */
function hasCode(file) {
  const { outputText } = ts.transpileModule(readFileSync(join(root, file), 'utf8'), {
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, removeComments: true },
  });
  return outputText.replace('export {};', '').trim() !== '';
}

/**
 * `3, 7-9` for 9, 7, 8, 3.
 * @param {number[]} lines
 */
function ranges(lines) {
  /** @type {[number, number][]} */
  const spans = [];
  for (const line of [...new Set(lines)].sort((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last && line === last[1] + 1) last[1] = line;
    else spans.push([line, line]);
  }
  return spans.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(', ');
}
