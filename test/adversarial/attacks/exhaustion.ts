// Attacks that want the daemon to wait, to keep, or to compute without end.
import type { Socket } from 'node:net';
import { connect as connectTcp } from 'node:net';
import { gzipSync } from 'node:zlib';
import { readAnswer, type AttackCase, type AttackClass } from '../../support/adversary.ts';
import { PLANE_LIMITS, type PlaneScene } from '../../support/adversary-plane.ts';
import {
  frame,
  FRAME,
  literalField,
  resetFrame,
  STATUS_200,
  END_HEADERS,
  END_STREAM,
} from '../../support/raw-http2.ts';
import { readAll } from '../../support/daemon.ts';

const CLOSED = /^$/;
const KIB = 1024;
const MIB = 1024 * KIB;
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

type Attack = AttackCase<PlaneScene>;

/** A request inside the tunnel; one answer. */
function inside(name: string, expected: RegExp, bytes: (scene: PlaneScene) => string | Buffer): Attack {
  return {
    name,
    expected,
    async attack(scene) {
      const request = bytes(scene);
      const tls = await scene.tunnel();
      const answer = readAnswer(tls);
      tls.write(request);
      return answer;
    },
  };
}

/** Sends a byte now and then until the other side has had enough. */
async function trickle(socket: Socket, byte: string): Promise<string> {
  const answer = readAll(socket);
  const timer = setInterval(() => socket.writable && socket.write(byte), 50);
  try {
    return await answer;
  } finally {
    clearInterval(timer);
  }
}

/** GOAWAY (RFC 9113 section 6.8): after it the connection is good for nothing. */
const GOAWAY = /\x07\0\0\0\0\0[^]{8}/;

/** Frames over HTTP/2; `closed` when they ended the connection, or `open` when what came behind is answered. */
function frames(name: string, expected: RegExp, bytes: () => Buffer): Attack {
  return {
    name,
    expected,
    async attack(scene) {
      const tls = await scene.tunnel('h2');
      let text = '';
      tls.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
      const closed = new Promise<string>((resolve) => {
        tls.on('data', () => GOAWAY.test(text) && resolve('closed'));
        tls.once('close', () => resolve('closed'));
      });
      tls.write(Buffer.concat([PREFACE, frame(FRAME.settings, 0), bytes()]));
      // An answer to this PING tells that all before it was taken.
      const ping = Buffer.from('lastping');
      tls.write(frame(6, 0, { payload: ping }));
      const taken = new Promise<string>((resolve) => {
        tls.on('data', () => text.includes('lastping') && resolve('open'));
      });
      const state = await Promise.race([closed, taken]);
      tls.destroy();
      return state;
    },
  };
}

const many = (count: number, piece: (index: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, index) => piece(index)));
/** `:method: GET`, `:scheme: https`, `:path: /`, `:authority: api.test` in HPACK (RFC 7541). */
const GET = Buffer.concat([Buffer.from([0x82, 0x87, 0x84, 0x41, 8]), Buffer.from('api.test')]);

/** A WebSocket that was opened, and what it sends then. */
function webSocket(name: string, expected: RegExp, bytes: () => Buffer): Attack {
  return {
    name,
    expected,
    async attack(scene) {
      const tls = await scene.tunnel();
      const fields = 'Host: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13';
      tls.write(`GET / HTTP/1.1\r\n${fields}\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`);
      let text = '';
      const answer = new Promise<string>((resolve) => {
        tls.on('data', (chunk: Buffer) => {
          const isFirst = !text.includes('\r\n\r\n');
          text += chunk.toString('latin1');
          if (isFirst && text.includes('\r\n\r\n')) tls.write(bytes());
        });
        tls.on('close', () => resolve(text.slice(text.indexOf('\r\n\r\n') + 4)));
      });
      return answer;
    },
  };
}

/** Close frames with the codes 1002 and 1009 (RFC 6455 section 7.4.1). */
const PROTOCOL_ERROR = /^\x88\x02\x03\xea$/;
const TOO_BIG = /^\x88\x02\x03\xf1$/;

/** For a scene with short times. */
export const SLOWNESS: AttackClass<PlaneScene> = {
  name: 'slowness',
  cases: [
    {
      name: 'a socket that says nothing',
      expected: CLOSED,
      attack: ({ proxy }) => readAll(connectTcp(proxy.port, '127.0.0.1')),
    },
    {
      name: 'a CONNECT that comes byte by byte',
      expected: CLOSED,
      attack: ({ proxy }) => {
        const socket = connectTcp(proxy.port, '127.0.0.1');
        socket.write('CONNECT api.test:443 HTTP/1.1\r\nX-A: ');
        return trickle(socket, 'a');
      },
    },
    {
      name: 'a tunnel that says nothing',
      expected: CLOSED,
      attack: async ({ proxy }) => readAll((await proxy.connect('api.test:443')).socket),
    },
    {
      name: 'half a hello',
      expected: CLOSED,
      attack: async ({ proxy }) => {
        const { socket } = await proxy.connect('api.test:443');
        socket.write(Buffer.from([0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3]));
        return readAll(socket);
      },
    },
    {
      name: 'a hello that comes byte by byte',
      expected: CLOSED,
      attack: async ({ proxy }) => {
        const { socket } = await proxy.connect('api.test:443');
        socket.write(Buffer.from([0x16, 3, 1, 0x3f, 0, 1, 0, 0x3e, 0xfc, 3]));
        return trickle(socket, '\x03');
      },
    },
    {
      name: 'a head that comes byte by byte',
      expected: CLOSED,
      attack: async (scene) => {
        const tls = await scene.tunnel();
        tls.write('GET / HTTP/1.1\r\nHost: api.test\r\nX-A: ');
        return trickle(tls, 'a');
      },
    },
  ],
};

export const EXHAUSTION: AttackClass<PlaneScene> = {
  name: 'resource exhaustion',
  cases: [
    {
      name: 'more silent sockets than there is room for',
      // The oldest of them make room.
      expected: /^$/,
      async attack({ proxy }) {
        const sockets = Array.from({ length: PLANE_LIMITS.unauthenticatedSocketsMax * 3 }, () =>
          connectTcp(proxy.port, '127.0.0.1'),
        );
        const first = await Promise.race(sockets.map((socket) => readAll(socket)));
        for (const socket of sockets) socket.destroy();
        return first;
      },
    },
    {
      name: 'one tunnel too many',
      expected: /^HTTP\/1\.1 503 [^]*"code":"overloaded"/,
      async attack({ proxy }) {
        const open = await Promise.all(
          Array.from({ length: PLANE_LIMITS.tunnelsPerSessionMax }, () => proxy.tunnel('api.test:443')),
        );
        const { socket, head } = await proxy.connect('api.test:443');
        const answer = head + (await readAll(socket));
        for (const tls of open) tls.destroy();
        while (proxy.proxy.tunnelCount > 0) await new Promise((resolve) => setTimeout(resolve, 10));
        return answer;
      },
    },
    inside(
      'a field of 70 KB',
      /^HTTP\/1\.1 431 /,
      () => `GET / HTTP/1.1\r\nHost: api.test\r\nX-A: ${'x'.repeat(70_000)}\r\n\r\n`,
    ),
    inside(
      '70 KB in small fields',
      /^HTTP\/1\.1 431 /,
      () =>
        `GET / HTTP/1.1\r\nHost: api.test\r\n${'X-A: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab\r\n'.repeat(1000)}\r\n`,
    ),
    inside(
      '1,100 fields',
      /^HTTP\/1\.1 431 /,
      () => `GET / HTTP/1.1\r\nHost: api.test\r\n${'A: b\r\n'.repeat(1100)}\r\n`,
    ),
    inside(
      'a target of 20 KB',
      /^HTTP\/1\.1 431 [^]*"code":"header_too_large"/,
      () => `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: api.test\r\n\r\n`,
    ),
    inside(
      'a chunk extension of 100 KB',
      CLOSED,
      () =>
        `POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(100_000)}\r\na\r\n0\r\n\r\n`,
    ),
    inside(
      'trailers of 100 KB',
      CLOSED,
      () =>
        `POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${`X-A: ${'x'.repeat(1000)}\r\n`.repeat(100)}\r\n`,
    ),
    inside(
      '200,000 placeholders that grow too much',
      /^HTTP\/1\.1 413 [^]*"code":"swap_too_large"/,
      ({ longPlaceholder }) => {
        const body = longPlaceholder.repeat(200_000);
        return `POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: ${String(body.length)}\r\n\r\n${body}`;
      },
    ),
    {
      ...inside('200,000 placeholders', /^HTTP\/1\.1 200 /, ({ placeholder }) => {
        const body = placeholder.repeat(200_000);
        return `POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: ${String(body.length)}\r\n\r\n${body}`;
      }),
      arrives: 1,
    },
    {
      ...inside('200,000 beginnings of a placeholder', /^HTTP\/1\.1 200 /, () => {
        const body = 'kvph_'.repeat(200_000);
        return `POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nContent-Length: ${String(body.length)}\r\n\r\n${body}`;
      }),
      arrives: 1,
    },
    inside(
      'fields that grow beyond the limit',
      /^HTTP\/1\.1 431 /,
      ({ longPlaceholder }) => `GET / HTTP/1.1\r\nHost: api.test\r\nX-A: ${longPlaceholder.repeat(1500)}\r\n\r\n`,
    ),
    inside('a body that inflates beyond 1 GiB', /^HTTP\/1\.1 400 [^]*"code":"bad_request"/, () => {
      const member = gzipSync(Buffer.alloc(64 * MIB));
      const body = Buffer.concat(Array.from({ length: 18 }, () => member));
      const head = `POST / HTTP/1.1\r\nHost: api.test\r\nContent-Encoding: gzip\r\nContent-Length: ${String(body.length)}\r\n\r\n`;
      return Buffer.concat([Buffer.from(head), body]);
    }),
    webSocket('a frame that claims 4 EiB', TOO_BIG, () =>
      Buffer.from([0x81, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]),
    ),
    webSocket('a frame whose length has its first bit', PROTOCOL_ERROR, () =>
      Buffer.from([0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]),
    ),
    webSocket('a ping that is too long', PROTOCOL_ERROR, () =>
      Buffer.from([0x89, 0xfe, 0, 200, 1, 2, 3, 4, ...Buffer.alloc(200)]),
    ),
    webSocket('a frame without a mask', PROTOCOL_ERROR, () => Buffer.from([0x81, 5, ...Buffer.from('hello')])),
    webSocket('a compressed frame that nobody agreed on', PROTOCOL_ERROR, () =>
      Buffer.from([0xc1, 0x85, 0, 0, 0, 0, ...Buffer.from('hello')]),
    ),
    webSocket('a continuation of nothing', PROTOCOL_ERROR, () =>
      Buffer.from([0x80, 0x85, 0, 0, 0, 0, ...Buffer.from('hello')]),
    ),
    frames('5,000 streams that are reset at once', /^closed$/, () =>
      many(5000, (index) =>
        Buffer.concat([
          frame(FRAME.headers, 2 * index + 1, { flags: END_HEADERS | END_STREAM, payload: GET }),
          resetFrame(2 * index + 1, 8),
        ]),
      ),
    ),
    frames('a header block that never ends', /^closed$/, () =>
      Buffer.concat([
        frame(FRAME.headers, 1, { payload: GET }),
        many(400, () => frame(9, 1, { payload: literalField('x-a', 'x'.repeat(120)) }).subarray(0)),
        many(2000, () => frame(9, 1)),
      ]),
    ),
    frames('a header block of 200 KB', /^closed$/, () =>
      Buffer.concat([
        frame(FRAME.headers, 1, { payload: GET }),
        ...Array.from({ length: 16 }, (_, index) =>
          frame(9, 1, {
            flags: index === 15 ? END_HEADERS : 0,
            payload: many(96, () => literalField('x-a', 'x'.repeat(120))),
          }),
        ),
      ]),
    ),
    frames('20,000 pings', /^closed$/, () => many(20_000, () => frame(6, 0, { payload: Buffer.alloc(8) }))),
    frames('10,000 settings', /^closed$/, () => many(10_000, () => frame(FRAME.settings, 0))),
    frames('data before a head', /^closed$/, () => frame(0, 1, { payload: Buffer.alloc(100) })),
    frames('a response for a request', /^open$/, () =>
      frame(FRAME.headers, 1, { flags: END_HEADERS | END_STREAM, payload: STATUS_200 }),
    ),
    frames('a window that overflows', /^closed$/, () =>
      many(2, () => frame(8, 0, { payload: Buffer.from([0x7f, 0xff, 0xff, 0xff]) })),
    ),
    frames('a frame that is larger than was agreed', /^closed$/, () => frame(0, 1, { payload: Buffer.alloc(20_000) })),
  ],
};
