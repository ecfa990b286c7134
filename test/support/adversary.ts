// Cases of an attacker as tables: what is sent, what must come back, and that nothing else happens.
import { connect as connectTcp, type Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';
import { test, type Test } from 'tap';
import { startTestDaemon, type TestDaemon, type TestSession } from './daemon.ts';
import { createTestAuthority } from './test-authority.ts';
import { startUpstream, type ReceivedRequest, type TestUpstream } from './upstream.ts';

/** What stands in for the two credentials; neither may be seen by a sandbox. */
export const VALUE_A = 'value-of-a-that-only-api-test-may-see';
export const VALUE_B = 'value-of-b-that-belongs-to-the-other-one';

/** One attack. */
export interface AttackCase<Scene = AdversaryScene> {
  readonly name: string;
  /** Gives all that came back, as Latin-1 text; empty for a connection that was closed without a word. */
  readonly attack: (scene: Scene) => Promise<string>;
  /** What must have come back. */
  readonly expected: RegExp;
  /** What the upstream received must be this many requests; 0 unless given. */
  readonly arrives?: number;
  /** Looks at what arrived. */
  readonly check?: (t: Test, received: readonly ReceivedRequest[]) => void;
}

/** The cases of one class. */
export interface AttackClass<Scene = AdversaryScene> {
  readonly name: string;
  readonly cases: readonly AttackCase<Scene>[];
}

/** What every case needs to be judged. */
interface JudgedScene {
  /** Requests that arrived at any upstream. */
  readonly received: ReceivedRequest[];
  /** Rejects when the daemon does not serve any more. */
  alive(): Promise<void>;
  close(): Promise<void>;
}

const ANSWER_HEAD = /^(?:HTTP\/1\.1 1\d\d [^]*?\r\n\r\n)*HTTP\/1\.1 (\d+) [^]*?\r\n\r\n/;

function isWholeAnswer(text: string): boolean {
  const head = ANSWER_HEAD.exec(text)?.[0];
  if (head === undefined) return false;
  const length = /^content-length: (\d+)/im.exec(head)?.[1];
  if (length !== undefined) return text.length >= head.length + Number(length);
  return /^transfer-encoding: chunked/im.test(head) ? text.endsWith('\r\n0\r\n\r\n') : text.startsWith('HTTP/1.1 200');
}

/** Reads one answer whole, or what comes until the connection is closed; then closes it. */
export function readAnswer(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (isWholeAnswer(text)) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(text));
    socket.resume();
  });
}

export interface AdversaryScene extends JudgedScene {
  readonly keyveil: TestDaemon;
  readonly api: TestUpstream;
  readonly vaultA: string;
  readonly vaultB: string;
  readonly credentialA: string;
  readonly credentialB: string;
  readonly placeholderA: string;
  readonly placeholderB: string;
  /** Has credential A, of `api.test`. */
  readonly sessionA: TestSession;
  /** Has credential B, of `api.test` as well. */
  readonly sessionB: TestSession;
  readonly tokenA: string;
  readonly tokenB: string;
  /** Bytes to the proxy port; one answer. */
  readonly proxy: (bytes: string | Buffer) => Promise<string>;
  /** CONNECT with session A's login and more fields; one answer. */
  connectTo(target: string, ...fields: string[]): Promise<string>;
  /** Bytes into a tunnel's TLS of session A; one answer. */
  readonly inside: (
    bytes: string | Buffer,
    options?: { readonly session?: TestSession; readonly host?: string; readonly tls?: ConnectionOptions },
  ) => Promise<string>;
  /** Bytes into a tunnel of session A to `api.test:443` itself; one answer. */
  raw(bytes: string | Buffer): Promise<string>;
}

export interface AdversaryOptions {
  readonly environment?: Readonly<Record<string, string>>;
}

/** Where the hosts of these tests are; `other.test` is covered by no credential. */
const HOSTS = ['api.test', 'other.test', 'api.test.evil.test', 'sub.api.test', '127.0.0.1'];

/** A daemon with two sessions that have a credential each, and one upstream for all hosts, which repeats nothing. */
export async function openAdversaryScene(options: AdversaryOptions = {}): Promise<AdversaryScene> {
  const authority = createTestAuthority();
  const received: ReceivedRequest[] = [];
  const api = await startUpstream({
    leaf: authority.leafFor(HOSTS),
    respond(request, response) {
      if (request.url === '/alive') {
        response.end('alive');
        return;
      }
      received.push(request);
      response.setHeader('X-Seen', request.url);
      response.end(
        request.url.startsWith('/echo') ? `${request.body.toString()}${request.header('x-key') ?? ''}` : 'ok',
      );
    },
  });
  const overrides = Object.fromEntries(
    HOSTS.slice(0, 4).flatMap((host) => [
      [host, api.port],
      [`${host}:8443`, api.port],
    ]),
  );
  const keyveil = await startTestDaemon({
    authority,
    overrides,
    environment: { KEYVEIL_VEIL_IDLE_MS: '10000', ...options.environment },
  });
  const [vaultA, vaultB] = [await keyveil.createVault('a'), await keyveil.createVault('b')];
  const auth = (secret_value: string) => ({
    secret_name: 'KEY',
    secret_value,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
    injection_location: { header: true, body: true },
  });
  const a = await keyveil.createCredential(vaultA, auth(VALUE_A));
  const b = await keyveil.createCredential(vaultB, auth(VALUE_B));
  const sessionA = await keyveil.createSession({ vault_ids: [vaultA] });
  const sessionB = await keyveil.createSession({ vault_ids: [vaultB] });
  const tokenOf = (session: TestSession): string => new URL(session.variables['HTTPS_PROXY'] as string).password;
  const open = async (bytes: string | Buffer): Promise<string> => {
    const socket = connectTcp(keyveil.daemon.proxyAddress.port, '127.0.0.1');
    const answer = readAnswer(socket);
    socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
    return answer;
  };
  return {
    keyveil,
    api,
    received,
    vaultA,
    vaultB,
    credentialA: a.id,
    credentialB: b.id,
    placeholderA: a.placeholder,
    placeholderB: b.placeholder,
    sessionA,
    sessionB,
    tokenA: tokenOf(sessionA),
    tokenB: tokenOf(sessionB),
    proxy: open,
    connectTo: (target, ...fields) =>
      open(
        [
          `CONNECT ${target} HTTP/1.1`,
          `Host: ${target}`,
          `Proxy-Authorization: ${sessionA.authorization}`,
          ...fields,
          '',
          '',
        ].join('\r\n'),
      ),
    async inside(bytes, { session = sessionA, host = 'api.test', tls = {} } = {}) {
      const socket = await keyveil.tunnel(session, `${host}:443`, tls);
      const answer = readAnswer(socket);
      socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
      return answer;
    },
    async raw(bytes) {
      const { socket, head } = await keyveil.connect(sessionA, 'api.test:443');
      if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
      const answer = readAnswer(socket);
      socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
      return answer;
    },
    async alive() {
      const tls = await keyveil.tunnel(sessionB, 'api.test:443');
      tls.write('GET /alive HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
      const answer = await readAnswer(tls);
      if (!answer.startsWith('HTTP/1.1 200')) throw new Error(`no longer served: ${answer}`);
    },
    async close() {
      await keyveil.close();
      await api.close();
    },
  };
}

/** One request with `Connection: close`, so that its answer ends with the connection. */
export function requestOf(line: string, fields: readonly string[] = [], body = ''): string {
  const length = body === '' ? [] : [`Content-Length: ${String(Buffer.byteLength(body))}`];
  return `${[`${line} HTTP/1.1`, 'Host: api.test', 'Connection: close', ...fields, ...length].join('\r\n')}\r\n\r\n${body}`;
}

/** Runs every case of a class on one scene, each as a test of its own. */
export function runAttacks<Scene extends JudgedScene>(
  attacks: AttackClass<Scene>,
  open: () => Promise<Scene>,
  finish?: (t: Test, scene: Scene) => Promise<void>,
): void {
  test(attacks.name, async (t) => {
    const scene = await open();
    t.teardown(() => scene.close());
    for (const { name, attack, expected, arrives = 0, check } of attacks.cases) {
      await t.test(name, async (t) => {
        scene.received.length = 0;
        const answer = await attack(scene);
        t.match(answer, expected);
        for (const value of [VALUE_A, VALUE_B]) t.notOk(answer.includes(value), 'no value comes back');
        const seen = scene.received.map(({ method, url }) => `${method} ${url}`);
        t.equal(seen.length, arrives, `arrived: ${seen.join(', ')}`);
        check?.(t, scene.received);
        await t.resolves(scene.alive(), 'it serves on');
      });
    }
    await finish?.(t, scene);
  });
}
