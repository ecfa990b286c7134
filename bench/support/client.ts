// The generator's side of a proxy: tunnels through CONNECT, TLS inside them, and requests written by hand.
import { connect, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { Login } from './proxy.ts';

/** How the upstream is reached through a proxy. */
export interface Target {
  readonly proxyPort: number;
  readonly login: Login | null;
  readonly host: string;
  readonly port: number;
  readonly authorization: string;
}

function connectHead({ login, host, port }: Target): string {
  const token = login === null ? '' : Buffer.from(`${login.user}:${login.password}`).toString('base64');
  const authorization = login === null ? '' : `Proxy-Authorization: Basic ${token}\r\n`;
  return `CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n${authorization}\r\n`;
}

/** Opens a tunnel; rejects with the proxy's status line when it is refused. */
function openTunnel(target: Target): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(target.proxyPort, '127.0.0.1', () => socket.write(connectHead(target)));
    socket.setNoDelay(true);
    socket.once('error', reject);
    let answer = '';
    // Some proxies write the head of their answer in pieces.
    socket.on('data', function onData(data: Buffer) {
      answer += data.toString('latin1');
      if (!answer.includes('\r\n\r\n')) return;
      socket.off('data', onData);
      const line = answer.split('\r\n', 1)[0] ?? '';
      if (line.includes(' 200 ')) resolve(socket);
      else reject(new Error(`CONNECT was answered: ${line}`));
    });
  });
}

/** Opens a TLS connection through a tunnel. What is measured is the proxy, so its certificate is not looked at. */
export async function openTls(target: Target, protocol: 'h2' | 'http/1.1' = 'http/1.1'): Promise<TLSSocket> {
  const socket = await openTunnel(target);
  return new Promise((resolve, reject) => {
    const secured = connectTls(
      { socket, servername: target.host, rejectUnauthorized: false, ALPNProtocols: [protocol] },
      () => resolve(secured),
    );
    secured.once('error', reject);
  });
}

/** The head of a request, with the fields that every load sends. */
export function requestHead(target: Target, line: string, fields = ''): string {
  const { host, port, authorization } = target;
  const common = `Authorization: ${authorization}\r\nUser-Agent: bench/1\r\nAccept: */*\r\n`;
  return `${line} HTTP/1.1\r\nHost: ${host}:${port}\r\n${common}Accept-Encoding: gzip, deflate, br\r\n${fields}\r\n`;
}

/** Sends a GET and resolves when the canned answer is there; rejects when it is none. */
export function getOnce(socket: TLSSocket, head: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const onData = (data: Buffer): void => {
      answer += data.toString('latin1');
      const end = answer.indexOf('\r\n\r\n');
      if (end < 0) return;
      const length = Number(/^content-length: (\d+)/im.exec(answer)?.[1] ?? 0);
      if (answer.length < end + 4 + length) return;
      socket.off('data', onData);
      socket.off('close', onClose);
      if (answer.startsWith('HTTP/1.1 200')) resolve();
      else reject(new Error(`The request was answered: ${answer.slice(0, 200)}`));
    };
    const onClose = (): void => reject(new Error('The connection was closed before the answer.'));
    socket.on('data', onData);
    socket.once('close', onClose);
    socket.write(head);
  });
}
