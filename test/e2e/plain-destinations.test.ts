// Plain requests of one connection: what came before changes nothing of where the next one may go.
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { test } from 'tap';
import { createHostSet } from '../../model/host-pattern.ts';
import { readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { openRawServer, answer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const ADMITTED = ['one.test', 'two.test'];
const HOSTS = [...ADMITTED, 'denied.test'];
const REQUESTS = HOSTS.flatMap((target) => HOSTS.map((host) => ({ target, host })));

type PlainRequest = (typeof REQUESTS)[number];

function statusAlone({ target, host }: PlainRequest): number {
  if (target !== host) return 421;
  return ADMITTED.includes(target) ? 200 : 403;
}

function open(keyveil: TestProxy): Socket {
  return connect(keyveil.port, '127.0.0.1').on('error', () => undefined);
}

/** The status of the answer; bodies are left out, since each is read to its end by its length. */
async function ask(socket: Socket, { target, host }: PlainRequest, login: string): Promise<number> {
  socket.write(`GET http://${target}/ HTTP/1.1\r\nHost: ${host}\r\nProxy-Authorization: ${login}\r\n\r\n`);
  const head = await readHead(socket);
  let left = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
  while (left > 0) {
    const chunk = socket.read(Math.min(left, socket.readableLength)) as Buffer | null;
    if (chunk === null) await new Promise((resolve) => socket.once('readable', resolve));
    else left -= chunk.length;
  }
  socket.removeAllListeners('readable');
  return Number(head.split(' ')[1]);
}

test('each request of a connection gets the answer that it would get alone, whatever came before', async (t) => {
  const servers = await Promise.all(
    HOSTS.map(() =>
      openRawServer((socket, received) => {
        if (received.endsWith('\r\n\r\n')) socket.write(answer('ok'));
      }),
    ),
  );
  const keyveil = await startTestProxy({
    authority: createTestAuthority(),
    overrides: Object.fromEntries(HOSTS.map((host, index) => [`${host}:80`, servers[index]?.port as number])),
    policy: { ...sessionPolicy([]), admission: createHostSet(ADMITTED) },
  });
  t.teardown(async () => {
    await keyveil.close();
    await Promise.all(servers.map((server) => server.close()));
  });
  for (const request of REQUESTS) {
    const socket = open(keyveil);
    t.equal(await ask(socket, request, keyveil.login), statusAlone(request), `alone: ${JSON.stringify(request)}`);
    socket.destroy();
  }
  for (const first of REQUESTS) {
    for (const second of REQUESTS) {
      const socket = open(keyveil);
      const requests = [first, second, first];
      const statuses = [];
      for (const request of requests) statuses.push(await ask(socket, request, keyveil.login));
      assert.deepEqual(statuses, requests.map(statusAlone), JSON.stringify(requests));
      socket.destroy();
    }
  }
  for (const [index, host] of HOSTS.entries()) {
    const named = servers[index]?.received.join('').match(/^Host: .*$/gm) ?? [];
    t.same([...new Set(named)], ADMITTED.includes(host) ? [`Host: ${host}`] : [], `what ${host} was asked for`);
  }
});
