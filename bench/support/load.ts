// Load over kept-alive connections through CONNECT: wrk behind proxychains4, or a Node generator where they are missing.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BenchContext } from './case.ts';
import type { Target } from './client.ts';
import { isInstalled, runCommand } from './processes.ts';
import type { ProxyUnderTest } from './proxy.ts';
import { HOST, typescriptCommand, type Scene } from './scene.ts';

export type Generator = 'wrk' | 'node';

export interface LoadOptions {
  readonly connections: number;
  readonly seconds: number;
}

export interface LoadResult {
  readonly requests: number;
  readonly requestsPerSecond: number;
  /** Latency in milliseconds. */
  readonly p50: number;
  readonly p99: number;
}

/** Some peers make a key of 2,048 bits for their first connection to a host. */
const PROXY_TIMEOUT_MS = 60_000;

const ENCODINGS = 'Accept-Encoding: gzip, deflate, br';

export const GENERATOR: Generator = isInstalled('wrk') && isInstalled('proxychains4') ? 'wrk' : 'node';

/** Milliseconds of a time as wrk prints it: `812.00us`, `1.05ms`, `1.20s`. */
function parseTime(text: string): number {
  const [, digits, unit] = /^([\d.]+)(us|ms|s|m)$/.exec(text) ?? [];
  const factor = unit === 'us' ? 0.001 : unit === 'ms' ? 1 : unit === 's' ? 1000 : 60_000;
  return Number(digits) * factor;
}

/** Share of requests that may end in an error of their connection: some peers drop one now and then. */
const ERROR_SHARE_MAX = 0.01;

function parseWrk(output: string): LoadResult {
  const field = (pattern: RegExp): string => pattern.exec(output)?.[1] ?? '';
  const requests = Number(field(/(\d+) requests in/));
  const counts = field(/Socket errors: ([^\n]*)/).match(/\d+/g) ?? [];
  const errors = counts.reduce((sum, count) => sum + Number(count), 0);
  if (output.includes('Non-2xx') || errors > requests * ERROR_SHARE_MAX) {
    throw new Error(`The load was not served as it should be:\n${output}`);
  }
  return {
    requests,
    requestsPerSecond: Number(field(/Requests\/sec:\s+([\d.]+)/)),
    p50: parseTime(field(/^ +50% +(\S+)/m)),
    p99: parseTime(field(/^ +99% +(\S+)/m)),
  };
}

function wrkCommand(scene: Scene, proxy: ProxyUnderTest, options: LoadOptions): string[] {
  const login = proxy.login === null ? '' : ` ${proxy.login.user} ${proxy.login.password}`;
  const path = join(scene.folder, `proxychains-${proxy.name.replaceAll(/\W/g, '-')}.conf`);
  const list = `http 127.0.0.1 ${proxy.port}${login}`;
  writeFileSync(
    path,
    `strict_chain\nquiet_mode\nproxy_dns\ntcp_read_time_out ${PROXY_TIMEOUT_MS}\ntcp_connect_time_out ${PROXY_TIMEOUT_MS}\nremote_dns_subnet 224\n[ProxyList]\n${list}\n`,
  );
  const wrk = ['wrk', '--latency', '-t1', `-c${options.connections}`, `-d${options.seconds}s`, '--timeout', '10s'];
  const fields = [`Authorization: ${proxy.authorization}`, 'User-Agent: bench/1', 'Accept: */*', ENCODINGS];
  const url = `https://${HOST}:${scene.ports.canned}/v1/thing`;
  return ['proxychains4', '-q', '-f', path, ...wrk, ...fields.flatMap((field) => ['-H', field]), url];
}

/** GETs for so many seconds. Rejects when any answer is not a 200: the upstream checks that the real value came. */
export async function load(scene: Scene, proxy: ProxyUnderTest, options: LoadOptions): Promise<LoadResult> {
  if (GENERATOR === 'wrk') return parseWrk(await runCommand(wrkCommand(scene, proxy, options)));
  return generate('keep-alive', { ...targetOf(proxy, scene.ports.canned), ...options });
}

/** What the Node generator needs to reach a port of the upstream through a proxy. */
export function targetOf(proxy: ProxyUnderTest, port: number): Target {
  return { proxyPort: proxy.port, login: proxy.login, authorization: proxy.authorization, host: HOST, port };
}

/** Runs one work of the Node generator in its own process. */
export async function generate<T = LoadResult>(work: string, options: object): Promise<T> {
  const output = await runCommand([...typescriptCommand('programs/generator.ts'), work, JSON.stringify(options)]);
  return JSON.parse(output) as T;
}

export interface Cost extends LoadResult {
  /** CPU time of the proxy per request, in microseconds. */
  readonly cpuPerRequestUs: number;
}

interface Costed {
  readonly proxy: ProxyUnderTest;
  readonly seconds: number;
  readonly run: () => Promise<LoadResult>;
}

/** Resolves with the first request: a generator takes its time to start, more of it on a busy machine. */
async function untilServed(scene: Scene, finished: Promise<unknown>): Promise<void> {
  const { requestCount } = await scene.ask();
  let isOver = false;
  const over = (): void => void (isOver = true);
  finished.then(over, over);
  while (!isOver && (await scene.ask()).requestCount === requestCount) await pause(20);
}

/**
 * CPU time per request between two counts of the upstream, both taken while the load runs: neither the handshakes at
 * the start nor the load's end is in it.
 */
export async function measureCost(scene: Scene, { proxy, seconds, run }: Costed): Promise<Cost> {
  const finished = run();
  finished.catch(() => undefined);
  await untilServed(scene, finished);
  await pause(seconds * 150);
  const before = await scene.ask();
  const cpuBefore = proxy.cpuSeconds();
  await pause(seconds * 650);
  const after = await scene.ask();
  const cpuAfter = proxy.cpuSeconds();
  const result = await finished;
  const requests = after.requestCount - before.requestCount;
  if (requests <= 0) throw new Error(`No request of ${proxy.name}'s arrived while it was measured.`);
  return { ...result, cpuPerRequestUs: ((cpuAfter - cpuBefore) * 1e6) / requests };
}

const WARM_UP_FAILURES_MAX = 5;

/** Loads a proxy until its code has been compiled: by requests, since seconds mean little on a busy machine. */
export async function warmUp({ scene, isQuick, say }: BenchContext, proxy: ProxyUnderTest): Promise<void> {
  const [requestsMin, msMax] = isQuick ? [3000, 8000] : [15_000, 40_000];
  say(`warming ${proxy.name} up`);
  const endsAt = performance.now() + msMax;
  let requests = 0;
  let failures = 0;
  while (requests < requestsMin && performance.now() < endsAt) {
    try {
      requests += (await load(scene, proxy, { connections: 16, seconds: 2 })).requests;
    } catch (error) {
      // Some peers refuse connections while they make what a new host needs.
      failures += 1;
      if (failures === WARM_UP_FAILURES_MAX) throw error;
      await pause(1000);
    }
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
