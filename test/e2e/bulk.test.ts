// Large bodies through the built daemon arrive whole while its memory stays flat; bench/bulk.ts does the same with 1 GiB.
import { readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import t, { test } from 'tap';
import { openBulkScene, transferName, TRANSFERS, type BulkScene } from '../support/bulk.ts';

const MIB = 1024 * 1024;
const BYTES = 96 * MIB;
const WARM_UP_BYTES = 16 * MIB;
const GROWTH_BYTES_BELOW = 64 * MIB;

let scene: BulkScene;

t.before(async () => {
  scene = await openBulkScene();
});

t.teardown(() => scene.close());

// The benchmark does the others too.
for (const kind of TRANSFERS.filter(({ version, content }) => version === '1.1' || content === 'swap')) {
  test(transferName(kind), async (t) => {
    await scene.run({ ...kind, bytes: WARM_UP_BYTES });
    const result = await scene.run({ ...kind, bytes: BYTES });
    t.ok(result.isIntact, 'every byte is as it should be');
    t.equal(result.httpVersion, kind.version === '2' ? '2.0' : '1.1');
    t.ok(result.growthBytes < GROWTH_BYTES_BELOW, `memory grew by ${Math.round(result.growthBytes / MIB)} MiB`);
    const isExact = kind.framing === 'length';
    t.equal(result.contentLength, isExact ? String(result.arrivedBytes) : undefined);
    t.comment(`${Math.round(BYTES / MIB / result.seconds)} MiB/s, ${Math.round(result.growthBytes / MIB)} MiB`);
  });
}

test('nothing is left in the spool', async (t) => {
  const { keyveil } = scene;
  t.same(readdirSync(join(keyveil.dataDirectory, 'spool')), [], 'no file has a name');
  const descriptors = `/proc/${String(keyveil.pid)}/fd`;
  const open = readdirSync(descriptors).map((name) => {
    try {
      return readlinkSync(join(descriptors, name));
    } catch {
      // It was closed since the list was made.
      return '';
    }
  });
  t.ok(open.some((path) => path.startsWith(keyveil.dataDirectory)));
  t.same(
    open.filter((path) => path.includes('/spool/')),
    [],
    'and none without a name is open',
  );
});
