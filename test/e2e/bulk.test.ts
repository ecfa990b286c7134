// Large bodies through the built daemon arrive whole while its memory stays flat; bench/bulk.ts does the same with 1 GiB.
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { join } from 'node:path';
import t, { test } from 'tap';
import { openBulkScene, transferName, TRANSFERS, type BulkScene } from '../support/bulk.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

const MIB = 1024 * 1024;
const BYTES = 200 * MIB;
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

test('a long body that came by HTTP/2 keeps its length where the upstream speaks HTTP/1.1 alone', async (t) => {
  const authority = createTestAuthority();
  const upstream = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  const placeholder = placeholderOf('L');
  const keyveil = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([{ placeholder, value: 'a-value-of-other-length' }]),
  });
  t.teardown(async () => {
    await keyveil.close();
    await upstream.close();
  });
  const socket = await keyveil.tunnel('api.test:443', { ALPNProtocols: ['h2'] });
  const session = connectHttp2('https://api.test', { createConnection: () => socket });
  t.teardown(() => session.destroy());
  for (const text of [placeholder, 'none']) {
    const body = Buffer.concat([Buffer.from(text), Buffer.alloc(2 * MIB, 0x61)]);
    const stream = session.request({ ':method': 'PUT', ':path': '/', 'content-length': body.length });
    stream.end(body);
    stream.resume();
    const [headers] = (await once(stream, 'response')) as [{ ':status'?: number }];
    t.equal(headers[':status'], 200);
    const received = upstream.received.at(-1);
    t.equal(received?.header('transfer-encoding'), undefined);
    t.equal(received?.header('content-length'), String(received?.body.length));
    t.equal(received?.body.toString('latin1', 0, 4), text === 'none' ? 'none' : 'a-va');
  }
});
