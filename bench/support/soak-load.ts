// The soak's clients: each loop does one kind of traffic until it is told to stop, and checks all that it is answered.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { WebSocket } from 'ws';
import type { DaemonProcess } from '../../test/support/daemon-process.ts';
import { answerJson, type FullReceived, type FullResponse } from '../../test/support/full-upstream.ts';
import { readAll, type TestSession } from '../../test/support/operator.ts';

export const HOST = 'api.test';
const AUTHORITY = `${HOST}:443`;
const REQUESTS_PER_TUNNEL = 40;
const STREAMS_PER_SESSION = 12;
const UPLOAD_PIECE = 'some text before and after the placeholder of an upload; '.repeat(300);
const UPLOAD_PIECES = 64;
const EVENTS = 5;
const EVENT_MS = 150;
const ROTATE_MS = 700;
const ARCHIVE_MS_MAX = 30_000;

export interface SoakScene {
  readonly keyveil: DaemonProcess;
  readonly vaultId: string;
  readonly credential: { readonly id: string; readonly placeholder: string };
  readonly session: TestSession;
  /** Every value that the credential has had, the newest last. */
  readonly values: string[];
  /** Whether the loops should go on. */
  readonly isRunning: () => boolean;
}

/** The credential's value of one version; all have the same length. */
export function valueOf(version: number): string {
  return `soak-value-of-version-${String(version).padStart(8, '0')}`;
}

/** The upstream's routes that the soak needs: the last value that it saw is told by a digest, never echoed alone. */
export function soakRoute(request: FullReceived, response: FullResponse): boolean {
  const { pathname } = new URL(request.url, 'https://any.test');
  if (pathname === '/ticks') {
    void sendTicks(response);
    return true;
  }
  if (pathname !== '/key') return false;
  const key = String(request.headers['x-key']);
  answerJson(response, { echoed: key, digest: createHash('sha256').update(key).digest('hex') });
  return true;
}

async function sendTicks(response: FullResponse): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const write = response.write.bind(response) as (text: string) => boolean;
  for (let number = 1; number <= EVENTS && !response.destroyed; number += 1) {
    write(`data: tick ${number}\n\n`);
    await delay(EVENT_MS);
  }
  (response as { end(): void }).end();
}

const digestOf = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Whether a digest is that of a value that was in force between then and now. */
function isOfValue(
  scene: SoakScene,
  digest: string,
  { since, make }: { since: number; make: (value: string) => string },
): boolean {
  // The newest of them may not have been stored then.
  return scene.values.slice(Math.max(0, since - 2)).some((value) => digestOf(make(value)) === digest);
}

function requireThat(condition: boolean, what: string): void {
  if (!condition) throw new Error(what);
}

function checkKey(scene: SoakScene, body: string, since: number): void {
  const { echoed, digest } = JSON.parse(body) as { echoed: string; digest: string };
  requireThat(echoed === scene.credential.placeholder, `the echo was not veiled: ${body}`);
  requireThat(isOfValue(scene, digest, { since, make: (value) => value }), 'another value arrived');
}

/** Resolves when a connection is closed, in whatever way. */
function untilClosed(socket: Duplex): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) resolve();
    else socket.once('close', () => resolve());
  });
}

/** Reads one answer of known length from a kept connection. */
function readAnswer(tls: TLSSocket): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const done = (settle: () => void): void => {
      tls.off('data', onData);
      tls.off('close', onClose);
      settle();
    };
    const onClose = (): void => done(() => reject(new Error(`closed after ${JSON.stringify(text.slice(0, 200))}`)));
    const onData = (chunk: Buffer): void => {
      text += chunk.toString('latin1');
      const end = text.indexOf('\r\n\r\n');
      const length = Number(/^content-length: (\d+)/im.exec(text)?.[1] ?? NaN);
      if (end < 0 || text.length < end + 4 + length) return;
      if (text.startsWith('HTTP/1.1 200')) done(() => resolve(text.slice(end + 4)));
      else done(() => reject(new Error(`answered ${text.slice(0, 300)}`)));
    };
    tls.on('data', onData);
    tls.on('close', onClose);
    if (tls.destroyed) onClose();
  });
}

async function useHttp1(scene: SoakScene, session = scene.session, requests = REQUESTS_PER_TUNNEL): Promise<void> {
  const tls = await scene.keyveil.tunnel(session, AUTHORITY);
  try {
    for (let count = 0; count < requests && scene.isRunning(); count += 1) {
      const since = scene.values.length;
      tls.write(`GET /key HTTP/1.1\r\nHost: ${HOST}\r\nX-Key: ${scene.credential.placeholder}\r\n\r\n`);
      checkKey(scene, await readAnswer(tls), since);
      await delay(20);
    }
  } finally {
    tls.destroy();
  }
}

async function useHttp2(scene: SoakScene): Promise<void> {
  const tls = await scene.keyveil.tunnel(scene.session, AUTHORITY, { ALPNProtocols: ['h2'] });
  const session = connectHttp2(`https://${HOST}`, { createConnection: () => tls });
  const failures: Error[] = [];
  session.on('error', (error: Error) => failures.push(error));
  const ask = async (): Promise<void> => {
    const since = scene.values.length;
    const stream = session.request({ ':path': '/key', 'x-key': scene.credential.placeholder });
    let body = '';
    stream.setEncoding('utf8');
    for await (const chunk of stream as AsyncIterable<string>) body += chunk;
    checkKey(scene, body, since);
  };
  try {
    for (let round = 0; round < 4 && scene.isRunning(); round += 1) {
      await Promise.all(Array.from({ length: STREAMS_PER_SESSION }, ask));
      await delay(100);
    }
    if (failures[0] !== undefined) throw failures[0];
  } finally {
    session.destroy();
  }
}

async function useWebSocket(scene: SoakScene): Promise<void> {
  const tls = await scene.keyveil.tunnel(scene.session, AUTHORITY);
  const socket = new WebSocket(`wss://${HOST}/socket`, { createConnection: () => tls });
  try {
    await once(socket, 'open');
    for (let count = 0; count < 20 && scene.isRunning(); count += 1) {
      const text = `message ${count} with ${scene.credential.placeholder}`;
      socket.send(text);
      const [data] = (await once(socket, 'message')) as [Buffer];
      requireThat(data.toString() === `echo ${text}`, `the echo was ${data.toString()}`);
      await delay(40);
    }
    socket.close();
    await once(socket, 'close');
  } finally {
    socket.terminate();
  }
}

async function useEvents(scene: SoakScene): Promise<void> {
  const tls = await scene.keyveil.tunnel(scene.session, AUTHORITY);
  tls.write(`GET /ticks HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
  const text = await readAll(tls);
  requireThat(text.includes(`tick ${EVENTS}`), `the events were ${JSON.stringify(text.slice(0, 500))}`);
}

async function upload(scene: SoakScene): Promise<void> {
  const since = scene.values.length;
  const tls = await scene.keyveil.tunnel(scene.session, AUTHORITY);
  const { placeholder } = scene.credential;
  try {
    const head = `POST /upload HTTP/1.1\r\nHost: ${HOST}\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n`;
    tls.write(head);
    const piece = `${UPLOAD_PIECE}${placeholder}`;
    for (let count = 0; count < UPLOAD_PIECES; count += 1) {
      if (!tls.write(`${piece.length.toString(16)}\r\n${piece}\r\n`)) {
        await Promise.race([once(tls, 'drain'), delay(5000)]);
      }
    }
    tls.write('0\r\n\r\n');
    const { sha256 } = JSON.parse(await readAnswer(tls)) as { sha256: string };
    const make = (value: string): string => `${UPLOAD_PIECE}${value}`.repeat(UPLOAD_PIECES);
    requireThat(isOfValue(scene, sha256, { since, make }), 'the upload arrived otherwise');
  } finally {
    tls.destroy();
  }
}

async function rotate(scene: SoakScene): Promise<void> {
  const value = valueOf(scene.values.length + 1);
  // Known before it is stored: a request may carry it as soon as it is.
  scene.values.push(value);
  const path = `/v1/vaults/${scene.vaultId}/credentials/${scene.credential.id}`;
  const { status, body } = await scene.keyveil.admin('POST', path, {
    auth: { type: 'environment_variable', secret_value: value },
  });
  requireThat(status === 200, `the rotation was answered ${status} ${JSON.stringify(body)}`);
  await delay(ROTATE_MS);
}

/** Opens a session, uses it, archives it with a tunnel open, and sees that both the tunnel and the login are gone. */
async function comeAndGo(scene: SoakScene): Promise<void> {
  const session = await scene.keyveil.createSession({ vault_ids: [scene.vaultId] });
  await useHttp1(scene, session, 3);
  const open = await scene.keyveil.tunnel(session, AUTHORITY);
  const cut = Promise.race([untilClosed(open), delay(ARCHIVE_MS_MAX, 'open', { ref: false })]);
  open.resume();
  const { status } = await scene.keyveil.admin('POST', `/v1/sessions/${session.id}/archive`);
  requireThat(status === 200, `the archive was answered ${status}`);
  requireThat((await cut) !== 'open', 'a tunnel of an archived session stayed open');
  const { socket, head } = await scene.keyveil.connect(session, AUTHORITY);
  socket.destroy();
  requireThat(/^HTTP\/1\.1 4/.test(head), `an archived session was answered ${head}`);
}

async function readAdmin(scene: SoakScene): Promise<void> {
  for (const path of ['/v1/audit_events?limit=20', '/v1/vaults', '/v1/sessions?limit=5', '/metrics', '/readyz']) {
    const { status, body } = await scene.keyveil.admin('GET', path);
    requireThat(status === 200, `${path} was answered ${status} ${JSON.stringify(body).slice(0, 300)}`);
  }
  await delay(500);
}

/** Each kind of traffic, and how many clients do it at once. */
export const LOADS: readonly (readonly [name: string, clients: number, run: (scene: SoakScene) => Promise<void>])[] = [
  ['http1', 3, (scene) => useHttp1(scene)],
  ['http2', 1, useHttp2],
  ['websocket', 2, useWebSocket],
  ['events', 2, useEvents],
  ['upload', 1, upload],
  ['rotation', 1, rotate],
  ['session', 1, comeAndGo],
  ['admin', 1, readAdmin],
];
