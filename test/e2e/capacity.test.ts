// Thousands of idle tunnels, hundreds of event streams, and sides that do not read: memory is bounded, nothing is left.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect as connectHttp2, type ClientHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import t, { test } from 'tap';
import { startDaemonProcess, type DaemonProcess } from '../support/daemon-process.ts';
import {
  createTunnelOpener,
  inParallel,
  settled,
  socketsOf,
  steady,
  tooManyFiles,
  type OpenTunnel,
} from '../support/many-tunnels.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const HOST = 'api.test';
const KIB = 1024;
const MIB = 1024 * KIB;
/** A longer run sets more (and the daemon's limit of tunnels is 10,000). */
const TUNNELS = Number(process.env['KEYVEIL_TEST_TUNNELS'] ?? 2000);
const STREAMS = Number(process.env['KEYVEIL_TEST_STREAMS'] ?? 500);
const STALLED = 24;
const STREAMS_PER_CONNECTION = 125;
const TUNNEL_BYTES_MAX = 240 * KIB;
const STREAM_BYTES_MAX = 240 * KIB;
/** What one exchange that nobody reads may hold: its windows and the streams between, in both directions. */
const STALLED_BYTES_MAX = 1.5 * MIB;
/** What the process takes for itself meanwhile: code that is compiled, caches, a heap that was not collected yet. */
const NOISE_BYTES = 48 * MIB;
const PIECE = Buffer.alloc(64 * KIB, 'x');

let upstream: TestUpstream;
let keyveil: DaemonProcess;
let open: OpenTunnel;
const listeners = new Set<ServerResponse>();
const stalled = { written: 0, uploads: new Set<IncomingMessage>() };

function serveEvents(response: ServerResponse): void {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  response.write('data: first\n\n');
  listeners.add(response);
  response.once('close', () => listeners.delete(response));
}

function serveEndless(response: ServerResponse): void {
  const write = (): void => {
    while (!response.destroyed) {
      stalled.written += PIECE.length;
      if (!response.write(PIECE)) return;
    }
  };
  response.on('drain', write);
  write();
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  request.on('error', () => undefined);
  if (request.url === '/events') serveEvents(response);
  else if (request.url === '/endless') serveEndless(response);
  else if (request.url === '/stalled') {
    // Not read before the test says so.
    stalled.uploads.add(request);
    request.once('end', () => response.end('ok'));
  } else response.end('ok');
}

const skip = tooManyFiles(2 * Math.max(TUNNELS, 2 * STREAMS) + 500);

t.setTimeout(600_000);

t.before(async () => {
  if (skip !== false) return;
  const authority = createTestAuthority();
  upstream = await startUpstream({ leaf: authority.leafFor([HOST]), listener: serve });
  // So that none waits in the daemon's pool when sockets are counted.
  upstream.server.keepAliveTimeout = 200;
  keyveil = await startDaemonProcess({
    authority,
    overrides: { [HOST]: upstream.port },
    environment: { KEYVEIL_LOG_LEVEL: 'info' },
  });
  open = await createTunnelOpener(keyveil, HOST);
  // What is compiled and cached at the first use is not counted.
  const first = await inParallel(64, () => exchange());
  for (const body of first) if (body !== 'ok') throw new Error(body);
});

t.teardown(async () => {
  if (skip !== false) return;
  await keyveil.close();
  await upstream.close();
});

/** Reads until the text is there. Rejects when the stream ends before. */
function readText(stream: Readable, wanted: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const onData = (chunk: Buffer): void => {
      text += chunk.toString('latin1');
      if (!text.includes(wanted)) return;
      stream.off('data', onData);
      resolve(text);
    };
    stream.on('data', onData);
    stream.once('close', () => reject(new Error(`closed after ${text}`)));
  });
}

async function exchange(): Promise<string> {
  const tls = await open('http/1.1');
  tls.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
  const text = await readText(tls, '\r\n\r\nok');
  tls.destroy();
  return text.slice(-2);
}

async function tunnelCount(): Promise<number> {
  const text = (await keyveil.admin('GET', '/metrics')).body['text'] as string;
  return Number(/^keyveil_tunnels (\d+)$/m.exec(text)?.[1]);
}

/** Sockets of the daemon when nothing is under way. */
const idleSockets = (): Promise<number> => steady(() => socketsOf(keyveil.pid));

interface Opened {
  readonly stream: Readable;
  readonly close: () => void;
}

type Version = '1.1' | '2';

/** Opens so many GETs of a path, over HTTP/1.1 each in a tunnel of its own, over HTTP/2 many in one. */
async function openGets(version: Version, path: string, count: number): Promise<Opened[]> {
  if (version === '1.1') {
    return inParallel(count, async () => {
      const tls = await open('http/1.1');
      tls.write(`GET ${path} HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
      return { stream: tls, close: () => tls.destroy() };
    });
  }
  const sessions = await inParallel(Math.ceil(count / STREAMS_PER_CONNECTION), async () => {
    const tls = await open('h2');
    const session = connectHttp2(`https://${HOST}`, { createConnection: () => tls });
    session.on('error', () => undefined);
    return session;
  });
  return Array.from({ length: count }, (_, index) => {
    const session = sessions[index % sessions.length];
    const stream = session?.request({ ':path': path }) as ClientHttp2Stream;
    stream.on('error', () => undefined);
    return { stream, close: () => session?.destroy() };
  });
}

test(`${TUNNELS} idle tunnels`, { skip }, async (t) => {
  const socketsBefore = await idleSockets();
  const residentBefore = keyveil.residentBytes();
  let peak = 0;
  for (const count of [TUNNELS, TUNNELS / 4]) {
    const tunnels = await inParallel(count, () => open('http/1.1'));
    const resident = keyveil.residentBytes();
    t.comment(`${count} tunnels: ${Math.round((resident - residentBefore) / count / KIB)} KiB each`);
    t.equal(await tunnelCount(), count, 'they are open');
    if (peak === 0) {
      t.ok(resident - residentBefore < count * TUNNEL_BYTES_MAX + NOISE_BYTES, 'memory of each is bounded');
      peak = resident;
    } else t.ok(resident < peak + NOISE_BYTES, 'memory does not grow with each round');
    t.equal(await exchange(), 'ok', 'one more is served beside them');
    for (const tls of tunnels) tls.destroy();
    const left = await settled(
      () => socketsOf(keyveil.pid),
      (sockets) => sockets <= socketsBefore + 1,
    );
    t.ok(left <= socketsBefore + 1, `${left - socketsBefore} sockets more than before`);
  }
});

for (const version of ['1.1', '2'] as const) {
  test(`${STREAMS} event streams over HTTP/${version}`, { skip }, async (t) => {
    const socketsBefore = await idleSockets();
    const residentBefore = keyveil.residentBytes();
    const streams = await openGets(version, '/events', STREAMS);
    await Promise.all(streams.map(({ stream }) => readText(stream, 'data: first')));
    t.equal(listeners.size, STREAMS);
    const each = (keyveil.residentBytes() - residentBefore) / STREAMS;
    t.comment(`${Math.round(each / KIB)} KiB each`);
    t.ok(keyveil.residentBytes() - residentBefore < STREAMS * STREAM_BYTES_MAX + NOISE_BYTES);
    const second = streams.map(({ stream }) => readText(stream, 'data: second'));
    for (const response of listeners) response.write('data: second\n\n');
    t.equal((await Promise.all(second)).length, STREAMS, 'each gets what comes later');
    for (const { close } of streams) close();
    t.equal(
      await settled(
        () => listeners.size,
        (size) => size === 0,
      ),
      0,
      'the upstream sees them go',
    );
    const left = await settled(
      () => socketsOf(keyveil.pid),
      (sockets) => sockets <= socketsBefore + 1,
    );
    t.ok(left <= socketsBefore + 1, `${left - socketsBefore} sockets more than before`);
  });

  test(`clients over HTTP/${version} that do not read`, { skip }, async (t) => {
    const residentBefore = keyveil.residentBytes();
    stalled.written = 0;
    const streams = await openGets(version, '/endless', STALLED);
    // Over HTTP/2 a stream that nobody listens to waits by itself.
    for (const { stream } of streams) stream.pause();
    const written = await steady(() => stalled.written);
    t.comment(`${Math.round(written / STALLED / KIB)} KiB of each left the upstream`);
    const growth = keyveil.residentBytes() - residentBefore;
    t.ok(growth < STALLED * STALLED_BYTES_MAX + NOISE_BYTES, `${Math.round(growth / MIB)} MiB are held`);
    t.equal(await exchange(), 'ok', 'others are served');
    const [one] = streams;
    one?.stream.resume();
    t.ok(
      (await settled(
        () => stalled.written,
        (now) => now > written + 4 * MIB,
      )) > written,
      'one that reads again gets more',
    );
    for (const { close } of streams) close();
  });
}

for (const version of ['1.1', '2'] as const) {
  test(`an upstream that does not read uploads over HTTP/${version}`, { skip }, async (t) => {
    const residentBefore = keyveil.residentBytes();
    let sent = 0;
    const bodyBytes = 16 * MIB;
    const uploads = await inParallel(STALLED, async () => {
      const tls = await open(version === '2' ? 'h2' : 'http/1.1');
      const session = version === '2' ? connectHttp2(`https://${HOST}`, { createConnection: () => tls }) : null;
      const stream = session?.request({ ':method': 'POST', ':path': '/stalled', 'content-length': bodyBytes }) ?? tls;
      if (session === null) {
        tls.write(`POST /stalled HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: ${bodyBytes}\r\n\r\n`);
      }
      let own = 0;
      const write = (): void => {
        while (own < bodyBytes) {
          own += PIECE.length;
          sent += PIECE.length;
          if (!stream.write(PIECE)) return;
        }
        if (session !== null) stream.end();
        stream.off('drain', write);
      };
      stream.on('drain', write);
      write();
      return { stream, close: () => tls.destroy() };
    });
    await settled(
      () => stalled.uploads.size,
      (size) => size === STALLED,
    );
    const held = await steady(() => sent);
    t.comment(`${Math.round(held / STALLED / KIB)} KiB of each left the client`);
    t.ok(held < STALLED * bodyBytes, 'they wait');
    const growth = keyveil.residentBytes() - residentBefore;
    t.ok(growth < STALLED * STALLED_BYTES_MAX + NOISE_BYTES, `${Math.round(growth / MIB)} MiB are held`);
    t.equal(await exchange(), 'ok', 'others are served');
    const answers = uploads.map(({ stream }) => readText(stream, 'ok'));
    for (const request of stalled.uploads) request.resume();
    stalled.uploads.clear();
    t.equal((await Promise.all(answers)).length, STALLED, 'they arrive when it reads');
    for (const { close } of uploads) close();
  });
}
