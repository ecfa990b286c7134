// Fifty parallel writers and readers of the admin API for 30 s (or as many seconds as are given): no failure, no lost update.
import { startAdminApi } from '../test/support/admin-api.ts';
import { runAdminLoad } from '../test/support/admin-load.ts';

const WORKERS = 50;
const SECONDS_DEFAULT = 30;

const seconds = Number(process.argv[2] ?? SECONDS_DEFAULT);
const closers: (() => unknown)[] = [];
const api = await startAdminApi({ teardown: (close: () => unknown) => closers.push(close) });
try {
  const { calls, faults } = await runAdminLoad(api, { workers: WORKERS, durationMs: seconds * 1000 });
  console.log(`${calls} calls by ${WORKERS} workers in ${seconds} s, ${faults.length} faults`);
  for (const fault of faults) console.log(fault);
  if (faults.length > 0) process.exitCode = 1;
} finally {
  for (const close of closers) await close();
}
