// CPU time per keep-alive GET over TLS of the upstream codec, of undici's dispatch and of node:https, in turn in one run.
import { spawn } from 'node:child_process';
import { once, setMaxListeners } from 'node:events';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { createServer } from 'node:tls';
import { parseCidr, type Cidr } from '../model/ip-class.ts';
import type { Destination, UpstreamHandlers, UpstreamRequest } from '../proxy/exchange.ts';
import { createUpstream } from '../proxy/upstream/upstream.ts';
import { createTestAuthority } from '../test/support/test-authority.ts';

const ROUNDS = 5;
const REQUESTS = 40_000;
const WARM_UP = 10_000;
const CONNECTIONS = 16;
const HOST = 'api.test';
const FIELDS = [
  'Host',
  HOST,
  'User-Agent',
  'bench/1',
  'Accept',
  '*/*',
  'Accept-Encoding',
  'gzip, br',
  'Authorization',
  'Bearer 0123456789abcdef',
];
const BODY = '{"ok":true,"text":"' + 'x'.repeat(100) + '"}';
const RESPONSE = Buffer.from(
  `HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\n` +
    `Connection: keep-alive\r\nServer: bench\r\nX-Request-Id: 0123456789abcdef\r\nCache-Control: no-store\r\nVary: Accept-Encoding\r\n\r\n${BODY}`,
);

type Send = (done: () => void) => void;

async function serve(): Promise<void> {
  const authority = createTestAuthority();
  const server = createServer({ ...authority.leafFor([HOST]), ALPNProtocols: ['http/1.1'] }, (socket) => {
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    socket.on('data', () => socket.write(RESPONSE));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port, ca: authority.caPem })}\n`);
}

function codecClient(port: number, ca: string): Send {
  const upstream = createUpstream({
    allowedCidrs: [parseCidr('127.0.0.0/8') as Cidr],
    ownListeners: () => [],
    extraCaPem: ca,
    resolve: () => Promise.resolve(['127.0.0.1']),
  });
  const destination: Destination = {
    sessionId: 's',
    scheme: 'https',
    authority: { host: HOST, port },
    allowedPrivateCidrs: [],
  };
  const { signal } = new AbortController();
  setMaxListeners(0, signal);
  const sensitiveNames = new Set<string>();
  return (done) => {
    const handlers: UpstreamHandlers = {
      information: () => undefined,
      head: () => undefined,
      data: () => true,
      end: done,
      error: fail,
      drain: () => undefined,
      upgrade: () => undefined,
    };
    const request: UpstreamRequest = {
      method: 'GET',
      target: '/v1/thing',
      headers: FIELDS,
      body: { kind: 'none' },
      sensitiveNames,
    };
    const exchange = upstream.request(destination, request, {
      handlers,
      clientVersion: '1.1',
      signal,
      responseTimeoutMs: 900_000,
    });
    if (exchange instanceof Promise) exchange.catch(fail);
  };
}

async function undiciClient(port: number, ca: string): Promise<Send> {
  const { Agent } = await import('undici');
  const agent = new Agent({ connect: { ca, servername: HOST }, connections: CONNECTIONS });
  const origin = `https://127.0.0.1:${port}`;
  return (done) => {
    agent.dispatch(
      { origin, path: '/v1/thing', method: 'GET', headers: FIELDS },
      { onConnect: () => undefined, onHeaders: () => true, onData: () => true, onComplete: done, onError: fail },
    );
  };
}

function httpsClient(port: number, ca: string): Send {
  const agent = new HttpsAgent({ keepAlive: true, ca, maxSockets: CONNECTIONS });
  return (done) => {
    const request = httpsRequest(
      { agent, host: '127.0.0.1', port, servername: HOST, path: '/v1/thing', headers: FIELDS },
      (response) => {
        response.on('data', () => undefined);
        response.on('end', done);
      },
    );
    request.on('error', fail);
    request.end();
  };
}

function fail(error: unknown): void {
  process.stderr.write(`${String(error)}\n`);
  process.exitCode = 1;
}

function drive(send: Send, count: number): Promise<void> {
  return new Promise((resolve) => {
    let started = 0;
    let finished = 0;
    const next = (): void => {
      if (started === count) return;
      started += 1;
      send(() => {
        finished += 1;
        if (finished === count) resolve();
        else setImmediate(next);
      });
    };
    for (let index = 0; index < CONNECTIONS; index += 1) next();
  });
}

async function measure(kind: string, port: number, ca: string): Promise<void> {
  const send =
    kind === 'codec' ? codecClient(port, ca) : kind === 'undici' ? await undiciClient(port, ca) : httpsClient(port, ca);
  await drive(send, WARM_UP);
  const before = process.cpuUsage();
  await drive(send, REQUESTS);
  const used = process.cpuUsage(before);
  process.stdout.write(`${JSON.stringify((used.user + used.system) / REQUESTS)}\n`);
}

async function child(args: readonly string[]): Promise<{ line: string; stop: () => void }> {
  const program = spawn(process.execPath, [...process.execArgv, import.meta.filename, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface(program.stdout), 'line')) as [string];
  return { line, stop: () => program.kill() };
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] as number;

async function compare(): Promise<void> {
  const server = await child(['serve']);
  const { port, ca } = JSON.parse(server.line) as { port: number; ca: string };
  const kinds = ['codec', 'undici', 'https'];
  const results = new Map<string, number[]>(kinds.map((kind) => [kind, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const kind of kinds) {
      const client = await child([kind, String(port), ca]);
      results.get(kind)?.push(Number(client.line));
      client.stop();
    }
  }
  server.stop();
  const base = median(results.get('undici') ?? []);
  for (const [kind, values] of results) {
    const spread = `${Math.min(...values).toFixed(1)}–${Math.max(...values).toFixed(1)}`;
    process.stdout.write(
      `${kind.padEnd(8)} ${median(values).toFixed(1)} µs of CPU per request (${spread}), ${(median(values) / base).toFixed(2)} × undici\n`,
    );
  }
}

const [mode, port, ca] = process.argv.slice(2);
if (mode === 'serve') await serve();
else if (mode === undefined) await compare();
else await measure(mode, Number(port), ca ?? '');
