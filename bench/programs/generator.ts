// The load that a Node.js program makes, in a process of its own: what it is to do and its options come as arguments.
import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2';
import process from 'node:process';
import { percentile } from '../support/statistics.ts';
import { getOnce, openTls, requestHead, type Target } from '../support/client.ts';

interface LoadOptions extends Target {
  readonly connections: number;
  readonly seconds: number;
}

interface Latencies {
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly p50: number;
  readonly p99: number;
}

/** Runs `once` in so many loops until the time is over; latencies in milliseconds. */
async function loop(
  options: { connections: number; seconds: number },
  once: (index: number) => Promise<void>,
): Promise<Latencies> {
  const latencies: number[] = [];
  const startedAt = performance.now();
  const endsAt = startedAt + options.seconds * 1000;
  const run = async (index: number): Promise<void> => {
    while (performance.now() < endsAt) {
      const sentAt = performance.now();
      await once(index);
      latencies.push(performance.now() - sentAt);
    }
  };
  await Promise.all(Array.from({ length: options.connections }, (_, index) => run(index)));
  const seconds = (performance.now() - startedAt) / 1000;
  return {
    requests: latencies.length,
    requestsPerSecond: latencies.length / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
  };
}

async function keepAlive(options: LoadOptions): Promise<Latencies> {
  const sockets = await Promise.all(Array.from({ length: options.connections }, () => openTls(options)));
  const head = requestHead(options, 'GET /v1/thing');
  return loop(options, (index) => getOnce(sockets[index] as (typeof sockets)[number], head));
}

/** A full handshake for each request: no session is resumed. */
async function newConnections(options: LoadOptions): Promise<Latencies> {
  const head = requestHead(options, 'GET /v1/thing');
  return loop(options, async () => {
    const socket = await openTls(options);
    await getOnce(socket, head);
    socket.destroy();
  });
}

/** One request to each of so many hosts, one after the other. */
async function newHosts(options: Target & { hosts: readonly string[] }): Promise<{ requests: number }> {
  for (const host of options.hosts) {
    const target = { ...options, host };
    const socket = await openTls(target);
    await getOnce(socket, requestHead(target, 'GET /v1/thing'));
    socket.destroy();
  }
  return { requests: options.hosts.length };
}

function getHttp2(session: ClientHttp2Session, options: Target): Promise<void> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':path': '/v1/thing',
      authorization: options.authorization,
      'user-agent': 'bench/1',
    });
    let status: number | undefined;
    stream.on('response', (headers) => (status = headers[':status']));
    stream.on('error', reject);
    stream.on('end', () => (status === 200 ? resolve() : reject(new Error(`The request was answered ${status}.`))));
    stream.resume();
  });
}

/** `connections` is the number of streams on the one connection. */
async function http2(options: LoadOptions): Promise<Latencies> {
  const socket = await openTls(options, 'h2');
  const session = connectHttp2(`https://${options.host}:${options.port}`, { createConnection: () => socket });
  const result = await loop(options, () => getHttp2(session, options));
  session.destroy();
  return result;
}

const CHUNK_BYTES = 64 * 1024;

async function upload(options: Target & { bytes: number; tail: string }): Promise<{ seconds: number; answer: string }> {
  const socket = await openTls(options);
  const fields = 'Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n';
  const chunk = Buffer.alloc(CHUNK_BYTES, 'the quick brown fox jumps over the lazy dog; ');
  const framed = Buffer.concat([Buffer.from(`${CHUNK_BYTES.toString(16)}\r\n`), chunk, Buffer.from('\r\n')]);
  const startedAt = performance.now();
  socket.write(requestHead(options, 'POST /upload', fields));
  for (let sent = 0; sent < options.bytes; sent += CHUNK_BYTES) {
    if (!socket.write(framed)) await new Promise((resolve) => socket.once('drain', resolve));
  }
  socket.write(`${options.tail.length.toString(16)}\r\n${options.tail}\r\n0\r\n\r\n`);
  const answer = await new Promise<string>((resolve, reject) => {
    let text = '';
    socket.on('data', (data: Buffer) => {
      text += data.toString('latin1');
      if (text.includes('}')) resolve(text);
    });
    socket.once('close', () => reject(new Error(`The upload's connection was closed: ${text.slice(0, 300)}`)));
  });
  const seconds = (performance.now() - startedAt) / 1000;
  socket.destroy();
  return { seconds, answer: answer.slice(answer.indexOf('{')) };
}

async function download(options: Target & { bytes: number }): Promise<{ seconds: number; bytes: number }> {
  const socket = await openTls(options);
  const startedAt = performance.now();
  socket.write(requestHead(options, `GET /download?bytes=${options.bytes}`));
  const bytes = await new Promise<number>((resolve, reject) => {
    let received = 0;
    socket.on('data', (data: Buffer) => {
      received += data.length;
      if (data.subarray(-7).equals(Buffer.from('\r\n0\r\n\r\n')) || data.equals(Buffer.from('0\r\n\r\n')))
        resolve(received);
    });
    socket.once('close', () => reject(new Error(`The download ended after ${received} bytes.`)));
  });
  const seconds = (performance.now() - startedAt) / 1000;
  socket.destroy();
  return { seconds, bytes };
}

/** Opens event streams, says so, and after a line on standard input tells how late the events were. */
async function eventStreams(options: Target & { streams: number }): Promise<Record<string, number>> {
  const latencies: number[] = [];
  for (let opened = 0; opened < options.streams; opened += 1) {
    const socket = await openTls(options);
    socket.on('data', (data: Buffer) => {
      const now = process.hrtime.bigint();
      for (const [, sentAt] of data.toString('latin1').matchAll(/data: (\d+)\n/g)) {
        latencies.push(Number(now - BigInt(sentAt as string)) / 1e6);
      }
    });
    socket.on('error', () => socket.destroy());
    socket.write(requestHead(options, 'GET /events'));
  }
  process.stdout.write('OPEN\n');
  await new Promise((resolve) => process.once('message', resolve));
  const result = { events: latencies.length, p50: percentile(latencies, 0.5), p99: percentile(latencies, 0.99) };
  process.send?.(result);
  return result;
}

/** Opens tunnels that are idle but for one request in a while, which keeps them from being closed; runs until it is stopped. */
async function idleTunnels(
  options: Target & { tunnels: number; everySeconds: number },
): Promise<Record<string, number>> {
  const head = requestHead(options, 'GET /v1/thing');
  const sockets = [];
  for (let opened = 0; opened < options.tunnels; opened += 1) {
    const socket = await openTls(options);
    await getOnce(socket, head);
    sockets.push(socket);
  }
  process.stdout.write('OPEN\n');
  let requests = 0;
  for (;;) {
    for (const socket of sockets) {
      await new Promise((resolve) => setTimeout(resolve, (options.everySeconds * 1000) / sockets.length));
      await getOnce(socket, head);
      requests += 1;
      if (requests % sockets.length === 0) process.send?.({ requests });
    }
  }
}

const WORKS: Readonly<Record<string, (options: never) => Promise<unknown>>> = {
  'keep-alive': keepAlive,
  'new-connections': newConnections,
  'new-hosts': newHosts,
  http2,
  upload,
  download,
  'event-streams': eventStreams,
  'idle-tunnels': idleTunnels,
};

const [work = '', options = '{}'] = process.argv.slice(2);
const run = WORKS[work];
if (run === undefined) throw new Error(`There is no work named ${work}.`);
const result = await run(JSON.parse(options) as never);
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
