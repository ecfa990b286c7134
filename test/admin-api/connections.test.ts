// Connections to the admin port: without a token they are few, short, and make room for others.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import t, { test } from 'tap';
import { startAdminApi } from '../support/admin-api.ts';
import { readHead } from '../support/daemon.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const CONNECTIONS_MAX = 8;
const api = await startAdminApi(t);
const authority = createTestAuthority();
const leaf = authority.leafFor(['localhost']);
const LOGIN = `x-api-key: ${api.token}\r\n`;

function get(path: string, fields = ''): string {
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${fields}\r\n`;
}

const STREAM = get('/v1/audit_events/stream', LOGIN);
/** What a stranger sends and leaves at that. */
const WITHOUT_TOKEN: Readonly<Record<string, string>> = {
  'say nothing': '',
  'send half a head': 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n',
  'were answered': get('/healthz'),
  'ask for long documents and do not read': get('/openapi.json').repeat(3),
  'send half a body': `POST /v1/vaults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
  'have a wrong token': get('/v1/vaults', 'x-api-key: wrong\r\n'),
  'send what is no request': 'nonsense\r\n\r\n',
};

interface Port {
  readonly baseUrl: string;
  readonly connectionCount: () => Promise<number>;
}

/** A connection from an address of its own; `tls` says whether the handshake is done on it. */
async function open({ baseUrl }: Port, localAddress: string, tls: boolean): Promise<Socket> {
  const port = Number(new URL(baseUrl).port);
  const socket = connect({ port, host: '127.0.0.1', localAddress, allowHalfOpen: true }).on('error', () => undefined);
  await once(socket, 'connect');
  if (!tls) return socket;
  const secure = connectTls({ socket, servername: 'localhost', ca: authority.caPem }).on('error', () => undefined);
  // Whoever is turned away gets no handshake.
  await new Promise<void>((resolve) => secure.once('secureConnect', resolve).once('close', () => resolve()));
  return secure;
}

async function ask(port: Port, localAddress: string, tls: boolean): Promise<string> {
  const socket = await open(port, localAddress, tls);
  socket.write(get('/v1/vaults', LOGIN));
  const head = await readHead(socket);
  socket.destroy();
  return head;
}

for (const tls of [false, true]) {
  const where = tls ? 'HTTPS' : 'HTTP';
  for (const [name, bytes] of Object.entries(WITHOUT_TOKEN)) {
    test(`over ${where}, connections that ${name} keep nobody out, and end no request of a token`, async (t) => {
      const port = await api.another({ connectionsMax: CONNECTIONS_MAX, ...(tls ? { tls: leaf } : {}) });
      const stream = await open(port, '127.0.0.2', tls);
      stream.write(STREAM);
      t.match(await readHead(stream), /^HTTP\/1\.1 200 /);
      const flood: Socket[] = [];
      for (let index = 0; index < 3 * CONNECTIONS_MAX; index += 1) {
        const socket = await open(port, '127.0.0.3', tls);
        socket.write(bytes);
        flood.push(socket);
      }
      for (let index = 0; index < 3; index += 1) t.match(await ask(port, '127.0.0.4', tls), /^HTTP\/1\.1 200 /);
      while ((await port.connectionCount()) > CONNECTIONS_MAX + 1) await delay(5);
      t.notOk(stream.destroyed || stream.readableEnded, 'the stream of a good token goes on');
      for (const socket of [stream, ...flood]) socket.destroy();
      while ((await port.connectionCount()) > 0) await delay(5);
    });
  }

  test(`over ${where}, live streams take no place, before and after they have ended`, async (t) => {
    const port = await api.another({ connectionsMax: 4, ...(tls ? { tls: leaf } : {}) });
    for (let round = 0; round < 2; round += 1) {
      const streams: Socket[] = [];
      for (let index = 0; index < 8; index += 1) {
        const stream = await open(port, '127.0.0.2', tls);
        stream.write(STREAM);
        t.match(await readHead(stream), /^HTTP\/1\.1 200 /);
        streams.push(stream);
      }
      const others = await Promise.all(['3', '4', '5', '6'].map((end) => open(port, `127.0.0.${end}`, tls)));
      for (const other of others) {
        other.write(get('/v1/vaults', LOGIN));
        t.match(await readHead(other), /^HTTP\/1\.1 200 /);
      }
      const late = await open(port, '127.0.0.7', tls);
      if (!late.destroyed) await new Promise((resolve) => late.resume().once('end', resolve).once('close', resolve));
      t.equal(late.bytesRead, 0, 'where nobody has two, the newcomer is turned away');
      for (const socket of [...streams, ...others, late]) socket.destroy();
      while ((await port.connectionCount()) > 0) await delay(5);
    }
  });

  test(`over ${where}, who has not sent a head in time is cut, and stays cut without closing its own side`, async () => {
    const port = await api.another({ headTimeoutMs: 200, ...(tls ? { tls: leaf } : {}) });
    const half = 'GET /healthz HTTP/1.1\r\nHost:';
    const sockets = await Promise.all(
      ['', half, get('/healthz') + half, 'nonsense\r\n\r\n'].map(async (bytes) => {
        const socket = await open(port, '127.0.0.2', tls);
        socket.write(bytes);
        return socket.resume();
      }),
    );
    // On a port that speaks TLS: neither a handshake.
    sockets.push((await open(port, '127.0.0.2', false)).resume());
    while ((await port.connectionCount()) > 0) await delay(10);
    for (const socket of sockets) socket.destroy();
  });
}

test('the Unix socket, which is the daemon user’s alone, has no such limit', async (t) => {
  const server = await api.another({ trust: 'socket', connectionsMax: 1 });
  const sockets = await Promise.all(Array.from({ length: 5 }, () => open(server, '127.0.0.2', false)));
  for (const socket of sockets) {
    socket.write(get('/v1/vaults'));
    t.match(await readHead(socket), /^HTTP\/1\.1 200 /);
  }
  for (const socket of sockets) socket.destroy();
});
