// A reply without an HTTP server: complete when all of it has been taken by the connection, and never else.
import { Duplex } from 'node:stream';
import t from 'tap';
import { KeyveilError } from '../../model/errors.ts';
import { DirectReply } from '../../proxy/direct-reply.ts';
import type { ResponseHead } from '../../proxy/exchange.ts';

const HEAD: ResponseHead = {
  status: 200,
  reason: 'OK',
  headers: ['Content-Length', '2'],
  httpVersion: '1.1',
  body: { kind: 'length', bytes: 2 },
};

interface Scene {
  readonly reply: DirectReply;
  readonly socket: Duplex;
  /** What the connection took. */
  readonly taken: () => string;
  /** What the reply has told: finish, abort, over. */
  readonly told: string[];
  /** Lets the connection take what waits, and all that follows. */
  readonly open: () => void;
}

function openScene({ isHead = false, isBlocked = false } = {}): Scene {
  let text = '';
  let blocked: (() => void) | null = null;
  const told: string[] = [];
  const socket = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString('latin1');
      if (isBlocked) blocked = done;
      else setImmediate(done);
    },
  });
  const reply = new DirectReply(socket, { isHead, onOver: () => told.push('over') });
  reply.onFinish = () => told.push('finish');
  reply.onAbort = () => told.push('abort');
  socket.on('close', () => reply.close());
  const open = (): void => {
    isBlocked = false;
    blocked?.();
  };
  return { reply, socket, taken: () => text, told, open };
}

async function turns(count = 6): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

void t.test('a whole answer leaves in one piece and is complete once it is taken', async (t) => {
  const { reply, taken, told, open } = openScene({ isBlocked: true });
  reply.head(HEAD);
  reply.data(Buffer.from('ok'));
  reply.end([]);
  t.strictSame([taken(), told], ['', []], 'nothing leaves before the end of the turn');
  await turns();
  t.equal(taken(), 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  t.strictSame(told, []);
  open();
  await turns();
  t.strictSame(told, ['finish', 'over']);
});

void t.test('what a closed connection did not take is no answer', async (t) => {
  const ways: Readonly<Record<string, (scene: Scene) => void>> = {
    'gone before the head': ({ socket, reply }) => {
      socket.destroy();
      reply.head(HEAD);
      reply.data(Buffer.from('ok'));
      reply.end([]);
    },
    'gone before the data': ({ socket, reply }) => {
      reply.head(HEAD);
      socket.destroy();
      reply.data(Buffer.from('ok'));
      reply.end([]);
    },
    'ended before the turn does': ({ socket, reply }) => {
      reply.head(HEAD);
      reply.data(Buffer.from('ok'));
      reply.end([]);
      socket.end();
      setImmediate(() => setImmediate(() => socket.destroy()));
    },
    'given up': ({ reply }) => {
      reply.head(HEAD);
      reply.data(Buffer.from('o'));
      reply.error();
    },
  };
  for (const [what, way] of Object.entries(ways)) {
    const scene = openScene();
    way(scene);
    await turns();
    t.strictSame(scene.told, ['abort'], what);
  }
});

void t.test('an answer that was taken stays complete when its client has closed its side', async (t) => {
  const { reply, socket, told } = openScene();
  reply.head(HEAD);
  reply.data(Buffer.from('ok'));
  await turns(1);
  socket.end();
  reply.end([]);
  await turns();
  socket.destroy();
  await turns();
  t.strictSame(told, ['finish', 'over']);
});

void t.test('what has no body gets none', async (t) => {
  const headless = openScene({ isHead: true });
  headless.reply.head(HEAD);
  t.equal(headless.reply.data(Buffer.from('ok')), true);
  headless.reply.end([]);
  const empty = openScene();
  empty.reply.head({ ...HEAD, headers: ['Trailer', 'X-A', 'X-B', '1'], body: { kind: 'none' } });
  empty.reply.end([]);
  await turns();
  t.equal(headless.taken(), 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n');
  t.equal(empty.taken(), 'HTTP/1.1 200 OK\r\nX-B: 1\r\nContent-Length: 0\r\n\r\n');
  t.strictSame(
    [headless.told, empty.told],
    [
      ['finish', 'over'],
      ['finish', 'over'],
    ],
  );
});

void t.test('a body that is not read stops its source, until there is room', async (t) => {
  const { reply, taken, told, open } = openScene({ isBlocked: true });
  const drains: number[] = [];
  reply.onDrain = () => drains.push(1);
  reply.head({ ...HEAD, headers: [], body: { kind: 'stream' } });
  let written = 0;
  while (written < 100 && reply.data(Buffer.alloc(8192, 'x'))) written += 1;
  t.ok(written > 2 && written < 40, `${written} pieces of 8 KiB before it stopped`);
  open();
  await turns(100);
  reply.drain();
  t.strictSame([drains, reply.data(Buffer.from('last'))], [[1], true]);
  reply.end(['X-T', 'end']);
  await turns();
  const size = (written + 1) * 8192;
  t.match(taken(), /4\r\nlast\r\n0\r\nX-T: end\r\n\r\n$/);
  t.equal(taken().match(/x/g)?.length, size);
  t.strictSame(told, ['finish', 'over']);
});

void t.test('no field breaks out of its line', (t) => {
  const lines = [
    { headers: ['X-A', 'a\r\nX-B: b'] },
    { headers: ['X-A\r\nX-B', 'b'] },
    { headers: ['', 'b'] },
    { headers: ['X A', 'b'] },
    { headers: ['X-A', 'a\0'] },
    { headers: ['X-A', '\u0100'] },
    { reason: 'OK\r\nX-B: b' },
  ];
  for (const line of lines) {
    const { reply } = openScene();
    t.throws(() => reply.head({ ...HEAD, ...line }), { code: 'upstream_protocol_error' }, JSON.stringify(line));
    t.throws(() => reply.information(103, line.reason ?? 'Hints', line.headers ?? []), KeyveilError);
    t.equal(reply.started, false);
  }
  t.end();
});
