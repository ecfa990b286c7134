// From a name or an address literal to the socket, through the real proxy: what a resolver answers decides what is dialled.
import { once } from 'node:events';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import type { AddressInfo, Socket } from 'node:net';
import { test, type Test } from 'tap';
import { parseCidr, type Cidr } from '../../model/ip-class.ts';
import { Secret } from '../../model/secret.ts';
import type { Resolve } from '../../proxy/upstream/resolve.ts';
import { startCorporateProxy } from '../support/corporate-proxy.ts';
import { readAll, readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { answer, openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test', '::1', '127.0.0.1']);
/** Stand in for what is public: everything else of loopback is what must not be reached. */
const ALLOWED = ['127.0.0.1/32', '127.1.0.0/16', '::1/128', '192.0.2.0/24'].map((text) => parseCidr(text) as Cidr);

/** RFC 6066 section 3: an address is no server name; the certificate must be for it all the same. */
const LITERAL = { servername: '', host: '::1' };

interface Site {
  readonly keyveil: TestProxy;
  readonly port: number;
  /** The address of this side of each connection: the one that was dialled. */
  readonly dialled: string[];
  /** Names that were asked for. */
  readonly asked: string[];
  /** Closes the server's side of them all. */
  closeConnections(): void;
}

/** A server on every address of this machine, and a proxy whose names the test resolves. */
async function openSite(
  t: Test,
  answers: readonly (readonly string[] | Error)[],
  fields = 'Connection: close\r\n',
): Promise<Site> {
  const dialled: string[] = [];
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const server = createTlsServer({ ...leaf, ALPNProtocols: ['http/1.1'] }, (socket) => {
    dialled.push((socket.localAddress ?? '').replace(/^::ffff:/, ''));
    socket.on('error', () => socket.destroy());
    socket.on('data', () => socket.write(answer('ok', fields)));
  });
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
  });
  server.listen(0, '::');
  await once(server, 'listening');
  const resolve: Resolve = (host) => {
    const next = answers[Math.min(asked.push(host) - 1, answers.length - 1)] ?? [];
    return next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
  };
  const keyveil = await startTestProxy({
    authority,
    overrides: {},
    policy: sessionPolicy([]),
    upstream: { resolve, allowedCidrs: ALLOWED, connectTimeoutMs: 5000 },
  });
  const closeConnections = (): void => sockets.forEach((socket) => socket.destroy());
  t.teardown(async () => {
    await keyveil.close();
    closeConnections();
    server.close();
    await once(server, 'close');
  });
  return { keyveil, port: (server.address() as AddressInfo).port, dialled, asked, closeConnections };
}

/** One request in a tunnel of its own; the head of the answer. */
async function ask(site: Site, host = 'api.test'): Promise<string> {
  const target = `${host}:${site.port}`;
  const tls = await site.keyveil.tunnel(target, host.startsWith('[') ? LITERAL : {});
  tls.write(`GET / HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`);
  return readAll(tls);
}

const failure = (code: string): Error => Object.assign(new Error(code), { code });

test('a name that changes its answer after the CONNECT leads nowhere: each dial goes to an address that it looked at', async (t) => {
  const rebound = await openSite(t, [['127.0.0.1'], ['127.0.0.2']]);
  const event = rebound.keyveil.nextEvent();
  const refused = await ask(rebound);
  t.match(refused, /^HTTP\/1\.1 403 [^]*destination_ip_prohibited; details="address_denied: api\.test"/);
  t.notMatch(refused, /127\.0\.0/);
  t.match(await event, { outcome: 'refused', reason: 'address_denied', status: 403 });
  t.strictSame(rebound.dialled, []);

  const late = await openSite(t, [['127.0.0.1'], ['127.0.0.1'], ['127.0.0.2']]);
  t.match(await ask(late), /^HTTP\/1\.1 200 /);
  t.strictSame(late.dialled, ['127.0.0.1'], 'the address that was looked at is the one that was dialled');
  t.equal(late.asked.length, 2, 'once at the CONNECT, once for the dial, and not again between look and dial');
  const { head } = await late.keyveil.connect(`api.test:${late.port}`);
  t.match(head, /^HTTP\/1\.1 403 /);
  t.strictSame(late.dialled, ['127.0.0.1']);
});

test('a name is not asked for again while a connection to it waits, and is once that has gone', async (t) => {
  const site = await openSite(t, [['127.0.0.1'], ['127.0.0.1'], ['127.0.0.2']], '');
  t.match(await ask(site), /^HTTP\/1\.1 200 /);
  t.equal(site.asked.length, 2);
  t.match(await ask(site), /^HTTP\/1\.1 200 /, 'what the name says now is no matter: nothing new is dialled');
  t.equal(site.asked.length, 2);
  t.strictSame(site.dialled, ['127.0.0.1']);
  site.closeConnections();
  let head = '';
  while (site.asked.length === 2) ({ head } = await site.keyveil.connect(`api.test:${site.port}`));
  t.match(head, /^HTTP\/1\.1 403 /);
});

test('of mixed answers only what passes is dialled', async (t) => {
  const site = await openSite(t, [['127.0.0.2', '10.0.0.1', '169.254.169.254', '127.0.0.1', '::ffff:127.0.0.3']]);
  t.match(await ask(site), /^HTTP\/1\.1 200 /);
  t.strictSame(site.dialled, ['127.0.0.1']);
});

test('a name whose every address is inside, at the end of whatever aliases, is refused at the CONNECT', async (t) => {
  for (const addresses of [['127.0.0.2'], ['169.254.169.254'], ['fd00::1', '10.0.0.1'], ['64:ff9b::7f00:2']]) {
    const site = await openSite(t, [addresses]);
    const event = site.keyveil.nextEvent();
    const { socket, head } = await site.keyveil.connect(`alias.test:${site.port}`);
    t.match(head, /^HTTP\/1\.1 403 /);
    t.notMatch(head + (await readAll(socket)), new RegExp(addresses.join('|')), 'no address is told');
    t.match(await event, { outcome: 'refused', reason: 'address_denied', method: 'CONNECT' });
    t.strictSame(site.dialled, []);
  }
});

test('an empty answer, a failing one and none in time are told apart', async (t) => {
  const cases: readonly (readonly [readonly string[] | Error, string])[] = [
    [[], 'dns_error'],
    [failure('ENOTFOUND'), 'dns_error'],
    [failure('EAI_AGAIN'), 'dns_error'],
    [failure('ETIMEOUT'), 'dns_timeout'],
  ];
  for (const [given, type] of cases) {
    const site = await openSite(t, [given]);
    const event = site.keyveil.nextEvent();
    const { head } = await site.keyveil.connect(`api.test:${site.port}`);
    t.match(head, /^HTTP\/1\.1 502 /);
    t.match(head, `Proxy-Status: keyveil; error=${type}; details="upstream_connect_failed: api.test"`);
    t.match(await event, { outcome: 'failed', reason: 'upstream_connect_failed', status: 502 });
  }
});

test('a very long answer is looked at whole, and a bounded part of what passes is dialled', async (t) => {
  const inside = Array.from({ length: 2000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const site = await openSite(t, [[...inside, '127.0.0.1']]);
  t.match(await ask(site), /^HTTP\/1\.1 200 /);
  t.strictSame(site.dialled, ['127.0.0.1']);
  // Nothing listens there, and the one that answers is beyond what is tried.
  const many = Array.from({ length: 2000 }, (_, index) => `127.1.${index >> 8}.${index & 255}`);
  const dead = await openSite(t, [[...many, '127.0.0.1']]);
  const lonely = { ...dead, port: 1 };
  t.match(await ask(lonely), /^HTTP\/1\.1 502 [^]*connection_refused/);
});

test('an address that refuses or is silent gives way to the next', async (t) => {
  const site = await openSite(t, [['192.0.2.1', '::1', '127.0.0.1']]);
  t.match(await ask(site), /^HTTP\/1\.1 200 /, 'nobody is at the first');
  t.strictSame(site.dialled, ['::1']);
});

test('IPv6 alone: by name and as a literal, whose brackets Host has too', async (t) => {
  const named = await openSite(t, [['::1']]);
  t.match(await ask(named), /^HTTP\/1\.1 200 /);
  t.strictSame(named.dialled, ['::1']);
  const literal = await openSite(t, [failure('ENOTFOUND')]);
  const event = literal.keyveil.nextEvent();
  t.match(await ask(literal, '[::1]'), /^HTTP\/1\.1 200 /);
  t.strictSame(literal.asked, [], 'a literal is not looked up');
  t.strictSame(literal.dialled, ['::1']);
  t.match(await event, { host: '[::1]', port: literal.port, outcome: 'forwarded' });
  const tls = await literal.keyveil.tunnel(`[::1]:${literal.port}`, LITERAL);
  const { port } = literal;
  for (const [host, status] of [
    [`[0:0:0:0:0:0:0:1]:${port}`, 200],
    ['[::1]', 421],
    [`[::2]:${port}`, 421],
    [`::1:${port}`, 400],
    [`[::1%25lo]:${port}`, 400],
    [`[::ffff:127.0.0.1]:${port}`, 421],
  ] as const) {
    tls.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    t.match(await readHead(tls), new RegExp(`^HTTP/1\\.1 ${status} `), host);
    tls.read();
  }
  tls.destroy();
  const { head } = await literal.keyveil.connect(`[::ffff:127.0.0.2]:${port}`);
  t.match(head, /^HTTP\/1\.1 403 /);
});

test('behind a chained proxy a range that is taken out refuses what a waiting connection could still reach', async (t) => {
  const server = await openRawServer((socket) => void socket.write(answer('')), {
    tls: authority.leafFor(['10.1.2.3', 'api.test']),
  });
  const company = await startCorporateProxy({ '10.1.2.3:443': server.port, 'api.test:443': server.port }, 'a:b');
  const wide = { ...sessionPolicy([]), allowedPrivateCidrs: [parseCidr('10.0.0.0/8') as Cidr] };
  const authorization = Secret.fromText(`Basic ${Buffer.from('a:b').toString('base64')}`);
  const chainedProxy = { scheme: 'http', authority: { host: '127.0.0.1', port: company.port }, authorization } as const;
  const resolve: Resolve = () => Promise.resolve(['10.1.2.3']);
  const keyveil = await startTestProxy({ authority, overrides: {}, policy: wide, upstream: { resolve, chainedProxy } });
  t.teardown(async () => {
    await keyveil.close();
    await company.close();
    await server.close();
  });
  const get = async (tls: TLSSocket, host: string): Promise<string> => {
    tls.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    return readHead(tls);
  };
  for (const host of ['10.1.2.3', 'api.test']) {
    keyveil.setPolicy(wide);
    const tls = await keyveil.tunnel(`${host}:443`, host === 'api.test' ? {} : { servername: '', host });
    t.match(await get(tls, host), /^HTTP\/1\.1 200 /);
    keyveil.setPolicy({ ...wide, allowedPrivateCidrs: [] });
    t.match((await keyveil.connect(`${host}:443`)).head, /^HTTP\/1\.1 403 /, `${host}: a new tunnel`);
    // Of a name nothing can be told without asking, so what is open goes on; a literal is refused in open tunnels too.
    const next = await get(tls, host);
    t.match(next, host === 'api.test' ? /^HTTP\/1\.1 200 / : /^HTTP\/1\.1 403 /, `${host}: the open tunnel`);
    tls.destroy();
  }
});
