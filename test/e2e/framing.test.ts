// Ambiguous framing by every way to the proxy: refused, never whole at the upstream, and nothing behind it is served.
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import t, { test } from 'tap';
import { readAll, readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { answer, openRawServer, type RawServer, type Script } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

interface FramingCase {
  readonly name: string;
  readonly request_base64: string;
}

const HOST = 'api.test';
const cases = JSON.parse(
  readFileSync(new URL('../vectors/framing.json', import.meta.url), 'utf8'),
) as readonly FramingCase[];
/** What is wrong with them shows only in the body, when the head may be on its way; then nothing can be answered. */
const BROKEN_BODIES = new Set(['bad chunk size', 'chunk size overflow']);

let keyveil: TestProxy;
let servers: readonly RawServer[];
/** Start lines of the whole requests that arrived, at whichever server. */
const arrived: string[] = [];

/**
 * Start lines of the requests that are whole for a reader that takes nearly everything: lines may end in LF, and
 * Transfer-Encoding, whatever it says, goes before Content-Length.
 */
function wholeRequests(text: string): string[] {
  const found: string[] = [];
  let rest = text;
  for (;;) {
    const [head] = /^[^]*?\r?\n\r?\n/.exec(rest) ?? [];
    if (head === undefined) return found;
    const after = rest.slice(head.length);
    const isCoded = /^transfer-encoding:/im.test(head);
    const [body] = isCoded ? (/^[^]*?0\r?\n\r?\n/.exec(after) ?? []) : [''];
    const length = isCoded ? (body?.length ?? Infinity) : Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
    if (length > after.length) return found;
    found.push(head.split(/\r?\n/, 1)[0] as string);
    rest = after.slice(length);
  }
}

/** Answers each whole request once, and notes it. */
function createScript(): Script {
  const answered = new WeakMap<Socket, number>();
  return (socket, received) => {
    const requests = wholeRequests(received);
    for (const request of requests.slice(answered.get(socket) ?? 0)) {
      arrived.push(request);
      socket.write(answer('ok'));
    }
    answered.set(socket, requests.length);
  };
}

t.before(async () => {
  const authority = createTestAuthority();
  const [secure, plain] = [
    await openRawServer(createScript(), { tls: authority.leafFor([HOST]) }),
    await openRawServer(createScript()),
  ];
  servers = [secure, plain];
  keyveil = await startTestProxy({
    authority,
    overrides: { [`${HOST}:443`]: secure.port, [`${HOST}:80`]: plain.port },
    policy: sessionPolicy([]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  for (const server of servers) await server.close();
});

interface Route {
  readonly open: () => Promise<Socket>;
  /** The request as it is sent by this way. */
  readonly adapt: (request: string) => string;
}

const ROUTES: Readonly<Record<string, Route>> = {
  'over TLS in a tunnel': { open: () => keyveil.tunnel(`${HOST}:443`), adapt: (request) => request },
  'in clear in a tunnel': {
    open: async () => (await keyveil.connect(`${HOST}:80`)).socket,
    adapt: (request) => request,
  },
  'in absolute form': {
    open: () => Promise.resolve(connectTcp(keyveil.port, '127.0.0.1')),
    adapt: (request) =>
      request.replace(/^(\S+) (\S+) (\S+?)(\r?\n)/, `$1 http://${HOST}$2 $3$4Proxy-Authorization: ${keyveil.login}$4`),
  },
};

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`;
/** All statuses, in the order of their answers. */
const statusesOf = (text: string): string =>
  [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status = '']) => status).join(' ');

for (const [way, { open, adapt }] of Object.entries(ROUTES)) {
  test(`ambiguous framing ${way}`, async (t) => {
    const good = adapt(get('/good'));
    const smuggled = adapt(get('/smuggled'));
    for (const { name, request_base64: base64 } of cases) {
      const bad = adapt(Buffer.from(base64, 'base64').toString('latin1'));
      const refusals = BROKEN_BODIES.has(name) ? ['', '400'] : ['400'];

      const alone = await open();
      alone.write(bad + smuggled, 'latin1');
      t.ok(refusals.includes(statusesOf(await readAll(alone))), `${name}: refused`);
      t.strictSame(arrived.splice(0), [], `${name}: neither it nor what is behind it arrives`);

      const later = await open();
      later.write(good);
      t.match(await readHead(later), /^HTTP\/1\.1 200 /);
      later.write(bad + smuggled, 'latin1');
      t.ok(refusals.includes(statusesOf(await readAll(later))), `${name}: refused after an answer`);
      t.strictSame(arrived.splice(0), ['GET /good HTTP/1.1'], `${name}: only what was before it arrives`);

      // The connection may end before the answer to the first; it never gets the refusal as its answer.
      const behind = await open();
      behind.write(good + bad + smuggled, 'latin1');
      const both = statusesOf(await readAll(behind));
      t.ok(['', '200', '200 400'].includes(both), `${name}: behind another: ${both}`);
      const seen = arrived.splice(0);
      t.ok(['', 'GET /good HTTP/1.1'].includes(seen.join()), `${name}: behind another: ${seen.join()} arrives`);
    }
    // What was still on its way would be seen by now, before the answer to this one.
    const last = await open();
    last.write(adapt(get('/last')));
    t.match(await readHead(last), /^HTTP\/1\.1 200 /);
    last.destroy();
    t.strictSame(
      arrived.splice(0).filter((line) => !line.includes('/good')),
      ['GET /last HTTP/1.1'],
    );
  });
}

test('a CONNECT behind a plain request waits for its answer, and opens nothing behind one that was refused', async (t) => {
  const { open, adapt } = ROUTES['in absolute form'] as Route;
  const connect = `CONNECT ${HOST}:443 HTTP/1.1\r\nHost: ${HOST}:443\r\nProxy-Authorization: ${keyveil.login}\r\n\r\n`;
  const refused = await open();
  refused.write(adapt(`GET /bad HTTP/1.1\r\nHost: ${HOST}\r\nHost: evil.test\r\n\r\n`) + connect);
  t.equal(statusesOf(await readAll(refused)), '400');
  const socket = await open();
  socket.write(adapt(get('/good')) + connect);
  t.match(await readHead(socket), /^HTTP\/1\.1 200 OK/);
  t.match(await readHead(socket), /^okHTTP\/1\.1 200 Connection Established/);
  socket.destroy();
});

test('bytes that are no HTTP, behind a plain request whose answer is under way, are answered after it', async (t) => {
  const { open, adapt } = ROUTES['in absolute form'] as Route;
  const socket = await open();
  socket.write(`${adapt(get('/good'))}\0\x01\x02 no HTTP\r\n\r\n`, 'latin1');
  t.equal(statusesOf(await readAll(socket)), '200 400');
});
