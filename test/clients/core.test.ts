// The clients that most machines have, each with nothing but the session's variables; `npm run test:clients` runs all.
import t, { test } from 'tap';
import type { Client, Column } from './client.ts';
import { git } from './registry-clients.ts';
import { route } from './routes.ts';
import { openScene, type Scene } from './scene.ts';
import { https, undici, urllib, ws } from './script-clients.ts';
import { curlAnyAuth, curlHttp1, curlHttp2 } from './shell-clients.ts';

// Programs cost time to start: where two clients share what a column needs, one of them shows it.
const CORE: readonly (readonly [Client, readonly Column[]])[] = [
  [curlHttp1, ['header', 'body', 'upload', 'stream']],
  [curlHttp2, ['header', 'body', 'upload', 'stream']],
  [curlAnyAuth, ['header']],
  [git, ['header', 'upload']],
  [urllib, ['header', 'upload', 'stream']],
  [https, ['header', 'upload']],
  [undici, ['body', 'stream']],
  [ws, ['websocket']],
];

let scene: Scene;

t.before(async () => {
  scene = await openScene({ route });
});
t.teardown(() => scene.close());

for (const [client, columns] of CORE) {
  const probed = client.probe();
  test(
    `${client.name} works with ${columns.join(', ')}`,
    { skip: 'missing' in probed && probed.missing },
    async (t) => {
      await client.prepare?.(scene);
      for (const column of columns) await t.resolves(async () => client.checks[column]?.(scene), column);
    },
  );
}
