// A data plane with one upstream for the fuzzers, and what must hold after every input.
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream } from '../support/upstream.ts';
import { readHead } from '../support/operator.ts';

export const HOST = 'api.test';
const VALUE = 'the-real-value+of/the=fuzzed-key';
export const PLACEHOLDER = placeholderOf('Fz');
/** Of a credential for another host: stays as it is. */
export const UNCOVERED = placeholderOf('Un');
const DEADLINE_MS = 20_000;
const CHECK_EVERY = 25;
// How long an answer is waited for before the client ends its side, and how long it may pause.
const FIRST_BYTE_MS = 25;
const QUIET_MS = 6;
const SETTLE_TRIES = 400;
const SETTLE_MS = 60;

export interface ProxyScene {
  readonly keyveil: TestProxy;
  /** Writes the pieces, ends the sending side, and resolves with all that came back, Latin-1, when the other end closes. */
  exchange(socket: Socket | TLSSocket, pieces: readonly string[]): Promise<string>;
  /** What is wrong after an input whose answers were these; begins the next. */
  judge(answers: string): Promise<string | null>;
  close(): Promise<void>;
}

async function withDeadline<Result>(work: Promise<Result>, what: string): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`after ${DEADLINE_MS} ms ${what}`)), DEADLINE_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function exchange(socket: Socket | TLSSocket, pieces: readonly string[]): Promise<string> {
  const chunks: Buffer[] = [];
  let seen = 0;
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => socket.destroy());
  const closed = new Promise<void>((resolve) => {
    if (socket.destroyed) resolve();
    else socket.once('close', () => resolve());
  });
  for (const piece of pieces) {
    if (!socket.writable) break;
    socket.write(piece, 'latin1');
    await new Promise((resolve) => setImmediate(resolve));
  }
  await delay(FIRST_BYTE_MS);
  while (chunks.length > seen) {
    seen = chunks.length;
    await delay(QUIET_MS);
  }
  if (socket.writable) socket.end();
  try {
    await withDeadline(closed, 'the connection is still open');
  } finally {
    socket.destroy();
  }
  return Buffer.concat(chunks).toString('latin1');
}

// What the upstream's parser objects to was written by Keyveil; but a cut-off request is the client's doing, and so is a
// method that Node doesn't know.
const CUT_OFF = new Set(['HPE_INVALID_EOF_STATE', 'HPE_INVALID_METHOD', 'ECONNRESET', 'EPIPE']);

/** Opens the scene; `resolve` knows no name, so that nothing outside is asked. */
export async function openProxyScene(): Promise<ProxyScene> {
  const authority = createTestAuthority();
  const upstream = await startUpstream({
    leaf: authority.leafFor([HOST]),
    respond: (request, response) => {
      const kind = request.header('content-type') ?? 'text/plain';
      response.setHeader('Content-Type', /[^\t\x20-\x7e]/.test(kind) ? 'text/plain' : kind);
      response.end(Buffer.concat([Buffer.from(`echo ${request.url} ${request.header('x-key') ?? ''} `), request.body]));
    },
  });
  const malformed: string[] = [];
  upstream.server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    // A plain request to port 443 is what the client asked for.
    if (!CUT_OFF.has(error.code ?? '') && error.code?.startsWith('ERR_SSL_') !== true)
      malformed.push(`${error.code} ${error.message}`);
    socket.destroy();
  });
  const keyveil = await startTestProxy({
    authority,
    overrides: { [`${HOST}:443`]: upstream.port },
    policy: sessionPolicy([
      { placeholder: PLACEHOLDER, value: VALUE, hosts: [HOST] },
      { placeholder: UNCOVERED, value: 'never-sent-value-of-another-host', hosts: ['other.test'] },
    ]),
    bodies: { bufferBytes: 4096, growthBytes: 64 * 1024 },
    upstream: { resolve: () => Promise.reject(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })) },
  });
  let count = 0;

  // Requests that were let through and have not arrived: one whose client has gone may arrive a moment later, or never.
  let admitted = 0;
  const countAdmitted = (): number => keyveil.events.filter(({ outcome }) => outcome !== 'refused').length;

  /** A request whose client has gone is written down a moment later. */
  async function settled(): Promise<void> {
    for (let tries = 0; tries < SETTLE_TRIES; tries += 1) {
      if (upstream.received.length <= admitted + countAdmitted()) return;
      await delay(5);
    }
  }

  async function takeFaults(answers: string): Promise<string | null> {
    await withDeadline(keyveil.proxy.idle(), 'requests are open');
    await settled();
    const events = keyveil.events.splice(0);
    const received = upstream.received.splice(0);
    const lines = keyveil.log.splice(0).filter((line) => /inside Keyveil|could not be opened|port failed/.test(line));
    const upstreamFaults = malformed.splice(0);
    if (lines.length > 0) return `logged: ${lines.join('\n')}`;
    if (upstreamFaults.length > 0) return `the upstream got what is no request: ${upstreamFaults.join(', ')}`;
    if (events.some(({ reason }) => reason === 'internal_error')) return `recorded: ${JSON.stringify(events)}`;
    if (answers.includes(VALUE)) return 'the value came back';
    admitted += events.filter(({ outcome }) => outcome !== 'refused').length - received.length;
    if (admitted < 0) {
      admitted = 0;
      const seen = received.map(({ method, url }) => `${method} ${url}`);
      return `${seen.join(', ')} arrived, but what was recorded is ${JSON.stringify(events)}`;
    }
    for (const request of received) {
      const text = `${request.url}\n${request.rawHeaders.join('\n')}\n${request.body.toString('latin1')}`;
      if (text.includes('never-sent-value')) return 'the value of another host was sent';
      if (request.header('proxy-authorization') !== undefined) return 'the login was sent on';
    }
    return null;
  }

  async function checkServing(): Promise<string | null> {
    // All that was under way has arrived or never will.
    await delay(SETTLE_MS);
    upstream.received.length = 0;
    admitted = 0;
    const tls = await withDeadline(keyveil.tunnel(`${HOST}:443`), 'no tunnel is opened');
    tls.write(`GET /check HTTP/1.1\r\nHost: ${HOST}\r\nX-Key: ${PLACEHOLDER}\r\n\r\n`);
    const head = await withDeadline(readHead(tls), 'a valid request is not answered');
    const value = upstream.received.at(-1)?.header('x-key');
    tls.destroy();
    if (!head.startsWith('HTTP/1.1 200 ')) return `a valid request was answered ${head}`;
    return value === VALUE ? null : 'a valid request was not swapped';
  }

  return {
    keyveil,
    exchange,
    async judge(answers) {
      const fault = await takeFaults(answers);
      count += 1;
      if (fault !== null || count % CHECK_EVERY !== 0) return fault;
      return (await checkServing()) ?? (await takeFaults(''));
    },
    async close() {
      await keyveil.close();
      await upstream.close();
    },
  };
}
