// Connections whose one direction ends before the other: relayed in both directions, and nothing stays open after them.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import t, { test } from 'tap';
import { createHostSet } from '../../model/host-pattern.ts';
import { readAll } from '../support/daemon.ts';
import { settled } from '../support/many-tunnels.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy, type TestProxyOptions } from '../support/proxy.ts';
import { answer, openRawServer, type RawServer, type Script } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test']);
const RELAYS: Readonly<Record<string, TestProxyOptions['settings']>> = {
  'a pass-through host': { passthroughHosts: createHostSet(['api.test']) },
  'interception off': { interceptionOn: false },
};

t.setTimeout(120_000);

interface Scene {
  readonly keyveil: TestProxy;
  readonly server: RawServer;
  readonly sockets: Socket[];
}

async function openScene(
  t: { teardown(close: () => Promise<void>): void },
  options: { script: Script; settings?: TestProxyOptions['settings']; isPlain?: boolean },
): Promise<Scene> {
  const sockets: Socket[] = [];
  const server = await openRawServer(options.script, {
    ...(options.isPlain === true ? {} : { tls: leaf }),
    allowHalfOpen: true,
    onConnection: (socket) => sockets.push(socket),
  });
  const keyveil = await startTestProxy({
    authority,
    overrides: { [`api.test:${options.isPlain === true ? 80 : 443}`]: server.port },
    policy: sessionPolicy([]),
    settings: options.settings ?? {},
  });
  t.teardown(async () => {
    await keyveil.close();
    await server.close();
  });
  return { keyveil, server, sockets };
}

/** A TLS session with the server itself, through a relayed tunnel; neither side ends by itself. */
async function openRelayed(keyveil: TestProxy): Promise<Socket> {
  const { socket } = await keyveil.connect('api.test:443');
  socket.allowHalfOpen = true;
  const tls = connectTls({ socket, servername: 'api.test', ca: authority.caPem });
  tls.allowHalfOpen = true;
  tls.on('error', () => undefined);
  await once(tls, 'secureConnect');
  return tls;
}

/** The server's side of the connection that was made last: its handshake may end after the client's. */
async function accepted({ sockets }: Scene): Promise<Socket> {
  await settled(
    () => sockets.length,
    (count) => count > 0,
  );
  return sockets.pop() as Socket;
}

async function expectNothingOpen(t: { equal(a: unknown, b: unknown, name: string): void }, scene: Scene) {
  const { keyveil, server } = scene;
  const left = await settled(
    () => keyveil.proxy.tunnelCount,
    (count) => count === 0,
  );
  t.equal(left, 0, 'no tunnel is left');
  await server.drained();
}

for (const [name, settings] of Object.entries(RELAYS)) {
  test(`${name}: a client that ends first still gets the answer`, async (t) => {
    const scene = await openScene(t, { script: () => undefined, ...(settings === undefined ? {} : { settings }) });
    const tls = await openRelayed(scene.keyveil);
    const event = scene.keyveil.nextEvent();
    tls.end('question');
    const upstream = await accepted(scene);
    if (!upstream.readableEnded) await once(upstream, 'end');
    t.equal(scene.server.received[0], 'question', 'the end reaches the upstream behind all bytes');
    upstream.write('an answer, ');
    t.strictSame(`${String(await once(tls, 'data'))}`, 'an answer, ');
    const rest = readAll(tls);
    upstream.end('and its end');
    t.equal(await rest, 'and its end');
    t.match(await event, { outcome: 'relayed', reason: null });
    await expectNothingOpen(t, scene);
  });

  test(`${name}: an upstream that ends first still gets what the client sends`, async (t) => {
    const scene = await openScene(t, {
      script: (socket, received) => void (received === 'hello' && socket.end('bye')),
      ...(settings === undefined ? {} : { settings }),
    });
    const tls = await openRelayed(scene.keyveil);
    tls.write('hello');
    tls.resume();
    await once(tls, 'end');
    const upstream = await accepted(scene);
    tls.write(' and more');
    await settled(
      () => scene.server.received[0],
      (text) => text === 'hello and more',
    );
    t.equal(scene.server.received[0], 'hello and more');
    t.equal(upstream.readableEnded, false);
    tls.end();
    await expectNothingOpen(t, scene);
  });
}

const FRAMINGS: Readonly<Record<string, string>> = {
  'of stated length': answer('whole'),
  'in chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n',
  'that the end of the connection ends': 'HTTP/1.1 200 OK\r\n\r\nwhole',
};

for (const [name, text] of Object.entries(FRAMINGS)) {
  test(`an upstream that ends its side behind an answer ${name}`, async (t) => {
    const scene = await openScene(t, {
      script: (socket, received) => void (received.endsWith('\r\n\r\n') && socket.end(text)),
    });
    for (let round = 0; round < 2; round += 1) {
      const tls = await scene.keyveil.tunnel('api.test:443');
      tls.write('GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
      t.match(await readAll(tls), /^HTTP\/1\.1 200 [^]*whole/);
    }
    t.equal(scene.server.connectionCount, 2, 'each request has a connection that is whole');
    await expectNothingOpen(t, scene);
  });
}
