// The switches that keep memory out of cores, and what is said where one of them can't be had.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { keepMemoryOutOfCores } from '../../daemon/core-dumps.ts';

const limits = (soft: string): string =>
  `Limit  Soft Limit  Hard Limit\nMax core file size        ${soft}  unlimited  bytes\n`;

test('the filter is set, and a system that has none, keeps it or refuses it is told apart', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kv-cores-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const filter = join(directory, 'coredump_filter');
  writeFileSync(join(directory, 'limits'), limits('1'));
  t.strictSame(keepMemoryOutOfCores(join(directory, 'none')), [], 'no /proc, no word');
  t.match(keepMemoryOutOfCores(directory), [/coredump_filter could not be set to 0 \(ENOENT\)\. .*ulimit -c 0/]);
  writeFileSync(filter, '0');
  t.strictSame(keepMemoryOutOfCores(directory), []);
  t.equal(readFileSync(filter, 'latin1'), '0');
  // A plain file keeps what is behind the byte that is written.
  writeFileSync(filter, '33');
  t.match(keepMemoryOutOfCores(directory), [/could not be set to 0 \(stays 03\)/]);
  rmSync(filter);
  mkdirSync(filter);
  t.match(keepMemoryOutOfCores(directory), [/could not be set to 0 \(EISDIR\)/]);
  t.end();
});

test('a limit that stays is told, and one that lets no core be written is not', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kv-cores-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  writeFileSync(join(directory, 'coredump_filter'), '0');
  const path = join(directory, 'limits');
  for (const soft of ['0', '1']) {
    writeFileSync(path, limits(soft));
    t.strictSame(keepMemoryOutOfCores(directory), [], soft);
  }
  for (const soft of ['2', '4096', 'unlimited']) {
    writeFileSync(path, limits(soft));
    t.match(
      keepMemoryOutOfCores(directory),
      [/registers .* could not be lowered by prlimit \(.+\)\. .*ulimit -c 0/],
      soft,
    );
  }
  rmSync(path);
  t.match(keepMemoryOutOfCores(directory), [/could not be lowered/], 'nothing tells the limit');
  t.end();
});
