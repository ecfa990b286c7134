// Floods of small messages: each turn of the event loop has a bounded share of them, whoever has how many connections.
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'tap';
import { TURN_SHARE_US } from '../../model/limits.ts';
import { hasTurn, PieceSize, waitForTurn, workInTurns, type Work } from '../../proxy/fair-turns.ts';
import { OPCODE, WebSocketFault, writeFrame } from '../../proxy/swap/websocket-frames.ts';
import { createWebSocketSwap } from '../../proxy/swap/websocket-swap.ts';
import { createWebSocketVeil } from '../../proxy/veil/websocket-veil.ts';
import { pumpFrames } from '../../proxy/websocket-pump.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const PIECE_MS = 1;

/** Takes a millisecond or more for each piece. */
function createWork(pieces: number, done: { count: number }): Work {
  let left = pieces;
  return {
    work() {
      const until = performance.now() + PIECE_MS;
      while (performance.now() < until);
      done.count += 1;
      left -= 1;
      return left > 0;
    },
  };
}

test('a session gets its share of a turn, by whatever number of works, and another is not held up', async (t) => {
  const flood = { count: 0 };
  const other = { count: 0 };
  for (let index = 0; index < 50; index += 1) waitForTurn('flood', createWork(4, flood));
  waitForTurn('other', createWork(5, other));
  t.notOk(hasTurn('flood'), 'what comes now stands in line');
  t.ok(hasTurn('third'));
  for (let turn = 1; flood.count < 200; turn += 1) {
    const before = flood.count;
    await nextTurn();
    t.ok(flood.count - before <= TURN_SHARE_US / 1000 / PIECE_MS, `${flood.count - before} pieces in a turn`);
    t.ok(other.count >= Math.min(turn - 1, 5), 'the other has a piece in each turn');
  }
  t.equal(other.count, 5);
  await nextTurn();
  t.ok(hasTurn('flood'), 'and is free again');
});

test('work that comes goes on at once while there is time, and then waits', async (t) => {
  const small = { count: 0 };
  workInTurns('small', createWork(1, small));
  t.equal(small.count, 1, 'at once');
  const long = { count: 0 };
  workInTurns('long', createWork(20, long));
  t.ok(long.count <= TURN_SHARE_US / 1000 / PIECE_MS);
  t.notOk(hasTurn('long'));
  while (long.count < 20) await nextTurn();
});

const READ_BYTES = 64 * 1024;

/** A connection that is sent to in reads as big as they come, and what was written to it. */
class Connection extends Duplex {
  written = 0;

  override _read(): void {
    // Bytes come by `push`.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.written += chunk.length;
    done();
  }
}

const rewriters = {
  'a client': () => createWebSocketSwap({ currentPlan: () => null }),
  'a client whose rules are not at hand': () => createWebSocketSwap({ currentPlan: () => Promise.resolve(null) }),
  'a server': () => createWebSocketVeil({ currentVeils: () => [] }),
};

for (const [name, createRewriter] of Object.entries(rewriters)) {
  test(`empty messages of ${name} on many connections are gone through over many turns`, async (t) => {
    const isMasked = name !== 'a server';
    const frame = writeFrame({ opcode: OPCODE.text, fin: true, isMasked, payload: [] });
    const read = Buffer.concat(Array.from({ length: READ_BYTES / frame.length }, () => frame));
    const CONNECTIONS = 16;
    const pumps = Array.from({ length: CONNECTIONS }, () => {
      const source = new Connection();
      const target = new Connection();
      const ended = pumpFrames({ source, target, rewriter: createRewriter(), sessionId: 'flood' });
      source.push(Buffer.from(read));
      source.push(null);
      return { target, ended };
    });
    const total = CONNECTIONS * read.length;
    const written = (): number => pumps.reduce((sum, { target }) => sum + target.written, 0);
    let turns = 0;
    for (; written() < total; turns += 1) await nextTurn();
    t.strictSame(await Promise.all(pumps.map(({ ended }) => ended)), Array(CONNECTIONS).fill(read.length));
    // Some 170,000 frames: no machine goes through them within one share. Steps that wait for their rules are not counted.
    if (!name.includes('not at hand')) t.ok(turns > 2, `${turns} turns`);
  });
}

test('chunks of one byte, very many of them, arrive whole both ways, and connections are used again', async (t) => {
  const authority = createTestAuthority();
  const HOST = 'api.test';
  const COUNT = 40_000;
  const chunks = '1\r\nx\r\n'.repeat(COUNT);
  let connections = 0;
  const upstream = createServer(authority.leafFor([HOST]), (request, response) => {
    let bytes = 0;
    request.on('data', (chunk: Buffer) => (bytes += chunk.length));
    request.on('end', () => {
      // Written past the runtime, which would make one chunk of them.
      const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
      response.socket?.write(
        `${head}${chunks}${bytes.toString(16).length.toString(16)}\r\n${bytes.toString(16)}\r\n0\r\n\r\n`,
      );
      response.detachSocket(response.socket as Socket);
      response.destroy();
    });
  });
  upstream.on('secureConnection', () => (connections += 1));
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const { port } = upstream.address() as AddressInfo;
  const keyveil = await startTestProxy({ authority, overrides: { [`${HOST}:443`]: port }, policy: sessionPolicy([]) });
  t.teardown(async () => {
    await keyveil.close();
    upstream.closeAllConnections();
    upstream.close();
  });
  const ask = async (): Promise<string> => {
    const socket = await keyveil.tunnel(`${HOST}:443`);
    socket.write(`POST / HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`);
    let text = '';
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      text += chunk.toString('latin1');
      if (text.endsWith('0\r\n\r\n')) break;
    }
    const body = text.slice(text.indexOf('\r\n\r\n') + 4);
    return body.replace(/[0-9a-f]+\r\n([^\r]+)\r\n/g, '$1');
  };
  const bodies = await Promise.all(Array.from({ length: 6 }, ask));
  const wanted = `${'x'.repeat(COUNT)}${COUNT.toString(16)}0\r\n\r\n`;
  for (const body of bodies) t.ok(body === wanted, `${body.length} bytes`);
  t.ok(connections <= 6);
});

test('a piece is as long as fits into the time', (t) => {
  const size = new PieceSize();
  const first = size.bytes;
  size.adapt(performance.now() - 1000);
  t.ok(size.bytes < first);
  for (let count = 0; count < 20; count += 1) size.adapt(performance.now() - 1000);
  t.ok(size.bytes >= 512, 'it goes on, however slow it is');
  for (let count = 0; count < 20; count += 1) size.adapt(performance.now() + 1000);
  t.equal(size.bytes, 64 * 1024);
  t.end();
});

test('a pump ends with its source, with its target, and with a fault', async (t) => {
  const open = (): { source: Connection; target: Connection; ended: Promise<number> } => {
    const [source, target] = [new Connection(), new Connection()];
    source.on('error', () => undefined);
    const rewriter = createWebSocketVeil({ currentVeils: () => [] });
    return { source, target, ended: pumpFrames({ source, target, rewriter, sessionId: 'one' }) };
  };
  const frame = writeFrame({ opcode: OPCODE.text, fin: true, isMasked: false, payload: [] });
  const ordered = open();
  ordered.source.push(Buffer.from(frame));
  ordered.source.push(null);
  t.equal(await ordered.ended, 2);
  t.ok(ordered.target.writableEnded);

  const gone = open();
  gone.target.destroy();
  gone.source.push(Buffer.from(frame));
  t.equal(await gone.ended, 2);

  const cut = open();
  cut.source.destroy();
  await t.rejects(cut.ended, { code: 'ERR_STREAM_PREMATURE_CLOSE' });

  const reset = open();
  reset.source.destroy(Object.assign(new Error('reset'), { code: 'ECONNRESET' }));
  await t.rejects(reset.ended, { code: 'ECONNRESET' });

  const malformed = open();
  malformed.source.push(Buffer.from([0xff, 0xff]));
  await t.rejects(malformed.ended, WebSocketFault);
  t.notOk(malformed.target.destroyed, 'the client is still to be told');
});
