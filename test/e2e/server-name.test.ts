// The server name of a handshake, however its ClientHello comes: whole, or in pieces that tell the name too late.
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { Socket } from 'node:net';
import { test } from 'tap';
import { readAll } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { answer, openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const TARGET = 'api.test:443';
/** Bytes of the hello that come first: none of it, its record's header, a part before the name, all but the last byte. */
const FIRST_BYTES = [null, 1, 5, 60, -1];

/** The same connection, of which the first write is sent in two. */
function inPieces(socket: Socket, firstBytes: number): Duplex {
  let isFirst = true;
  const pieces = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      if (!isFirst) return void socket.write(chunk, done);
      isFirst = false;
      socket.write(chunk.subarray(0, firstBytes));
      setTimeout(() => socket.write(chunk.subarray(firstBytes), done), 30);
    },
  });
  socket.on('data', (chunk: Buffer) => pieces.push(chunk)).resume();
  socket.on('end', () => pieces.push(null));
  socket.on('close', () => pieces.destroy());
  return pieces;
}

test('the tunnel is served for its own name alone, whole or in pieces', async (t) => {
  const authority = createTestAuthority();
  const leaf = authority.leafFor(['api.test']);
  const upstream = await openRawServer((socket) => socket.end(answer('served', 'Connection: close\r\n')), {
    tls: leaf,
  });
  const keyveil = await startTestProxy({
    authority,
    overrides: { [TARGET]: upstream.port },
    policy: sessionPolicy([]),
  });
  t.teardown(async () => {
    await keyveil.close();
    await upstream.close();
  });
  const open = async (servername: string, firstBytes: number | null): Promise<string> => {
    const { socket } = await keyveil.connect(TARGET);
    const carrier = firstBytes === null ? socket : inPieces(socket, firstBytes);
    const tls = connectTls({ socket: carrier, servername, ca: keyveil.caPem, checkServerIdentity: () => undefined });
    tls.on('error', () => undefined);
    tls.write(`GET / HTTP/1.1\r\nHost: ${TARGET}\r\nConnection: close\r\n\r\n`);
    const text = await readAll(tls);
    socket.destroy();
    return text;
  };
  for (const firstBytes of FIRST_BYTES) {
    for (const name of ['api.test', 'API.Test', '']) {
      t.match(await open(name, firstBytes), /^HTTP\/1\.1 200 [^]*served$/, `${name} ${firstBytes}`);
    }
    for (const name of ['evil.test', 'api.test.evil.test', 'xapi.test']) {
      const event = keyveil.nextEvent();
      t.equal(await open(name, firstBytes), '', `${name} ${firstBytes}`);
      t.match(await event, { scheme: 'tunnel', host: 'api.test', outcome: 'refused', reason: 'sni_mismatch' });
    }
  }
});
