// What a client of the matrix is, and the checks that are the same for most of them.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { EVENT_COUNT, type FullReceived } from '../support/full-upstream.ts';
import type { Command, Scene, SecretName } from './scene.ts';

export const COLUMNS = ['header', 'body', 'upload', 'stream', 'websocket'] as const;
export type Column = (typeof COLUMNS)[number];

/** Throws when the client did not get what it should. */
export type Check = (scene: Scene) => Promise<void>;

export interface Client {
  readonly name: string;
  /** What it needs beyond the session's variables, for the table; empty when nothing. */
  readonly needs: string;
  /** Its version, or why it can not be run here. */
  readonly probe: () => { readonly version: string } | { readonly missing: string };
  /** Compiles, installs: what is done once before its checks. */
  readonly prepare?: Check;
  /** A column that is not here is one that the client has no means for. */
  readonly checks: Partial<Record<Column, Check>>;
}

export const API = 'https://api.test';

/** Throws unless it holds. */
export function expect(condition: boolean, complaint: string): asserts condition {
  if (!condition) throw new Error(complaint);
}

/** Probes by a program's own version output; the pattern's first group is the version. */
export function probeProgram(file: string, args: readonly string[], pattern: RegExp): ReturnType<Client['probe']> {
  const { error, status, stdout, stderr } = spawnSync(file, args, { encoding: 'utf8' });
  if (error !== undefined || status !== 0) return { missing: `${[file, ...args].join(' ')} does not run` };
  const version = pattern.exec(`${stdout}${stderr}`)?.[1];
  return version === undefined ? { missing: `${file} does not tell its version` } : { version };
}

function only(scene: Scene): FullReceived {
  // A browser asks for the icon by itself.
  const received = scene.upstream.received.filter(({ url }) => url !== '/favicon.ico');
  const [first] = received;
  expect(first !== undefined && received.length === 1, `The upstream received ${received.length} requests, not 1.`);
  return first;
}

function expectVersion(request: FullReceived, http: '1.1' | '2.0' | undefined): void {
  if (http === undefined) return;
  expect(request.httpVersion === http, `The upstream was asked by HTTP/${request.httpVersion}, not HTTP/${http}.`);
}

export interface ProgramOptions {
  /** The program, or what is done in place of running one: it gives what was printed. */
  readonly command?: (column: Column, scene: Scene) => Command;
  readonly run?: (column: Column, scene: Scene) => Promise<string>;
  readonly columns: readonly Column[];
  /** The version that must arrive at the upstream. */
  readonly http?: '1.1' | '2.0';
  readonly secretName?: SecretName;
}

/** The checks of a client that is a program with one mode for each column. */
export function programChecks(options: ProgramOptions): Partial<Record<Column, Check>> {
  const { command, columns, http, secretName = 'API_KEY' } = options;
  const run = async (column: Column, scene: Scene): Promise<string> => {
    scene.upstream.received.length = 0;
    scene.upstream.messages.length = 0;
    scene.upstream.gate.reset();
    if (options.run !== undefined) return options.run(column, scene);
    expect(command !== undefined, 'There is no program to run.');
    return (await scene.run(command(column, scene))).stdout;
  };
  const expectVeiled = (output: string, scene: Scene): void => {
    expect(output.includes(scene.placeholder(secretName)), `The placeholder did not come back: ${output}`);
  };
  const all: Record<Column, Check> = {
    async header(scene) {
      const output = await run('header', scene);
      const request = only(scene);
      const authorization = String(request.headers['authorization']);
      expect(authorization === `Bearer ${scene.secret(secretName)}`, `Authorization arrived as ${authorization}.`);
      expect(request.headers['proxy-authorization'] === undefined, 'The proxy login went upstream.');
      expectVersion(request, http);
      expectVeiled(output, scene);
    },
    async body(scene) {
      const output = await run('body', scene);
      const request = only(scene);
      const { key } = JSON.parse(request.body.toString()) as { key: unknown };
      expect(key === scene.secret(secretName), `The body arrived as ${request.body.toString()}.`);
      const length = request.headers['content-length'];
      expect(length === undefined || Number(length) === request.body.length, 'Content-Length is not the length.');
      expectVersion(request, http);
      expectVeiled(output, scene);
    },
    async upload(scene) {
      const output = await run('upload', scene);
      const request = only(scene);
      const sha256 = createHash('sha256').update(request.body).digest('hex');
      expect(sha256 === scene.upload.sha256, `${request.body.length} bytes arrived with another hash.`);
      expect(output.includes(sha256), `The client did not get the answer: ${output}`);
      expectVersion(request, http);
    },
    async stream(scene) {
      const output = await run('stream', scene);
      for (let number = 1; number <= EVENT_COUNT; number += 1) {
        expect(output.includes(`event ${number}`), `Event ${number} is missing: ${output}`);
      }
      expectVersion(only(scene), http);
    },
    async websocket(scene) {
      const output = await run('websocket', scene);
      const [message] = scene.upstream.messages;
      expect(message === `key=${scene.secret(secretName)}`, `The message arrived as ${String(message)}.`);
      expectVeiled(output, scene);
    },
  };
  return Object.fromEntries(columns.map((column) => [column, all[column]]));
}
