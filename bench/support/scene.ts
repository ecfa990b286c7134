// What every case stands on: a folder, a certificate authority, the upstream in its own process, and the secret.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createTestAuthority } from '../../test/support/test-authority.ts';
import { startProgram, type Program } from './processes.ts';

export const HOST = 'api.bench.test';
/** The real value that stands in for the placeholder. */
export const SECRET_VALUE = 'sk-bench-0123456789abcdefghijklmnopqrstuvwxyz';
/** What the peers look for; Keyveil makes a placeholder of its own. */
export const PEER_PLACEHOLDER = 'kvph_0123456789abcdefghijklmnopqrstuv';

const LOADER = join(import.meta.dirname, '../../scripts/ts-register.mjs');

interface UpstreamPorts {
  /** Canned answers over HTTP/1.1; HTTP/2 is not offered. */
  readonly canned: number;
  /** Uploads, downloads and event streams over HTTP/1.1. */
  readonly streams: number;
  readonly http2: number;
}

interface UpstreamCounts {
  readonly requestCount: number;
  readonly streamCount: number;
}

export interface Scene {
  readonly folder: string;
  readonly caPath: string;
  readonly leafPath: string;
  readonly ports: UpstreamPorts;
  readonly upstream: Program;
  /** What the upstream has seen; with a message, after it has taken that. */
  ask(message?: Readonly<Record<string, unknown>>): Promise<UpstreamCounts>;
  close(): Promise<void>;
}

/** Command line of a TypeScript program of the benchmark. */
export function typescriptCommand(path: string): string[] {
  return [process.execPath, '--import', LOADER, join(import.meta.dirname, '..', path)];
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

export async function openScene(): Promise<Scene> {
  const folder = mkdtempSync(join(tmpdir(), 'keyveil-bench-'));
  const authority = createTestAuthority('Benchmark Root');
  const caPath = join(folder, 'ca.pem');
  const leafPath = join(folder, 'leaf.json');
  writeFileSync(caPath, authority.caPem);
  writeFileSync(leafPath, JSON.stringify(authority.leafFor([HOST, '*.bench.test', '127.0.0.1'])));
  const upstream = await startProgram(typescriptCommand('programs/upstream.ts'), {
    env: { BENCH_LEAF: leafPath, BENCH_VALUE: SECRET_VALUE },
    readyLine: /^READY (\d+) (\d+) (\d+)/,
    withChannel: true,
  });
  const [canned, streams, http2] = upstream.ready.map(Number) as [number, number, number];
  return {
    folder,
    caPath,
    leafPath,
    ports: { canned, streams, http2 },
    upstream,
    async ask(message = { type: 'count' }) {
      const answer = once(upstream.child, 'message');
      upstream.child.send(message);
      return ((await answer) as [UpstreamCounts])[0];
    },
    async close() {
      await upstream.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
