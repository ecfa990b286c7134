// Many tunnels of a daemon that is a process of its own, and what that process holds.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls';
import { setTimeout as delay } from 'node:timers/promises';
import type { DaemonProcess } from './daemon-process.ts';
import { readHead, type TestSession } from './operator.ts';

/** As many as the default limit of a session admits, less some for other tests. */
const TUNNELS_PER_SESSION = 500;
const OPENING_AT_ONCE = 32;
const POLL_MS = 100;

/** Open sockets of a process (Linux, proc(5)). */
export function socketsOf(pid: number): number {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).filter((name) => {
    try {
      return readlinkSync(`${directory}/${name}`).startsWith('socket:');
    } catch {
      // Closed since the directory was read.
      return false;
    }
  }).length;
}

/** Why so many files can't be open in one process; false when they can. */
export function tooManyFiles(needed: number): string | false {
  const line = /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'));
  const limit = line?.[1] === 'unlimited' ? Infinity : Number(line?.[1]);
  if (limit >= needed) return false;
  return `${needed} open files are needed, and this process may have ${limit}: raise it with ulimit -n`;
}

/** Polls until the value is as wanted; gives the last one that was seen, also when time is up. */
export async function settled<Value>(
  read: () => Value,
  isWanted: (value: Value) => boolean,
  timeoutMs = 60_000,
): Promise<Value> {
  const endsAt = performance.now() + timeoutMs;
  for (;;) {
    const value = read();
    if (isWanted(value) || performance.now() > endsAt) return value;
    await delay(POLL_MS);
  }
}

/** Polls until the value has not changed for a second. */
export async function steady(read: () => number): Promise<number> {
  let last = read();
  for (let unchanged = 0; unchanged * POLL_MS < 1000; unchanged += 1) {
    await delay(POLL_MS);
    const next = read();
    if (next !== last) unchanged = -1;
    last = next;
  }
  return last;
}

export type OpenTunnel = (protocol: 'http/1.1' | 'h2') => Promise<TLSSocket>;

/** Opens tunnels to one host, with a new session whenever the one before has as many as it may. */
export async function createTunnelOpener(keyveil: DaemonProcess, host: string): Promise<OpenTunnel> {
  const secureContext = createSecureContext({ ca: await keyveil.caPem() });
  let session: Promise<TestSession> | null = null;
  let opened = 0;
  return async (protocol) => {
    if (opened % TUNNELS_PER_SESSION === 0) session = keyveil.createSession({ vault_ids: [] });
    opened += 1;
    const { authorization } = await (session as Promise<TestSession>);
    const socket = connectTcp(keyveil.proxyPort, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(`CONNECT ${host}:443 HTTP/1.1\r\nProxy-Authorization: ${authorization}\r\n\r\n`);
    const head = await readHead(socket);
    if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
    const tls = connectTls({ socket, servername: host, secureContext, ALPNProtocols: [protocol] });
    tls.on('error', () => undefined);
    await new Promise<void>((resolve, reject) => {
      tls.once('secureConnect', resolve);
      tls.once('close', () => reject(new Error('The TLS handshake failed.')));
    });
    return tls;
  };
}

/** Runs so many of a kind, some at a time. */
export async function inParallel<Value>(count: number, run: (index: number) => Promise<Value>): Promise<Value[]> {
  const results: Value[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      const index = next;
      next += 1;
      results[index] = await run(index);
    }
  };
  await Promise.all(Array.from({ length: OPENING_AT_ONCE }, work));
  return results;
}
