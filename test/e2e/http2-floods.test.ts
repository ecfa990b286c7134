// Floods over HTTP/2: each ends with its connection, takes no memory, and leaves the session's other connections alone.
import t, { test, type Test } from 'tap';
import { startDaemonProcess, type DaemonProcess } from '../support/daemon-process.ts';
import type { TestSession } from '../support/operator.ts';
import {
  ACK,
  END_HEADERS,
  FRAME,
  frame,
  literalField,
  RawHttp2Client,
  requestFields,
  requestFrame,
  resetFrame,
  windowUpdateFrame,
} from '../support/raw-http2.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const MIB = 1024 * 1024;
/** What a flood of some megabytes may leave behind, with the noise of a collector that has not run yet. */
const GROWTH_BYTES_MAX = 48 * MIB;
const FRAMES = 20_000;
const FRAMES_PER_WRITE = 50;
const INTERNAL_ERROR = 2;
const CANCEL = 8;
const ENHANCE_YOUR_CALM = 11;

let upstream: TestUpstream;
let upstreamConnections = 0;
let keyveil: DaemonProcess;
let session: TestSession;

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startUpstream({ leaf: authority.leafFor([HOST]) });
  upstream.server.on('connection', () => (upstreamConnections += 1));
  keyveil = await startDaemonProcess({ authority, overrides: { [HOST]: upstream.port } });
  session = await keyveil.createSession({ vault_ids: [] });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

async function openClient(): Promise<RawHttp2Client> {
  return new RawHttp2Client(await keyveil.tunnel(session, `${HOST}:443`, { ALPNProtocols: ['h2'] }));
}

/** Frames in writes of some of them, made from their number. */
function* many(frameOf: (index: number) => Buffer): Generator<Buffer, void> {
  for (let from = 0; from < FRAMES; from += FRAMES_PER_WRITE) {
    yield Buffer.concat(Array.from({ length: FRAMES_PER_WRITE }, (_, index) => frameOf(from + index)));
  }
}

const openPost = (streamId: number): Buffer =>
  frame(FRAME.headers, streamId, { flags: END_HEADERS, payload: requestFields(HOST, [], 'POST') });
const idOf = (index: number): number => 2 * index + 1;
const PING = frame(FRAME.ping, 0, { payload: Buffer.alloc(8) });
const SETTINGS = frame(FRAME.settings, 0);

interface End {
  readonly code: number;
  readonly reason: string;
}

const FLOOD: End = { code: ENHANCE_YOUR_CALM, reason: 'http2_flood' };
const MALFORMED: End = { code: INTERNAL_ERROR, reason: 'malformed_frame' };

interface Flood {
  readonly name: string;
  /** Sent before the flood. */
  readonly first?: Buffer;
  readonly frameOf: (index: number) => Buffer;
  /** What is said by the GOAWAY, and in the audit log: the daemon's own count, or the runtime's. */
  readonly ends: readonly End[];
  /** Requests and connections that the upstream may see. */
  readonly upstreamMax: number;
}

const FLOODS: readonly Flood[] = [
  {
    name: 'rapid reset',
    frameOf: (index) => Buffer.concat([requestFrame(idOf(index), HOST), resetFrame(idOf(index), CANCEL)]),
    ends: [FLOOD],
    // The allowance, and what it gets back while the machine is busy.
    upstreamMax: 512 + 64 * 60,
  },
  {
    name: 'CONTINUATION frames without an end',
    first: frame(FRAME.headers, 1, { payload: requestFields(HOST) }),
    frameOf: () => frame(FRAME.continuation, 1, { payload: literalField('a', 'b') }),
    ends: [MALFORMED],
    upstreamMax: 0,
  },
  {
    name: 'empty CONTINUATION frames without an end',
    first: frame(FRAME.headers, 1, { payload: requestFields(HOST) }),
    frameOf: () => frame(FRAME.continuation, 1),
    ends: [MALFORMED],
    upstreamMax: 0,
  },
  // Where many are read at once, the runtime's bound of answers that are not yet sent comes first.
  { name: 'PING', frameOf: () => PING, ends: [FLOOD, MALFORMED], upstreamMax: 0 },
  {
    name: 'answers to a PING that was not sent',
    frameOf: () => frame(FRAME.ping, 0, { flags: ACK, payload: Buffer.alloc(8) }),
    ends: [MALFORMED],
    upstreamMax: 0,
  },
  { name: 'SETTINGS', frameOf: () => SETTINGS, ends: [FLOOD, MALFORMED], upstreamMax: 0 },
  {
    name: 'acknowledgements of SETTINGS that were not sent',
    frameOf: () => frame(FRAME.settings, 0, { flags: ACK }),
    ends: [MALFORMED],
    upstreamMax: 0,
  },
  {
    name: 'empty DATA frames',
    first: openPost(1),
    frameOf: () => frame(FRAME.data, 1),
    ends: [MALFORMED],
    upstreamMax: 1,
  },
  {
    name: 'malformed requests',
    frameOf: (index) => requestFrame(idOf(index), HOST, [['X-Upper', 'a']]),
    ends: [MALFORMED],
    upstreamMax: 0,
  },
  {
    name: 'streams beyond the limit',
    frameOf: (index) => openPost(idOf(index)),
    ends: [MALFORMED],
    upstreamMax: 256,
  },
];

/** A request of the same session on a connection of its own. */
async function requireServed(t: Test): Promise<void> {
  const client = await openClient();
  client.send(requestFrame(1, HOST, [['x-after', 'flood']]));
  t.ok(await client.find(({ type, streamId }) => type === FRAME.headers && streamId === 1), 'the session is served');
  client.socket.destroy();
  t.equal(upstream.received.at(-1)?.header('x-after'), 'flood');
}

/** Tunnels that were closed for the reasons, so far. */
async function closedFor(ends: readonly End[]): Promise<number> {
  const text = (await keyveil.admin('GET', '/metrics')).body['text'] as string;
  return ends.reduce((sum, { reason }) => {
    const line = new RegExp(`^keyveil_refusals_total\\{reason="${reason}"\\} (\\d+)$`, 'm').exec(text);
    return sum + Number(line?.[1] ?? 0);
  }, 0);
}

for (const { name, first, frameOf, ends, upstreamMax } of FLOODS) {
  test(`a flood of ${name} ends its connection and nothing else`, async (t) => {
    const residentBefore = keyveil.residentBytes();
    const seenBefore = upstream.received.length;
    const connectionsBefore = upstreamConnections;
    const closedBefore = await closedFor(ends);
    const client = await openClient();
    if (first !== undefined) client.send(first);
    const writes = await client.flood(many(frameOf));
    await client.closed;
    const code = await client.goaway();
    t.comment(`${writes * FRAMES_PER_WRITE} frames were written; GOAWAY ${String(code)}`);
    // When the connection ends amid a flood, the system may lose what was said last.
    if (code !== null) t.ok(ends.map((end) => end.code).includes(code), `GOAWAY(${code})`);
    t.ok(keyveil.residentBytes() - residentBefore < GROWTH_BYTES_MAX, 'no memory is taken');
    t.ok(upstream.received.length - seenBefore <= upstreamMax, 'requests at the upstream');
    t.ok(upstreamConnections - connectionsBefore <= upstreamMax, 'connections to the upstream');
    await requireServed(t);
    t.equal(await closedFor(ends), closedBefore + 1, 'it is recorded once');
  });
}

for (const [name, asked, type] of [
  ['PING', PING, FRAME.ping],
  ['SETTINGS', SETTINGS, FRAME.settings],
] as const) {
  test(`a flood of ${name} that waits for its answers ends as well`, async (t) => {
    const client = await openClient();
    let isOver = false;
    for (let round = 1; !isOver && round <= FRAMES / FRAMES_PER_WRITE; round += 1) {
      client.send(...Array.from({ length: FRAMES_PER_WRITE }, () => asked));
      const expected = round * FRAMES_PER_WRITE;
      isOver = (await client.findNth(expected, (one) => one.type === type && (one.flags & ACK) !== 0)) === null;
    }
    t.equal(await client.goaway(), ENHANCE_YOUR_CALM);
    await requireServed(t);
  });
}

/** Frames that RFC 9113 wants ignored, or that cost nothing but their bytes. */
const HARMLESS: readonly (readonly [string, (index: number) => Buffer])[] = [
  [
    'PRIORITY of ever new streams',
    (index) => frame(FRAME.priority, idOf(index), { payload: Buffer.of(0, 0, 0, 0, 1) }),
  ],
  ['PRIORITY of one stream', () => frame(FRAME.priority, 1, { payload: Buffer.of(0, 0, 0, 0, 1) })],
  ['WINDOW_UPDATE of the connection', () => windowUpdateFrame(0, 1)],
  ['an unknown type', () => frame(0x77, 0, { payload: Buffer.alloc(16) })],
];

for (const [name, frameOf] of HARMLESS) {
  test(`frames of ${name} take no memory, and the connection still serves`, async (t) => {
    const residentBefore = keyveil.residentBytes();
    const client = await openClient();
    await client.flood(many(frameOf));
    client.send(requestFrame(2 * FRAMES + 1, HOST));
    const answer = await client.find(({ type, streamId }) => type === FRAME.headers && streamId === 2 * FRAMES + 1);
    t.ok(answer, 'answered');
    t.ok(keyveil.residentBytes() - residentBefore < GROWTH_BYTES_MAX);
    client.socket.destroy();
  });
}

test('a client that pings and reads no answer is closed before the answers take memory', async (t) => {
  const residentBefore = keyveil.residentBytes();
  const client = await openClient();
  client.socket.pause();
  await client.flood(many(() => PING));
  client.socket.resume();
  await client.closed;
  t.ok(keyveil.residentBytes() - residentBefore < GROWTH_BYTES_MAX);
  await requireServed(t);
});

test('a client that pings like one in earnest is answered each time', async (t) => {
  const client = await openClient();
  for (let round = 1; round <= 100; round += 1) {
    client.send(PING, SETTINGS);
    await client.findNth(round, ({ type, flags }) => type === FRAME.ping && (flags & ACK) !== 0);
  }
  t.equal(client.isClosed, false);
  t.notOk(client.frames.some(({ type }) => type === FRAME.goaway));
  client.socket.destroy();
});
