// What an HTTP/2 client in a tunnel sees frame by frame, which Node's own client does not show.
import type { RequestListener } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { test, type Test } from 'tap';
import { startTestDaemon } from '../support/daemon.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';

const DATA = 0;
const HEADERS = 1;
const RST_STREAM = 3;
const SETTINGS = 4;
const END_STREAM = 1;
const END_HEADERS = 4;

interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
}

function frame(type: number, flags: number, rest: { stream: number; payload: Buffer }): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(rest.payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(rest.stream, 5);
  return Buffer.concat([head, rest.payload]);
}

/** HPACK without compression: each field a literal with a new name (RFC 7541 section 6.2.2). */
function fields(list: readonly (readonly [string, string])[]): Buffer {
  const text = (value: string): Buffer => Buffer.concat([Buffer.of(value.length), Buffer.from(value)]);
  return Buffer.concat(list.map(([name, value]) => Buffer.concat([Buffer.of(0), text(name), text(value)])));
}

/** Reads frames until one of them is the last. */
async function readFrames(socket: TLSSocket, isLast: (frame: Frame) => boolean): Promise<Frame[]> {
  const frames: Frame[] = [];
  let held = Buffer.alloc(0) as Buffer;
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('The connection was closed.')));
    socket.on('data', (chunk: Buffer) => {
      held = Buffer.concat([held, chunk]);
      while (held.length >= 9 && held.length >= 9 + held.readUIntBE(0, 3)) {
        const next = { type: held[3] as number, flags: held[4] as number, stream: held.readUInt32BE(5) };
        held = held.subarray(9 + held.readUIntBE(0, 3));
        frames.push(next);
        if (isLast(next)) resolve(frames);
      }
    });
  });
}

interface Scene {
  readonly tls: TLSSocket;
  /** Begins a request; `ends` says that it has no body. */
  readonly ask: (stream: number, method: string, ends: boolean) => void;
}

async function openScene(t: Test, listener?: RequestListener): Promise<Scene> {
  const authority = createTestAuthority();
  const leaf = authority.leafFor(['api.test']);
  const api = await startUpstream({ leaf, ...(listener === undefined ? {} : { listener }) });
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': api.port } });
  const session = await keyveil.createSession({ vault_ids: [] });
  const tls = await keyveil.tunnel(session, 'api.test:443', { ALPNProtocols: ['h2'] });
  t.teardown(async () => {
    tls.destroy();
    await keyveil.close();
    await api.close();
  });
  tls.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  tls.write(frame(SETTINGS, 0, { stream: 0, payload: Buffer.alloc(0) }));
  return {
    tls,
    ask(stream, method, ends) {
      const payload = fields([
        [':method', method],
        [':scheme', 'https'],
        [':authority', 'api.test'],
        [':path', '/'],
      ]);
      tls.write(frame(HEADERS, (ends ? END_STREAM : 0) | END_HEADERS, { stream, payload }));
    },
  };
}

function endsStream({ type, flags }: Frame): boolean {
  return (type === DATA || type === HEADERS) && (flags & END_STREAM) !== 0;
}

test('a stream that both sides have ended is not reset', async (t) => {
  const { tls, ask } = await openScene(t);
  ask(1, 'GET', true);
  // The second request goes when the first has been answered, so that what follows that answer has come before its own.
  const frames = await readFrames(tls, (next) => {
    if (endsStream(next) && next.stream === 1) ask(3, 'GET', true);
    return (endsStream(next) && next.stream === 3) || next.type === RST_STREAM;
  });
  t.same(
    frames.filter(({ type }) => type === RST_STREAM),
    [],
  );
  t.equal(frames.filter(endsStream).length, 2);
});

test('an answer before the end of the request comes whole, and then the request is cut short', async (t) => {
  const { tls, ask } = await openScene(t, (_request, response) => {
    response.end('enough');
  });
  ask(1, 'POST', false);
  const frames = await readFrames(tls, ({ type }) => type === RST_STREAM);
  const own = frames.filter(({ stream }) => stream === 1);
  t.equal(own.findIndex(endsStream), own.length - 2, 'END_STREAM comes before RST_STREAM');
});
