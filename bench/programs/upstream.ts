// The upstream of a benchmark, in a process of its own: canned answers that cost next to nothing, streams, and HTTP/2.
import { readFileSync } from 'node:fs';
import { createSecureServer as createHttp2Server } from 'node:http2';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import process from 'node:process';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { performance } from 'node:perf_hooks';

const leaf = JSON.parse(readFileSync(process.env['BENCH_LEAF'] as string, 'utf8')) as { key: string; cert: string };
const value = process.env['BENCH_VALUE'] as string;
const valueBytes = Buffer.from(value);
const BODY = JSON.stringify({ ok: true, text: 'x'.repeat(100) });
const FIELDS = {
  Date: 'Mon, 01 Jan 2024 00:00:00 GMT',
  'Content-Type': 'application/json',
  'Content-Length': String(BODY.length),
  Server: 'bench',
  'X-Request-Id': '0123456789abcdef',
  'Cache-Control': 'no-store',
  Vary: 'Accept-Encoding',
};
const lines = Object.entries(FIELDS).map(([name, text]) => `${name}: ${text}\r\n`);
const GOOD = Buffer.from(`HTTP/1.1 200 OK\r\n${lines.join('')}Connection: keep-alive\r\n\r\n${BODY}`);
const BAD = Buffer.from('HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n');
const END_OF_HEAD = '\r\n\r\n';
const CHUNK = Buffer.alloc(64 * 1024, 'the quick brown fox jumps over the lazy dog; ');

let requestCount = 0;
let streams: ServerResponse[] = [];

/** A request without the real value gets a 401, so that a proxy that swaps nothing can't look fast. */
function serveCanned(socket: TLSSocket): void {
  let pending: Buffer | null = null;
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data: Buffer) => {
    const head: Buffer = pending === null ? data : Buffer.concat([pending, data]);
    if (!head.subarray(-4).equals(Buffer.from(END_OF_HEAD))) {
      pending = head;
      return;
    }
    pending = null;
    requestCount += 1;
    socket.write(head.includes(valueBytes) ? GOOD : BAD);
  });
}

function download(response: ServerResponse, bytes: number): void {
  let left = bytes;
  response.writeHead(200, { 'Content-Type': 'text/plain' });
  const push = (): void => {
    while (left > 0) {
      left -= CHUNK.length;
      if (!response.write(CHUNK)) return void response.once('drain', push);
    }
    response.end();
  };
  push();
}

function upload(request: IncomingMessage, response: ServerResponse): void {
  let bytes = 0;
  let tail = Buffer.alloc(0);
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    tail = Buffer.concat([tail, chunk.subarray(-256)]).subarray(-256);
  });
  request.on('end', () => {
    response.end(JSON.stringify({ bytes, swapped: tail.includes(valueBytes) }));
  });
}

function openStream(response: ServerResponse): void {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  response.write(': open\n\n');
  streams.push(response);
  response.on('close', () => (streams = streams.filter((other) => other !== response)));
}

/** Events at a rate over all streams in turn; each says when it left (microseconds of this machine's clock). */
function sendEvents(perSecond: number, seconds: number): void {
  const startedAt = performance.now();
  const count = perSecond * seconds;
  let sent = 0;
  const timer = setInterval(() => {
    const due = Math.min(count, Math.floor(((performance.now() - startedAt) / 1000) * perSecond));
    for (; sent < due; sent += 1) streams[sent % streams.length]?.write(`data: ${process.hrtime.bigint()}\n\n`);
    if (sent >= count) clearInterval(timer);
  }, 1);
}

function serveRequest(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', 'https://upstream.bench.test');
  request.on('error', () => undefined);
  response.on('error', () => undefined);
  if (url.pathname === '/upload') upload(request, response);
  else if (url.pathname === '/download') download(response, Number(url.searchParams.get('bytes')));
  else if (url.pathname === '/events') openStream(response);
  else response.writeHead(404).end();
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => resolve((server.address() as AddressInfo).port));
  });
}

const canned = createTlsServer({ ...leaf, ALPNProtocols: ['http/1.1'] }, serveCanned);
const http1 = createHttpsServer({ ...leaf, ALPNProtocols: ['http/1.1'] }, serveRequest);
http1.requestTimeout = 0;
const http2 = createHttp2Server(leaf);
http2.on('stream', (stream, headers) => {
  requestCount += 1;
  const isGood = headers.authorization?.includes(value) === true;
  stream.on('error', () => undefined);
  stream.respond({ ':status': isGood ? 200 : 401, 'content-type': 'application/json', server: 'bench' });
  stream.end(BODY);
});
for (const server of [canned, http1, http2]) server.on('tlsClientError', () => undefined);

process.on('message', (message: { type: string; perSecond?: number; seconds?: number }) => {
  if (message.type === 'events') sendEvents(message.perSecond ?? 0, message.seconds ?? 0);
  process.send?.({ requestCount, streamCount: streams.length });
});
process.on('disconnect', () => process.exit(0));
const ports = [await listen(canned), await listen(http1), await listen(http2)];
process.stdout.write(`READY ${ports.join(' ')}\n`);
