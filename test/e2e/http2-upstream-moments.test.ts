// What an HTTP/2 upstream may do at awkward moments: refuse, go away, reset, or end a response in an unusual way. The client
// gets the whole response or is told that it is not, nothing is asked twice that may have been done, and the next request
// on the origin is served.
import type { Socket } from 'node:net';
import t, { test, type Test } from 'tap';
import type { RawHeaders } from '../../proxy/exchange.ts';
import {
  createHttp1Client,
  createHttp2Client,
  type Client,
  type PlannedRequest,
  type SeenResponse,
} from '../support/exchange-peers.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  frame,
  goawayFrame,
  literalField,
  literalFields,
  resetFrame,
  serveFrames,
  STATUS_200,
  windowUpdateFrame,
} from '../support/raw-http2.ts';
import { answer, openRawServer, type RawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

type Version = '1.1' | '2';

const HOST = 'api.test';
const NO_ERROR = 0;
const INTERNAL_ERROR = 2;
const REFUSED_STREAM = 7;
const CANCEL = 8;
const HTTP_1_1_REQUIRED = 13;

const authority = createTestAuthority();
const leaf = authority.leafFor([HOST]);

const head = (id: number, flags = END_HEADERS, more: readonly (readonly [string, string])[] = []): Buffer =>
  frame(FRAME.headers, id, { flags, payload: Buffer.concat([STATUS_200, literalFields(more)]) });
const data = (id: number, text: string, flags = 0): Buffer =>
  frame(FRAME.data, id, { flags, payload: Buffer.from(text) });
const trailers = (id: number, flags = END_HEADERS | END_STREAM): Buffer =>
  frame(FRAME.headers, id, { flags, payload: literalField('x-trailer', 'last') });
const whole = (id: number): Buffer => Buffer.concat([head(id), data(id, 'ok', END_STREAM)]);

/** What comes of a request: a whole response with this body, a 502, or a response that is cut short. */
type End = { readonly body: string; readonly trailers?: RawHeaders } | 'refused' | 'cut';

interface Moment {
  /** What the upstream sends for the first request. */
  readonly first: (id: number) => readonly Buffer[];
  readonly end: End;
  /** How many times the upstream is asked, when not once; a second time is answered in full. */
  readonly asked?: number;
  /** Connections that the request and a healthy one after it need, when not one. */
  readonly connections?: number;
  /** With a body, which is never sent again. */
  readonly hasBody?: boolean;
}

const RETRIED = { end: { body: 'ok' }, asked: 2, connections: 2 } as const;

const MOMENTS: Readonly<Record<string, Moment>> = {
  'GOAWAY(NO_ERROR) before anything was processed': { first: () => [goawayFrame(0, NO_ERROR)], ...RETRIED },
  'GOAWAY with an error before anything was processed': { first: () => [goawayFrame(0, INTERNAL_ERROR)], ...RETRIED },
  'GOAWAY before anything of a request with a body was processed': {
    first: () => [goawayFrame(0, NO_ERROR)],
    end: 'refused',
    connections: 2,
    hasBody: true,
  },
  'GOAWAY(NO_ERROR) while a stream is open': {
    first: (id) => [head(id), data(id, 'o'), goawayFrame(id, NO_ERROR), data(id, 'k', END_STREAM)],
    end: { body: 'ok' },
    connections: 2,
  },
  'GOAWAY(NO_ERROR) before the head of an open stream': {
    first: (id) => [goawayFrame(id, NO_ERROR), whole(id)],
    end: { body: 'ok' },
    connections: 2,
  },
  'two GOAWAY, the first of which announces the second': {
    first: (id) => [
      goawayFrame(2 ** 31 - 1, NO_ERROR),
      head(id),
      goawayFrame(id, NO_ERROR),
      data(id, 'ok', END_STREAM),
    ],
    end: { body: 'ok' },
    connections: 2,
  },
  'GOAWAY with an error before the head of a stream that may have been processed': {
    first: (id) => [goawayFrame(id, INTERNAL_ERROR)],
    end: 'refused',
    connections: 2,
  },
  'GOAWAY with an error in mid-body': {
    first: (id) => [head(id), data(id, 'part'), goawayFrame(id, INTERNAL_ERROR)],
    end: 'cut',
    connections: 2,
  },
  REFUSED_STREAM: { first: (id) => [resetFrame(id, REFUSED_STREAM)], ...RETRIED },
  'REFUSED_STREAM for a request with a body': {
    first: (id) => [resetFrame(id, REFUSED_STREAM)],
    end: 'refused',
    hasBody: true,
  },
  ...Object.fromEntries(
    [
      ['CANCEL', CANCEL],
      ['INTERNAL_ERROR', INTERNAL_ERROR],
      ['NO_ERROR', NO_ERROR],
      ['REFUSED_STREAM too late', REFUSED_STREAM],
      ['HTTP_1_1_REQUIRED too late', HTTP_1_1_REQUIRED],
    ].flatMap(([name, value]): [string, Moment][] => {
      const code = Number(value);
      const later: [string, Moment][] = [
        [`${name} after the head`, { first: (id) => [head(id), resetFrame(id, code)], end: 'cut' }],
        [`${name} in mid-body`, { first: (id) => [head(id), data(id, 'part'), resetFrame(id, code)], end: 'cut' }],
        [
          `${name} in a body of stated length`,
          {
            first: (id) => [head(id, END_HEADERS, [['content-length', '9']]), data(id, 'part'), resetFrame(id, code)],
            end: 'cut',
          },
        ],
      ];
      if (String(name).endsWith('too late')) return later;
      return [[`${name} before the head`, { first: (id) => [resetFrame(id, code)], end: 'refused' }], ...later];
    }),
  ),
  'NO_ERROR after a whole early response': {
    first: (id) => [whole(id), resetFrame(id, NO_ERROR)],
    end: { body: 'ok' },
    hasBody: true,
  },
  'trailers only': { first: (id) => [head(id, END_HEADERS | END_STREAM, [['x-status', '5']])], end: { body: '' } },
  'trailers after a body': {
    first: (id) => [head(id), data(id, 'ok'), trailers(id)],
    end: { body: 'ok', trailers: ['x-trailer', 'last'] },
  },
  'trailers without END_STREAM': { first: (id) => [head(id), data(id, 'ok'), trailers(id, END_HEADERS)], end: 'cut' },
  'trailers twice': {
    first: (id) => [head(id), data(id, 'ok'), trailers(id, END_HEADERS), trailers(id)],
    end: 'cut',
  },
  'DATA after trailers that did not end the stream': {
    first: (id) => [head(id), data(id, 'ok'), trailers(id, END_HEADERS), data(id, 'more', END_STREAM)],
    end: 'cut',
  },
  'an empty DATA frame that ends the stream': {
    first: (id) => [head(id), data(id, ''), data(id, 'ok'), data(id, '', END_STREAM)],
    end: { body: 'ok' },
  },
  'WINDOW_UPDATE of zero on the stream': {
    first: (id) => [head(id), data(id, 'part'), windowUpdateFrame(id, 0)],
    end: 'cut',
    connections: 2,
  },
  'WINDOW_UPDATE of zero on the connection': {
    first: (id) => [head(id), data(id, 'part'), windowUpdateFrame(0, 0)],
    end: 'cut',
    connections: 2,
  },
  'less DATA than the content-length': {
    first: (id) => [head(id, END_HEADERS, [['content-length', '9']]), data(id, 'part', END_STREAM)],
    end: 'cut',
  },
  'less DATA than the content-length, and trailers': {
    first: (id) => [head(id, END_HEADERS, [['content-length', '9']]), data(id, 'part'), trailers(id)],
    end: 'cut',
  },
  'no DATA where the content-length tells of some': {
    first: (id) => [head(id, END_HEADERS | END_STREAM, [['content-length', '9']])],
    end: 'cut',
  },
  'more DATA than the content-length': {
    first: (id) => [head(id, END_HEADERS, [['content-length', '1']]), data(id, 'part', END_STREAM)],
    end: 'cut',
  },
};

const requestOf = (method: string, body = ''): PlannedRequest => ({
  method,
  target: '/',
  host: HOST,
  fields: [],
  content: { framing: body === '' ? 'none' : 'length', pieces: body === '' ? [] : [Buffer.from(body)], trailers: [] },
});

let answerStream: (socket: Socket, id: number) => void = (socket, id) => void socket.write(whole(id));
let server: RawServer;
let keyveil: TestProxy;

t.before(async () => {
  server = await openRawServer(() => undefined, {
    tls: { ...leaf, ALPNProtocols: ['h2'] },
    onConnection: (socket) => serveFrames(socket, (id) => answerStream(socket, id)),
  });
  keyveil = await openProxy(server);
});

t.teardown(async () => {
  await keyveil.close();
  await server.close();
});

function openProxy({ port }: RawServer): Promise<TestProxy> {
  return startTestProxy({
    authority,
    overrides: { [`${HOST}:443`]: port },
    policy: sessionPolicy([]),
    upstream: { probeTimes: { quietMs: 50, answerMs: 1000, intervalMs: 0 } },
  });
}

async function clientOf(version: Version, proxy = keyveil): Promise<Client> {
  if (version === '1.1') return createHttp1Client(() => proxy.tunnel(`${HOST}:443`));
  return createHttp2Client(() => proxy.tunnel(`${HOST}:443`, { ALPNProtocols: ['h2'] }));
}

/** The answer, or null when it was cut short. */
async function ask(version: Version, request: PlannedRequest, proxy = keyveil): Promise<SeenResponse | null> {
  const client = await clientOf(version, proxy);
  try {
    return await client.exchange(request);
  } catch {
    return null;
  } finally {
    client.close();
  }
}

/** Waits for its record too, which would be taken for the next one's. */
async function askHealthy(version: Version): Promise<SeenResponse | null> {
  const event = keyveil.nextEvent();
  const seen = await ask(version, requestOf('GET'));
  await event;
  return seen;
}

async function meet(t: Test, [name, moment]: readonly [string, Moment], version: Version): Promise<void> {
  const { first, end, asked = 1, connections = 1, hasBody = false } = moment;
  // A kept connection, on which more may be sent again than on a new one.
  await askHealthy(version);
  const before = server.connectionCount - 1;
  let count = 0;
  answerStream = (socket, id) => {
    count += 1;
    socket.write(count === 1 ? Buffer.concat([...first(id)]) : whole(id));
  };
  const event = keyveil.nextEvent();
  const seen = await ask(version, requestOf(hasBody ? 'POST' : 'GET', hasBody ? 'a body' : ''));
  const recorded = await event;
  if (end === 'refused') {
    t.equal(seen?.status, 502, `${name}: 502`);
    t.match(recorded, { outcome: 'failed', reason: 'upstream_protocol_error', status: 502 }, name);
  } else if (end === 'cut') {
    // Where nothing of it had been sent on yet, the client can still be told.
    t.ok(seen === null || seen.status === 502, `${name}: not a whole response`);
    t.match(recorded, { outcome: 'failed', status: seen === null ? 200 : 502 }, name);
  } else {
    t.match(seen, { status: 200, trailers: end.trailers ?? [] }, name);
    t.equal(seen?.body.toString(), end.body, name);
    t.match(recorded, { outcome: 'forwarded', status: 200 }, name);
  }
  t.equal(count, asked, `${name}: so many times the upstream was asked`);
  t.equal((await askHealthy(version))?.body.toString(), 'ok', `${name}: the next request is served`);
  t.ok(server.connectionCount - before <= connections, `${name}: no more connections than it takes`);
}

for (const version of ['1.1', '2'] as const) {
  test(`what an HTTP/2 upstream does at awkward moments, to a client of HTTP/${version}`, async (t) => {
    for (const moment of Object.entries(MOMENTS)) await meet(t, moment, version);
    t.strictSame(keyveil.log, [], 'nothing was a fault inside');
  });
}

/** What an upstream says that agrees to HTTP/2 and wants HTTP/1.1. */
const WANTS_HTTP1: Readonly<Record<string, (id: number) => Buffer>> = {
  'a reset': (id) => resetFrame(id, HTTP_1_1_REQUIRED),
  GOAWAY: (id) => goawayFrame(id, HTTP_1_1_REQUIRED),
};

for (const [name, refusal, method, body] of Object.entries(WANTS_HTTP1).flatMap(
  ([name, refusal]) =>
    [
      [name, refusal, 'GET', ''],
      [name, refusal, 'POST', ''],
      [name, refusal, 'POST', 'a body'],
    ] as const,
)) {
  const label = `${name} to a ${method}${body === '' ? '' : ' with a body'}`;
  test(`HTTP_1_1_REQUIRED in ${label}: once more by HTTP/1.1 without a body, and all after it`, async (t) => {
    let streams = 0;
    const both = await openRawServer(
      (socket, received) => {
        if (/^(?:GET|POST) [^]*\r\n\r\n/.test(received)) socket.write(answer('by HTTP/1.1', 'Connection: close\r\n'));
      },
      {
        tls: { ...leaf, ALPNProtocols: ['h2', 'http/1.1'] },
        onConnection(socket) {
          if ((socket as Socket & { alpnProtocol: string }).alpnProtocol !== 'h2') return;
          serveFrames(socket, (id) => {
            streams += 1;
            socket.write(refusal(id));
          });
        },
      },
    );
    const proxy = await openProxy(both);
    t.teardown(async () => {
      await proxy.close();
      await both.close();
    });
    const event = proxy.nextEvent();
    const seen = await ask('2', requestOf(method, body), proxy);
    if (body === '') t.equal(seen?.body.toString(), 'by HTTP/1.1');
    else t.equal(seen?.status, 502, 'a body is not sent again');
    t.match(await event, body === '' ? { outcome: 'forwarded', status: 200 } : { outcome: 'failed', status: 502 });
    t.equal(streams, 1);
    for (const request of [requestOf('GET'), requestOf('POST', 'a body')]) {
      const event = proxy.nextEvent();
      t.equal((await ask('2', request, proxy))?.body.toString(), 'by HTTP/1.1');
      t.match(await event, { outcome: 'forwarded', status: 200 });
    }
    t.equal(streams, 1, 'no more streams of HTTP/2');
    t.equal((await ask('1.1', requestOf('GET'), proxy))?.body.toString(), 'by HTTP/1.1');
    t.strictSame(proxy.log, []);
  });
}

test('HTTP_1_1_REQUIRED of an upstream that speaks HTTP/2 alone is a 502 each time', async (t) => {
  const proxy = await openProxy(server);
  t.teardown(() => proxy.close());
  answerStream = (socket, id) => void socket.write(resetFrame(id, HTTP_1_1_REQUIRED));
  for (const version of ['2', '1.1', '2'] as const) t.equal((await ask(version, requestOf('GET'), proxy))?.status, 502);
  answerStream = (socket, id) => void socket.write(whole(id));
  for (const version of ['2', '1.1'] as const) {
    t.equal((await ask(version, requestOf('GET'), proxy))?.body.toString(), 'ok', 'and is served once it answers');
  }
});

/** What an upstream does that wanted HTTP/1.1, agrees to it by ALPN, and does not speak it. */
const NO_HTTP1: Readonly<Record<string, (socket: Socket) => void>> = {
  'sends HTTP/2': (socket) => socket.write(frame(FRAME.settings, 0)),
  'sends something else': (socket) => socket.write('220 ready\r\n\r\n'),
  'says nothing': (socket) => socket.end(),
};

for (const [name, answerHttp1] of Object.entries(NO_HTTP1)) {
  test(`an upstream that wants HTTP/1.1 once, and then ${name}, is asked by HTTP/2 again at once`, async (t) => {
    let isRefusing = true;
    const both = await openRawServer((socket, received) => void (/^POST /.test(received) && answerHttp1(socket)), {
      tls: { ...leaf, ALPNProtocols: ['h2', 'http/1.1'] },
      onConnection(socket) {
        if ((socket as Socket & { alpnProtocol: string }).alpnProtocol !== 'h2') return;
        serveFrames(socket, (id) => void socket.write(isRefusing ? goawayFrame(id, HTTP_1_1_REQUIRED) : whole(id)));
      },
    });
    const proxy = await openProxy(both);
    t.teardown(async () => {
      await proxy.close();
      await both.close();
    });
    t.equal((await ask('2', requestOf('POST', 'a body'), proxy))?.status, 502);
    isRefusing = false;
    t.equal((await ask('2', requestOf('POST', 'a body'), proxy))?.status, 502, 'by HTTP/1.1, as it wanted');
    t.equal((await ask('2', requestOf('POST', 'a body'), proxy))?.body.toString(), 'ok', 'by HTTP/2');
  });
}
