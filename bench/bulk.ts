// Large bodies through the built daemon, by hash and with its memory watched: node --import ./scripts/ts-register.mjs bench/bulk.ts [MiB] [name…]
import { openBulkScene, transferName, TRANSFERS, type Transfer } from '../test/support/bulk.ts';

const MIB = 1024 * 1024;
const MIB_DEFAULT = 1024;
const WARM_UP_BYTES = 64 * MIB;
const GROWTH_MIB_BELOW = 64;

const [size = String(MIB_DEFAULT), ...names] = process.argv.slice(2);
const bytes = Number(size) * MIB;
const kinds = TRANSFERS.filter((kind) => names.length === 0 || names.some((name) => transferName(kind).includes(name)));

/** Throughput of the untouched transfers, by direction and version. */
const untouched = new Map<string, number>();

function ratioOf({ direction, version, content }: Omit<Transfer, 'bytes'>, rate: number): string {
  const key = `${direction} ${version}`;
  if (content === 'plain') untouched.set(key, rate);
  const base = untouched.get(key);
  return base === undefined ? '' : `${((100 * rate) / base).toFixed(0)} % of untouched`;
}

const scene = await openBulkScene();
try {
  for (const kind of kinds) {
    await scene.run({ ...kind, bytes: Math.min(bytes, WARM_UP_BYTES) });
    const { seconds, growthBytes, isIntact, contentLength, cpuSeconds } = await scene.run({ ...kind, bytes });
    const rate = bytes / MIB / seconds;
    const growth = growthBytes / MIB;
    const isGood = isIntact && growth < GROWTH_MIB_BELOW;
    if (!isGood) process.exitCode = 1;
    const cells = [
      transferName(kind),
      `${rate.toFixed(0)} MiB/s`,
      `${(bytes / MIB / cpuSeconds).toFixed(0)} MiB per CPU second of the daemon`,
      ratioOf(kind, bytes / MIB / cpuSeconds),
      `+${growth.toFixed(0)} MiB resident`,
      `Content-Length ${contentLength ?? 'none'}`,
      isGood ? 'good' : isIntact ? 'GREW TOO MUCH' : 'DAMAGED',
    ];
    console.log(cells.join(' | '));
  }
} finally {
  await scene.close();
}
