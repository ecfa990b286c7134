// A stop takes no longer than the drain allows, whoever holds a connection open.
import { connect } from 'node:net';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { test } from 'tap';
import { startDaemonProcess } from '../support/daemon-process.ts';
import { readAll } from '../support/operator.ts';

const DRAIN_SECONDS = 2;
/** Well below the minute that an admin request may take, well above the drain on a busy machine. */
const STOP_MS_MAX = 30_000;

test('uploads to the admin API that never end hold up a stop until the deadline only', async (t) => {
  const keyveil = await startDaemonProcess({ environment: { KEYVEIL_DRAIN_SECONDS: String(DRAIN_SECONDS) } });
  t.teardown(() => keyveil.close());
  const head =
    'POST /v1/vaults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{';
  const paths = [{ path: join(keyveil.dataDirectory, 'admin.sock') }, { port: keyveil.adminPort, host: '127.0.0.1' }];
  const stuck = paths.map((path) => {
    const socket = connect(path);
    socket.on('error', () => undefined);
    socket.write(head);
    return readAll(socket);
  });
  await new Promise((resolve) => setTimeout(resolve, 200));
  t.equal((await keyveil.admin('GET', '/v1/vaults')).status, 200);
  const startedAt = performance.now();
  t.equal(await keyveil.stop(), 0);
  const tookMs = performance.now() - startedAt;
  t.ok(tookMs < STOP_MS_MAX, `it took ${Math.round(tookMs)} ms`);
  await Promise.all(stuck);
});
