// What is said at the start of a limit of open files that is lower than what the limits of connections may need.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { DESCRIPTORS_NEEDED, warnOfFewDescriptors } from '../../daemon/descriptors.ts';

test('a limit below what is needed is told with what to set, and any other is not', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kv-files-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  t.equal(warnOfFewDescriptors(join(directory, 'none')), null, 'no /proc, no word');
  const cases = [
    ['1024', true],
    [String(DESCRIPTORS_NEEDED - 1), true],
    [String(DESCRIPTORS_NEEDED), false],
    ['1048576', false],
    ['unlimited', false],
  ] as const;
  for (const [soft, isLow] of cases) {
    const table = `Limit  Soft Limit  Hard Limit\nMax open files            ${soft}  unlimited  files\n`;
    writeFileSync(join(directory, 'limits'), table);
    const warning = warnOfFewDescriptors(directory);
    if (!isLow) t.equal(warning, null, soft);
    else t.match(warning, new RegExp(`may open ${soft} files, .*LimitNOFILE=${DESCRIPTORS_NEEDED}`), soft);
  }
  writeFileSync(join(directory, 'limits'), 'of another kind\n');
  t.equal(warnOfFewDescriptors(directory), null, 'a table that tells nothing');
  t.end();
});
