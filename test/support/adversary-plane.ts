// The data plane alone with short times and small numbers, for attacks that wear it out and for names that change.
import { connect as connectTcp } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { acceptOf } from '../../proxy/websocket.ts';
import { readAnswer, VALUE_A } from './adversary.ts';
import { placeholderOf, sessionPolicy } from './policies.ts';
import { startTestProxy, type TestProxy } from './proxy.ts';
import { openRawServer } from './raw-server.ts';
import { createTestAuthority } from './test-authority.ts';
import { startUpstream, type ReceivedRequest } from './upstream.ts';

/** Grows a body more than a swap may, when it is there often enough. */
const LONG_VALUE = 'long-'.padEnd(200, 'x');

export const PLANE_LIMITS = { tunnelsPerSessionMax: 8, unauthenticatedSocketsMax: 16 } as const;

export interface PlaneScene {
  readonly proxy: TestProxy;
  readonly received: ReceivedRequest[];
  /** Stands for a value of 38 bytes. */
  readonly placeholder: string;
  /** Stands for a value of 200 bytes. */
  readonly longPlaceholder: string;
  /** Connections that were made to a server on loopback that no name may lead to. */
  inwardCount(): number;
  /** What look-ups are answered, one after the other; the last one stays. */
  setAnswers(replies: readonly (readonly string[])[]): void;
  /** A CONNECT and a request to a host; the answer to the former when it is refused, else `tunnel` and the latter's. */
  ask(host: string): Promise<string>;
  /** Bytes to the proxy port; one answer. */
  send(bytes: string): Promise<string>;
  /** Bytes into a tunnel that was opened, without TLS; one answer. */
  raw(bytes: Buffer): Promise<string>;
  tunnel(protocol?: 'h2'): Promise<TLSSocket>;
  alive(): Promise<void>;
  close(): Promise<void>;
}

/** Times are short for attacks that let them pass, and else long enough for a busy machine. */
export async function openPlaneScene(waitMs = 20_000): Promise<PlaneScene> {
  const authority = createTestAuthority();
  const received: ReceivedRequest[] = [];
  const upstream = await startUpstream({
    leaf: authority.leafFor(['api.test']),
    respond(request, response) {
      if (request.url !== '/alive') received.push(request);
      response.end('ok');
    },
  });
  upstream.server.on('upgrade', (request, socket) => {
    socket.on('error', () => undefined);
    const accept = acceptOf(String(request.headers['sec-websocket-key']));
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
  });
  const inward = await openRawServer((socket) => socket.destroy());
  let replies: readonly (readonly string[])[] = [[]];
  const [placeholder, longPlaceholder] = [placeholderOf('A'), placeholderOf('L')];
  const proxy = await startTestProxy({
    authority,
    overrides: { 'api.test:443': upstream.port },
    policy: sessionPolicy([
      { placeholder, value: VALUE_A, hosts: ['api.test'] },
      { placeholder: longPlaceholder, value: LONG_VALUE, hosts: ['api.test'] },
    ]),
    settings: {
      ...PLANE_LIMITS,
      connectRequestTimeoutMs: waitMs,
      firstBytesTimeoutMs: waitMs,
      handshakeTimeoutMs: waitMs,
      requestHeadersTimeoutMs: waitMs,
    },
    upstream: {
      connectTimeoutMs: 500,
      resolve: () =>
        Promise.resolve(replies.length > 1 ? replies[0] : replies.at(-1)).then((answer) => {
          replies = replies.length > 1 ? replies.slice(1) : replies;
          return answer ?? [];
        }),
    },
  });
  const tunnel = (protocol?: 'h2'): Promise<TLSSocket> =>
    proxy.tunnel('api.test:443', protocol === undefined ? {} : { ALPNProtocols: [protocol] });
  return {
    proxy,
    received,
    placeholder,
    longPlaceholder,
    inwardCount: () => inward.connectionCount,
    setAnswers: (next) => (replies = next),
    async ask(host) {
      const target = `${host}:${String(inward.port)}`;
      const { socket, head } = await proxy.connect(target);
      if (!head.startsWith('HTTP/1.1 200')) return head + (await readAnswer(socket));
      const tls = connectTls({ socket, servername: host, ca: proxy.caPem });
      tls.on('error', () => undefined);
      tls.write(`GET / HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`);
      return `tunnel ${await readAnswer(tls)}`;
    },
    async send(bytes) {
      const socket = connectTcp(proxy.port, '127.0.0.1');
      const answer = readAnswer(socket);
      socket.write(bytes);
      return answer;
    },
    async raw(bytes) {
      const { socket } = await proxy.connect('api.test:443');
      const answer = readAnswer(socket);
      socket.write(bytes);
      return answer;
    },
    tunnel,
    async alive() {
      const tls = await tunnel();
      tls.write('GET /alive HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
      const answer = await readAnswer(tls);
      if (!answer.startsWith('HTTP/1.1 200')) throw new Error(`no longer served: ${answer}`);
    },
    async close() {
      await proxy.close();
      await upstream.close();
      await inward.close();
    },
  };
}
