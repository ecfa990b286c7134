// An upstream that fails at every stage, met by clients of both versions: what they are told, what is recorded, and that
// the next request to the same origin is served.
import type { Socket } from 'node:net';
import t, { test, type Test } from 'tap';
import { headerValue } from '../../proxy/exchange.ts';
import {
  createHttp1Client,
  createHttp2Client,
  type Client,
  type PlannedRequest,
  type SeenResponse,
} from '../support/exchange-peers.ts';
import {
  answerOk,
  overTls,
  startFaultServer,
  talking,
  type Behaviour,
  type FaultServer,
  type Talk,
} from '../support/fault-server.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  frame,
  goawayFrame,
  literalField,
  resetFrame,
  serveFrames,
  STATUS_200,
} from '../support/raw-http2.ts';
import { answer } from '../support/raw-server.ts';
import { createTestAuthority, type TestLeaf } from '../support/test-authority.ts';

const KIB = 1024;
const HOST = 'api.test';
// Long enough for a healthy request on a machine that is busy with other tests; only what stalls waits for it.
const STALL_MS = 4000;
const VEILED = { placeholder: placeholderOf('F'), value: 'a-value-that-the-veil-looks-for', hosts: [HOST] };

const authority = createTestAuthority();
const leaf = authority.leafFor([HOST]);
const now = Date.now();

/** What the client is told before a response has begun; null for a response that is cut short. */
type Told = readonly [status: number, code: string, proxyStatus: string] | null;
type Fault = readonly [name: string, behaviour: Behaviour | Frames | null, told: Told];

const REFUSED: Told = [502, 'upstream_connect_failed', 'connection_refused'];
const NO_TLS: Told = [502, 'upstream_tls_failed', 'tls_protocol_error'];
const ALERTED: Told = [502, 'upstream_tls_failed', 'tls_alert_received'];
const BAD_CERTIFICATE: Told = [502, 'upstream_tls_failed', 'tls_certificate_error'];
const BAD_PROTOCOL = [502, 'upstream_protocol_error', 'http_protocol_error'] as const satisfies Told;
const TIMED_OUT: Told = [504, 'upstream_timeout', 'http_response_timeout'];
const HANDSHAKE_TIMED_OUT: Told = [502, 'upstream_tls_failed', 'connection_timeout'];

const head = (fields: string): string => `HTTP/1.1 200 OK\r\n${fields}\r\n\r\n`;
const ends = (text: string): Behaviour => talking(leaf, (socket) => socket.end(text, 'latin1'));
/** Says it, and breaks the connection under the TLS session. */
const breaks = (text: string): Behaviour =>
  talking(leaf, (socket, _received, raw) => socket.write(text, 'latin1', () => raw.resetAndDestroy()));
const withCertificate = (certificate: TestLeaf): Behaviour => talking(certificate, answerOk);
/** Answers the ClientHello with bytes that are no ServerHello. */
const answersHello = (bytes: Buffer | string) => (socket: Socket) => void socket.once('data', () => socket.end(bytes));
const invalid = (from: number, to: number): TestLeaf =>
  authority.leafFor([HOST], { notBefore: new Date(now + from), notAfter: new Date(now + to) });

/** Says one thing without end. */
function flood(piece: string, first = ''): Talk {
  const pieces = piece.repeat(Math.ceil((64 * KIB) / piece.length));
  return (socket) => {
    const more = (): void => {
      if (socket.destroyed) return;
      if (socket.write(pieces)) setImmediate(more);
      else socket.once('drain', more);
    };
    socket.write(first);
    more();
  };
}

const CONNECTION_FAULTS: readonly Fault[] = [
  ['refuses the connection', null, REFUSED],
  ['closes at once', (socket) => socket.destroy(), NO_TLS],
  ['resets in the handshake', (socket) => void socket.once('data', () => socket.resetAndDestroy()), NO_TLS],
  ['answers the handshake in plain text', answersHello(answer('no TLS')), NO_TLS],
  ['answers the handshake with garbage', answersHello(Buffer.alloc(4 * KIB, 0x5a)), NO_TLS],
  ['answers the handshake with an alert', answersHello(Buffer.of(21, 3, 3, 0, 2, 2, 40)), ALERTED],
  ['has an expired certificate', withCertificate(invalid(-2e9, -1e9)), BAD_CERTIFICATE],
  ['has a certificate of the future', withCertificate(invalid(1e9, 2e9)), BAD_CERTIFICATE],
  ['has a certificate for another name', withCertificate(authority.leafFor(['other.test'])), BAD_CERTIFICATE],
  [
    'has a certificate of a foreign root',
    withCertificate(createTestAuthority('Foreign').leafFor([HOST])),
    BAD_CERTIFICATE,
  ],
];

const HTTP1_FAULTS: readonly Fault[] = [
  ['closes before its answer', ends(''), BAD_PROTOCOL],
  ['resets before its answer', breaks('\r\n'), BAD_PROTOCOL],
  ['dies in the status line', ends('HTTP/1.1 20'), BAD_PROTOCOL],
  ['dies in a field', breaks('HTTP/1.1 200 OK\r\nContent-Le'), BAD_PROTOCOL],
  ['dies after an interim response', ends('HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'), BAD_PROTOCOL],
  ['speaks something else', ends('SSH-2.0-OpenSSH_9.9\r\n'), BAD_PROTOCOL],
  ['sends garbage', ends('\0\x01\x02\xff'.repeat(100)), BAD_PROTOCOL],
  ['sends another version', ends('HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n'), BAD_PROTOCOL],
  ['sends a status that is no number', ends('HTTP/1.1 20x OK\r\nContent-Length: 0\r\n\r\n'), BAD_PROTOCOL],
  ['sends a head of 300 KiB', ends(head(`X: ${'x'.repeat(300 * KIB)}`)), BAD_PROTOCOL],
  ['sends 2,000 fields', ends(head(`${'X: y\r\n'.repeat(2000)}Content-Length: 0`)), BAD_PROTOCOL],
  ['sends a head without end', talking(leaf, flood('X: y\r\n', 'HTTP/1.1 200 OK\r\n')), BAD_PROTOCOL],
  ['sends interim responses without end', talking(leaf, flood('HTTP/1.1 103 Early Hints\r\n\r\n')), BAD_PROTOCOL],
  [
    'sends a length and a transfer coding',
    ends(`${head('Content-Length: 5\r\nTransfer-Encoding: chunked')}0\r\n\r\n`),
    BAD_PROTOCOL,
  ],
  ['sends two lengths', ends(`${head('Content-Length: 5\r\nContent-Length: 6')}hello!`), BAD_PROTOCOL],
  ['sends one length twice', ends(`${head('Content-Length: 5\r\nContent-Length: 5')}hello`), BAD_PROTOCOL],
  ['sends a length that is no number', ends(`${head('Content-Length: +5')}hello`), BAD_PROTOCOL],
  ['sends an unknown transfer coding', ends(`${head('Transfer-Encoding: gzip, chunked')}0\r\n\r\n`), BAD_PROTOCOL],
  ['folds a field', ends(head('X: a\r\n b\r\nContent-Length: 0')), BAD_PROTOCOL],
  ['puts a bare CR into a field', ends(head('X: a\rb\r\nContent-Length: 0')), BAD_PROTOCOL],
  [
    'switches protocols unasked',
    ends('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'),
    BAD_PROTOCOL,
  ],
  ['dies in a body of stated length', breaks(answer('x'.repeat(100_000)).slice(0, -1)), null],
  ['ends a body of stated length early', ends(answer('x'.repeat(100_000)).slice(0, -1)), null],
  ['dies in a chunk', breaks(`${head('Transfer-Encoding: chunked')}ff\r\nhello`), null],
  ['ends between two chunks', ends(`${head('Transfer-Encoding: chunked')}5\r\nhello\r\n`), null],
  ['ends in its trailers', ends(`${head('Transfer-Encoding: chunked')}5\r\nhello\r\n0\r\nX: y\r\n`), null],
  ['sends a bad chunk size', ends(`${head('Transfer-Encoding: chunked')}5\r\nhello\r\nzz\r\nx`), null],
  ['sends a chunk longer than it said', ends(`${head('Transfer-Encoding: chunked')}5\r\nhello!\r\n0\r\n\r\n`), null],
];

// ---- HTTP/2

const headers = (streamId: number, payload: Buffer, flags = END_HEADERS): Buffer =>
  frame(FRAME.headers, streamId, { flags, payload });
const data = (streamId: number, text: string, flags = 0): Buffer =>
  frame(FRAME.data, streamId, { flags, payload: Buffer.from(text) });
const INTERNAL_ERROR = 2;
const ENHANCE_YOUR_CALM = 11;
/** A field block that does not decode, on a stream that was never opened. */
const BROKEN = frame(FRAME.headers, 1001, { flags: END_HEADERS, payload: Buffer.of(0xff, 0xff, 0xff, 0xff, 0xff) });
/** `:status: 103`, a literal whose name is of the static table. */
const STATUS_103 = Buffer.concat([Buffer.of(0x08, 3), Buffer.from('103')]);

type OnRequest = (socket: Socket, streamId: number, raw: Socket) => void;

/** What is done with the requests of all HTTP/2 connections: one that had a fault in a stream goes on. */
class Frames {
  readonly onRequest: OnRequest;

  constructor(onRequest: OnRequest) {
    this.onRequest = onRequest;
  }
}

let frames = new Frames(() => undefined);
const serveRequests = overTls(
  leaf,
  (socket, raw) => serveFrames(socket, (streamId) => frames.onRequest(socket, streamId, raw)),
  'h2',
);
const framing = (onRequest: OnRequest): Frames => new Frames(onRequest);
const sends = (bytes: (streamId: number) => readonly Buffer[]): Frames =>
  framing((socket, streamId) => socket.write(Buffer.concat(bytes(streamId))));

function become(target: FaultServer, behaviour: Behaviour | Frames): void {
  if (behaviour instanceof Frames) frames = behaviour;
  target.become(behaviour instanceof Frames ? serveRequests : behaviour);
}

const HTTP2_FAULTS: readonly Fault[] = [
  ['resets the stream before its answer', sends((id) => [resetFrame(id, INTERNAL_ERROR)]), BAD_PROTOCOL],
  ['resets the stream and wants calm', sends((id) => [resetFrame(id, ENHANCE_YOUR_CALM)]), BAD_PROTOCOL],
  ['goes away with an error', sends((id) => [goawayFrame(id, INTERNAL_ERROR)]), BAD_PROTOCOL],
  ['resets the connection before its answer', framing((_socket, _id, raw) => raw.resetAndDestroy()), BAD_PROTOCOL],
  ['ends the connection before its answer', framing((socket) => socket.end()), BAD_PROTOCOL],
  ['agrees to HTTP/2 and speaks HTTP/1.1', overTls(leaf, (socket) => socket.end(answer('old')), 'h2'), BAD_PROTOCOL],
  ['sends frames of garbage', overTls(leaf, (socket) => socket.end(Buffer.alloc(64 * KIB, 0x5a)), 'h2'), BAD_PROTOCOL],
  [
    'sends a head that does not decode',
    sends((id) => [headers(id, Buffer.of(0xff, 0xff, 0xff, 0xff, 0xff))]),
    BAD_PROTOCOL,
  ],
  ['sends a head without a status', sends((id) => [headers(id, literalField('x', 'y'))]), BAD_PROTOCOL],
  ['sends DATA before its head', sends((id) => [data(id, 'x', END_STREAM)]), BAD_PROTOCOL],
  [
    'sends a head of 300 KiB',
    sends((id) => [
      headers(id, Buffer.concat([STATUS_200, ...bigFields(80)]), 0),
      ...Array.from({ length: 3 }, (_, index) =>
        frame(FRAME.continuation, id, { flags: index === 2 ? END_HEADERS : 0, payload: Buffer.concat(bigFields(80)) }),
      ),
    ]),
    BAD_PROTOCOL,
  ],
  [
    'sends long interim responses',
    framing((socket, id) => {
      const one = headers(id, Buffer.concat([STATUS_103, ...bigFields(10)]));
      for (let count = 0; count < 90; count += 1) socket.write(one);
    }),
    BAD_PROTOCOL,
  ],
  [
    'sends interim responses without end',
    framing((socket, id) => {
      const many = Buffer.concat(Array.from({ length: 1000 }, () => headers(id, STATUS_103)));
      const more = (): void => {
        if (socket.destroyed) return;
        if (socket.write(many)) setImmediate(more);
        else socket.once('drain', more);
      };
      more();
    }),
    BAD_PROTOCOL,
  ],
  [
    'resets the stream in its body',
    sends((id) => [headers(id, STATUS_200), data(id, 'x'), resetFrame(id, INTERNAL_ERROR)]),
    null,
  ],
  [
    'breaks the protocol in its body',
    framing((socket, id) => {
      socket.write(Buffer.concat([headers(id, STATUS_200), data(id, 'x')]));
      setTimeout(() => socket.write(BROKEN), 30);
    }),
    null,
  ],
  [
    'resets the stream in its body without an error',
    sends((id) => [headers(id, STATUS_200), data(id, 'x'), resetFrame(id, 0)]),
    null,
  ],
  [
    'goes away in its body and ends the connection',
    framing((socket, id) => socket.end(Buffer.concat([headers(id, STATUS_200), data(id, 'x'), goawayFrame(id, 0)]))),
    null,
  ],
  [
    'resets the connection in its body',
    framing((socket, id, raw) =>
      socket.write(Buffer.concat([headers(id, STATUS_200), data(id, 'x')]), () => raw.resetAndDestroy()),
    ),
    null,
  ],
  [
    'sends more than the length that it stated',
    sends((id) => [
      headers(id, Buffer.concat([STATUS_200, literalField('content-length', '1')])),
      data(id, 'xyz', END_STREAM),
    ]),
    null,
  ],
  [
    'sends less than the length that it stated',
    sends((id) => [
      headers(id, Buffer.concat([STATUS_200, literalField('content-length', '9')])),
      data(id, 'xyz', END_STREAM),
    ]),
    null,
  ],
  [
    'sends trailers with a pseudo-header field',
    sends((id) => [headers(id, STATUS_200), data(id, 'x'), headers(id, STATUS_200, END_HEADERS | END_STREAM)]),
    null,
  ],
];

function bigFields(count: number): Buffer[] {
  return Array.from({ length: count }, () => literalField('x', 'x'.repeat(1000)));
}

// ---- the test

type Version = '1.1' | '2';
type UpstreamVersion = 'http/1.1' | 'h2';

// Its connections serve one request each, so that the next fault meets a new one.
const HEALTHY: Readonly<Record<UpstreamVersion, Behaviour | Frames>> = {
  'http/1.1': ends(answer('ok', 'Connection: close\r\n')),
  h2: sends((id) => [headers(id, STATUS_200), data(id, 'ok', END_STREAM), goawayFrame(id, 0)]),
};

const GET: PlannedRequest = {
  method: 'GET',
  target: '/',
  host: HOST,
  fields: [],
  content: { framing: 'none', pieces: [], trailers: [] },
};

let server: FaultServer;
let keyveil: TestProxy;

t.before(async () => {
  server = await startFaultServer();
  keyveil = await startTestProxy({
    authority,
    overrides: { [`${HOST}:443`]: server.port },
    policy: sessionPolicy([]),
    settings: { responseTimeoutMs: STALL_MS },
    upstream: { tlsHandshakeTimeoutMs: STALL_MS, probeTimes: { quietMs: 50, answerMs: 1000, intervalMs: 0 } },
  });
});

t.teardown(async () => {
  await keyveil.close();
  await server.close();
});

async function clientOf(version: Version, proxy = keyveil): Promise<Client> {
  if (version === '1.1') return createHttp1Client(() => proxy.tunnel(`${HOST}:443`));
  return createHttp2Client(() => proxy.tunnel(`${HOST}:443`, { ALPNProtocols: ['h2'] }));
}

/** The answer, or null when it was cut short. */
async function ask(version: Version, proxy = keyveil): Promise<SeenResponse | null> {
  const client = await clientOf(version, proxy);
  try {
    return await client.exchange(GET);
  } catch {
    return null;
  } finally {
    client.close();
  }
}

function codeOf(seen: SeenResponse | null): string {
  const { error } = JSON.parse(seen?.body.toString() ?? '{}') as { error?: { code: string; message: string } };
  return error?.code ?? '';
}

async function meet(t: Test, fault: Fault, way: { version: Version; upstream: UpstreamVersion }): Promise<void> {
  const [name, behaviour, told] = fault;
  if (behaviour === null) await server.refuse();
  else become(server, behaviour);
  const event = keyveil.nextEvent();
  const seen = await ask(way.version);
  if (told === null && seen === null) {
    t.match(await event, { outcome: 'failed', reason: 'upstream_aborted', status: 200 }, name);
  } else {
    // What a veil still held back when the response was cut was never begun for the client.
    const [status, code, proxyStatus] = told ?? BAD_PROTOCOL;
    t.match(seen, { status }, name);
    t.equal(codeOf(seen), code, name);
    const field = headerValue(seen?.fields ?? [], 'proxy-status');
    t.equal(field, `keyveil; error=${proxyStatus}; details="${code}: ${HOST}"`, name);
    t.notMatch(seen?.body.toString(), /127\.0\.0\.1|SSH/, `${name}: neither the address nor what was sent is told`);
    t.match(await event, { outcome: 'failed', reason: code, status }, name);
  }
  if (behaviour === null) await server.listen();
  become(server, HEALTHY[way.upstream]);
  const next = keyveil.nextEvent();
  const again = await ask(way.version);
  t.equal(again?.body.toString(), 'ok', `${name}: the next request is served`);
  // The client may have the whole answer before its end is recorded.
  t.match(await next, { outcome: 'forwarded', status: 200 }, name);
}

for (const [version, upstream, faults] of [
  ['1.1', 'http/1.1', [...CONNECTION_FAULTS, ...HTTP1_FAULTS]],
  ['2', 'http/1.1', [...CONNECTION_FAULTS, ...HTTP1_FAULTS]],
  ['2', 'h2', [...CONNECTION_FAULTS, ...HTTP2_FAULTS]],
] as const) {
  for (const isVeiled of [false, true]) {
    test(`HTTP/${version} to ${upstream}${isVeiled ? ' through a veil' : ''}: each fault is told, recorded and got over`, async (t) => {
      keyveil.setPolicy(sessionPolicy(isVeiled ? [VEILED] : []));
      for (const fault of faults) await meet(t, fault, { version, upstream });
      t.strictSame(keyveil.log, []);
    });
  }
}

test('an upstream that stalls is given up after the time-out of its stage', async (t) => {
  const stalls: readonly Fault[] = [
    ['in the handshake', () => undefined, HANDSHAKE_TIMED_OUT],
    ['before its head', talking(leaf, () => undefined), TIMED_OUT],
    ['in its head', talking(leaf, (socket) => socket.write('HTTP/1.1 200 OK\r\nX: ')), TIMED_OUT],
    [
      'after an interim response',
      talking(leaf, (socket) => socket.write('HTTP/1.1 103 Early Hints\r\n\r\n')),
      TIMED_OUT,
    ],
    ['before its head, in HTTP/2', framing(() => undefined), TIMED_OUT],
    [
      'after a frame that ends the connection, in HTTP/2',
      overTls(
        leaf,
        (socket) => serveFrames(socket, (id) => socket.write(data(id, 'x', END_STREAM)), { staysOpen: true }),
        'h2',
      ),
      TIMED_OUT,
    ],
  ];
  const stall = async ([name, behaviour, told]: Fault, version: Version): Promise<void> => {
    const lonely = await startFaultServer();
    const proxy = await startTestProxy({
      authority,
      overrides: { [`${HOST}:443`]: lonely.port },
      policy: sessionPolicy([]),
      settings: { responseTimeoutMs: STALL_MS },
      upstream: { tlsHandshakeTimeoutMs: STALL_MS },
    });
    t.teardown(async () => {
      await proxy.close();
      await lonely.close();
    });
    become(lonely, behaviour as Behaviour | Frames);
    const event = proxy.nextEvent();
    const seen = await ask(version, proxy);
    const [status, code, proxyStatus] = told as NonNullable<Told>;
    t.match(seen, { status }, name);
    t.equal(codeOf(seen), code, name);
    t.match(headerValue(seen?.fields ?? [], 'proxy-status'), proxyStatus, name);
    t.match(await event, { outcome: 'failed', reason: code, status }, name);
    become(lonely, HEALTHY[name.endsWith('HTTP/2') ? 'h2' : 'http/1.1']);
    t.equal((await ask(version, proxy))?.body.toString(), 'ok', name);
  };
  await Promise.all(
    stalls.flatMap((fault) =>
      (fault[0].endsWith('HTTP/2') ? ['2'] : ['1.1', '2']).map((version) => stall(fault, version as Version)),
    ),
  );
});

const withMethod = (method: string, body = ''): PlannedRequest => ({
  ...GET,
  method,
  content:
    body === ''
      ? { framing: 'none', pieces: [], trailers: [] }
      : { framing: 'length', pieces: [Buffer.from(body)], trailers: [] },
});

test('a kept connection that closes as the next request comes: sent again where nothing can have been done', async (t) => {
  keyveil.setPolicy(sessionPolicy([]));
  const cases: readonly (readonly [request: PlannedRequest, isRetried: boolean])[] = [
    [withMethod('GET'), true],
    [withMethod('HEAD'), true],
    [withMethod('OPTIONS'), true],
    [withMethod('PUT'), true],
    [withMethod('DELETE'), true],
    [withMethod('POST'), false],
    [withMethod('PATCH'), false],
    [withMethod('PUT', 'a body that is gone'), false],
    [withMethod('GET', 'a body that is gone'), false],
  ];
  for (const version of ['1.1', '2'] as const) {
    for (const [request, isRetried] of cases) {
      const label = `${version} ${request.method}${request.content.framing === 'none' ? '' : ' with a body'}`;
      const client = await clientOf(version);
      // The first request of each connection is answered, the second finds it closed.
      server.become(
        talking(leaf, (socket, received) => {
          const heads = received.split('\r\n\r\n').length - 1;
          if (heads === 1 && received.endsWith('\r\n\r\n'))
            socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
          else if (heads > 1) socket.destroy();
        }),
      );
      t.match(await client.exchange(GET), { status: 200 }, label);
      const before = server.connectionCount;
      const seen = await client.exchange(request);
      t.equal(seen.status, isRetried ? 200 : 502, label);
      if (!isRetried) t.equal(codeOf(seen), 'upstream_protocol_error', label);
      t.equal(server.connectionCount - before, isRetried ? 1 : 0, `${label}: connections that were made for it`);
      // Where the new connection closes too, that is told: it may have processed the request.
      server.become(ends(''));
      const fresh = await clientOf(version);
      if (isRetried) t.match(await fresh.exchange(request), { status: 502 }, label);
      else t.equal((await fresh.exchange(GET)).status, 502, label);
      t.equal(server.connectionCount - before, isRetried ? 2 : 1, `${label}: one try on a new connection`);
      client.close();
      fresh.close();
    }
  }
});
