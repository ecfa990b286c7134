// From a name to a connection: resolution, classes of addresses, own listeners, happy eyeballs, overrides, chained proxy.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { test, type Test } from 'tap';
import type { Authority } from '../../../model/authority.ts';
import { createHostSet } from '../../../model/host-pattern.ts';
import { parseCidr, type Cidr } from '../../../model/ip-class.ts';
import { Secret } from '../../../model/secret.ts';
import { dialAddresses, interleaveFamilies } from '../../../proxy/upstream/dial.ts';
import { createSystemResolver, type SystemResolverOptions } from '../../../proxy/upstream/resolve.ts';
import { createUpstream, type UpstreamOptions } from '../../../proxy/upstream/upstream.ts';
import { createVetter, type Endpoint } from '../../../proxy/upstream/vet.ts';
import { destinationOf, LOOPBACK, send } from '../../support/exchange-log.ts';
import { answer, openRawServer, type Script } from '../../support/raw-server.ts';
import { createTestAuthority } from '../../support/test-authority.ts';

const { signal } = new AbortController();
const authority = createTestAuthority();

function upstreamWith(t: Pick<Test, 'teardown'>, options: Partial<UpstreamOptions>): ReturnType<typeof createUpstream> {
  const upstream = createUpstream({
    allowedCidrs: [],
    ownListeners: () => [],
    extraCaPem: authority.caPem,
    resolve: () => Promise.reject(Object.assign(new Error('nothing resolves here'), { code: 'ENOTFOUND' })),
    ...options,
  });
  t.teardown(() => upstream.close());
  return upstream;
}

function endpoint(host: string, port: number, changes: Partial<Endpoint> = {}): Endpoint {
  return {
    sessionId: 'sesn_1',
    authority: { host, port },
    subject: { host: 'api.test', port },
    isOperatorsChoice: false,
    allowedPrivateCidrs: [],
    ...changes,
  };
}

type Callback = (error: NodeJS.ErrnoException | null, addresses: { address: string; family: number }[]) => void;

test('the resolver asks once for a name at a time, bounded in number and time', async (t) => {
  const asked: string[] = [];
  const callbacks: Callback[] = [];
  const resolve = createSystemResolver({
    lookup: (host, _options, callback) => {
      asked.push(host);
      callbacks.push(callback);
    },
    inFlightMax: 2,
    inFlightPerSessionMax: 2,
    queuePerSessionMax: 1,
    timeoutMs: 50,
  });
  const both = [resolve('a.test', signal, 'one'), resolve('a.test', signal, 'two')];
  const failing = resolve('b.test', signal, 'one');
  const queued = resolve('c.test', signal, 'one');
  await t.rejects(resolve('d.test', signal, 'one'), { code: 'EAI_AGAIN' });
  t.strictSame(asked, ['a.test', 'b.test']);
  callbacks[0]?.(null, [
    { address: '192.0.2.1', family: 4 },
    { address: '2001:db8::1', family: 6 },
  ]);
  t.strictSame(await Promise.all(both), [
    ['192.0.2.1', '2001:db8::1'],
    ['192.0.2.1', '2001:db8::1'],
  ]);
  callbacks[1]?.(Object.assign(new Error('no'), { code: 'ENOTFOUND' }), []);
  await t.rejects(failing, { code: 'ENOTFOUND' });
  t.strictSame(asked, ['a.test', 'b.test', 'c.test']);
  const controller = new AbortController();
  const aborted = resolve('c.test', controller.signal, 'two');
  controller.abort(new Error('enough'));
  await t.rejects(aborted, { message: 'enough' });
  await t.rejects(resolve('c.test', AbortSignal.abort('a word'), 'two'), { message: 'given up' });
  await t.rejects(queued, { code: 'ETIMEOUT' });
  callbacks[2]?.(null, []);
  const system = await createSystemResolver()('localhost', signal, 'one');
  t.equal(
    system.every((address) => /^(?:127\.|::1)/.test(address)),
    true,
  );
});

/** A resolver whose answers the test gives. */
function heldResolver(options: SystemResolverOptions) {
  const asked: string[] = [];
  const callbacks = new Map<string, Callback>();
  const resolve = createSystemResolver({
    timeoutMs: 60_000,
    lookup: (host, _options, callback) => {
      asked.push(host);
      callbacks.set(host, callback);
    },
    ...options,
  });
  return {
    asked,
    answer: (host: string) => callbacks.get(host)?.(null, [{ address: '192.0.2.1', family: 4 }]),
    ask: (host: string, session: string, by = signal): Promise<unknown> =>
      resolve(host, by, session).catch((error: unknown) => error),
  };
}

test('names that are not answered hold up their own session, and no other', async (t) => {
  const { ask, answer, asked } = heldResolver({ inFlightMax: 4, inFlightPerSessionMax: 2, queuePerSessionMax: 3 });
  const greedy = new AbortController();
  const slow = ['s1', 's2', 's3', 'shared', 's5'].map((name) => ask(name, 'greedy', greedy.signal));
  t.match(await ask('s6', 'greedy'), { code: 'EAI_AGAIN' }, 'its queue is full');
  t.strictSame(asked, ['s1', 's2'], 'two of its names at a time');
  const others = [ask('fair', 'other'), ask('shared', 'other')];
  t.strictSame(
    asked,
    ['s1', 's2', 'fair', 'shared'],
    'another is served at once, with a name that waits for the first too',
  );
  answer('fair');
  answer('shared');
  t.strictSame(await Promise.all([...others, slow[3]]), [['192.0.2.1'], ['192.0.2.1'], ['192.0.2.1']]);
  greedy.abort(new Error('gone'));
  await Promise.all(slow);
  const patient = ['s7', 's8', 's9'].map((name) => ask(name, 'greedy'));
  t.strictSame(asked.length, 4, 'it still has two under way, and those that nobody waits for leave its queue');
  answer('s1');
  answer('s2');
  t.strictSame(asked.slice(4), ['s7', 's8'], 'nor are they asked');
  for (const name of ['s7', 's8', 's9']) answer(name);
  t.strictSame(await Promise.all(patient), [['192.0.2.1'], ['192.0.2.1'], ['192.0.2.1']]);
});

test('sessions take turns', async (t) => {
  const { ask, answer, asked } = heldResolver({ inFlightMax: 1 });
  const all = [
    ask('x', 'first'),
    ask('a1', 'one'),
    ask('a2', 'one'),
    ask('a3', 'one'),
    ask('b1', 'two'),
    ask('b2', 'two'),
  ];
  for (let index = 0; index < all.length; index += 1) answer(asked[index] as string);
  t.strictSame(asked, ['x', 'a1', 'b1', 'a2', 'b2', 'a3']);
  t.strictSame(await Promise.all(all), Array(all.length).fill(['192.0.2.1']));
});

test('addresses that fail are dropped from an answer, and none left is a refusal that tells no address', async (t) => {
  const answers: Record<string, readonly string[]> = {
    'mixed.test': ['10.0.0.1', '8.8.8.8', '::ffff:127.0.0.1', '2606:4700::1'],
    'private.test': ['10.0.0.1', '169.254.169.254', '64:ff9b::a00:1', 'fe80::1%eth0'],
    'empty.test': [],
  };
  const resolve = (host: string): Promise<readonly string[]> => Promise.resolve(answers[host] ?? []);
  const vetter = createVetter({ resolve, allowedCidrs: [parseCidr('10.1.0.0/16') as Cidr], ownListeners: () => [] });
  t.strictSame(await vetter.vet(endpoint('mixed.test', 443), signal), ['8.8.8.8', '2606:4700::1']);
  await t.rejects(vetter.vetAll(endpoint('mixed.test', 443), signal), { code: 'address_denied' });
  const refusal = await vetter.vet(endpoint('private.test', 443), signal).catch((error: unknown) => error as Error);
  t.match(refusal, {
    code: 'address_denied',
    status: 403,
    message: /^api\.test:443 .*KEYVEIL_ALLOWED_PRIVATE_CIDRS/,
  });
  t.notMatch((refusal as Error).message, /10\.0|169\.254/);
  await t.rejects(vetter.vet(endpoint('empty.test', 443), signal), {
    code: 'upstream_connect_failed',
    message: /has no address/,
  });
  for (const literal of [
    '127.0.0.1',
    '[::1]',
    '10.0.0.1',
    '[::ffff:10.0.0.1]',
    '[64:ff9b::7f00:1]',
    '169.254.169.254',
    '0.0.0.0',
  ]) {
    await t.rejects(vetter.vet(endpoint(literal, 443), signal), { code: 'address_denied' }, literal);
  }
  t.strictSame(await vetter.vet(endpoint('10.1.2.3', 443), signal), ['10.1.2.3'], 'allowed for every session');
  const environment = { allowedPrivateCidrs: [parseCidr('10.0.0.0/24') as Cidr] };
  t.strictSame(await vetter.vet(endpoint('private.test', 443, environment), signal), ['10.0.0.1']);
  t.strictSame(await vetter.vet(endpoint('10.0.0.1', 443, { isOperatorsChoice: true }), signal), ['10.0.0.1']);
});

test("the daemon's own listeners are refused on every local address, whoever chose it", async (t) => {
  const everything = [parseCidr('0.0.0.0/0'), parseCidr('::/0')] as Cidr[];
  const vetter = createVetter({
    resolve: () => Promise.resolve([]),
    allowedCidrs: everything,
    ownListeners: () => [
      { address: '127.0.0.1', port: 7080 },
      { address: '203.0.113.9', port: 7080 },
    ],
    localAddresses: () => ['192.168.7.7', 'fe80::7%eth0', '2001:db8::7'],
  });
  const own = [
    '127.0.0.1',
    '127.9.9.9',
    '0.0.0.0',
    '::',
    '::1',
    '192.168.7.7',
    '2001:db8::7',
    'fe80::7',
    '203.0.113.9',
    '::ffff:127.0.0.1',
    '::ffff:c0a8:707',
    '64:ff9b::7f00:1',
  ];
  for (const address of own) {
    for (const isOperatorsChoice of [false, true]) {
      t.equal(vetter.admits(address, endpoint('api.test', 7080, { isOperatorsChoice })), false, address);
      t.equal(vetter.admits(address, endpoint('api.test', 7081, { isOperatorsChoice })), true, address);
    }
  }
  t.equal(vetter.admits('192.168.7.8', endpoint('api.test', 7080)), true, 'another machine');
  t.equal(vetter.admits('no address', endpoint('api.test', 7081)), false);
  const system = createVetter({
    resolve: () => Promise.resolve([]),
    allowedCidrs: everything,
    ownListeners: () => [{ address: '::', port: 7080 }],
  });
  for (const entry of Object.values(networkInterfaces()).flat()) {
    if (entry?.address.startsWith('fe80') === false)
      t.equal(system.admits(entry.address, endpoint('api.test', 7080)), false, entry.address);
  }
});

async function listen(t: Test, host: string, port = 0): Promise<Server & { port: number }> {
  const server = createServer((socket) => socket.on('error', () => socket.destroy()).end());
  server.listen(port, host);
  await once(server, 'listening');
  t.teardown(() => server.close());
  return Object.assign(server, { port: (server.address() as AddressInfo).port });
}

test('families alternate, a refused address gives way at once, a silent one after the stagger', async (t) => {
  t.strictSame(interleaveFamilies(['1.1.1.1', '2.2.2.2', '::1', '::2', '3.3.3.3']), [
    '1.1.1.1',
    '::1',
    '2.2.2.2',
    '::2',
    '3.3.3.3',
  ]);
  t.strictSame(interleaveFamilies(['::1', '1.1.1.1']), ['::1', '1.1.1.1']);
  t.strictSame(interleaveFamilies([]), []);
  const server = await listen(t, '127.0.0.1');
  const { port } = server;
  const socket = await dialAddresses(['127.0.0.2', '::1', '127.0.0.1'], { port, signal, staggerMs: 60_000 });
  t.equal(socket.remoteAddress, '127.0.0.1', 'two were refused');
  socket.destroy();
  const mapped = await dialAddresses(['::ffff:127.0.0.1'], { port, signal });
  t.equal(mapped.remoteAddress, '::ffff:127.0.0.1');
  mapped.destroy();
  await t.rejects(dialAddresses(['127.0.0.2', '127.0.0.3'], { port, signal }), { code: 'ECONNREFUSED' });
  await t.rejects(dialAddresses([], { port, signal }), { code: 'ENODATA' });
  await t.rejects(dialAddresses(['127.0.0.1'], { port, signal: AbortSignal.abort() }), { name: 'AbortError' });

  // A listener whose queue is full answers nothing more: the kernel drops the SYN.
  const silent = createServer();
  silent.listen({ port, host: '127.0.0.9', backlog: 1, exclusive: true });
  await once(silent, 'listening');
  t.teardown(() => silent.close());
  const staggered = await dialAddresses(['127.0.0.1', '127.0.0.2'], { port, signal, staggerMs: 1 });
  t.equal(staggered.remoteAddress, '127.0.0.1');
  staggered.destroy();
});

test('the address that was vetted is the one that is dialled, whatever the name says next', async (t) => {
  const server = await listen(t, '127.0.0.1');
  const answers = [['127.0.0.1'], ['10.0.0.1']];
  let asked = 0;
  const upstream = upstreamWith(t, {
    allowedCidrs: LOOPBACK,
    resolve: () => Promise.resolve(answers[(asked += 1) - 1] ?? []),
  });
  const destination = destinationOf(server.port);
  const socket = await upstream.dial(destination, signal);
  t.equal(asked, 1, 'one look-up');
  socket.destroy();
  await t.rejects(upstream.dial(destination, signal), { code: 'address_denied' });
  await t.rejects(upstream.vet(destination, signal), { code: 'upstream_connect_failed' }, 'an empty answer');
});

test('a pooled connection is not used for a session whose environment no longer allows its address', async (t) => {
  const server = await openRawServer((socket, received) => {
    if (received.endsWith('\r\n\r\n')) socket.write(answer('ok'));
  });
  t.teardown(() => server.close());
  const upstream = upstreamWith(t, { resolve: () => Promise.resolve(['127.0.0.1']) });
  const allowed = destinationOf(server.port, { scheme: 'http', allowedPrivateCidrs: LOOPBACK });
  t.equal((await send(upstream, allowed)).body, 'ok');
  t.equal((await send(upstream, { ...allowed, allowedPrivateCidrs: [...LOOPBACK] })).body, 'ok');
  t.equal(server.connectionCount, 1);
  t.ok(upstream.isConnected({ ...allowed, allowedPrivateCidrs: [...LOOPBACK] }));
  t.notOk(upstream.isConnected({ ...allowed, sessionId: 'sesn_2' }), 'it is no other session’s');
  t.notOk(upstream.isConnected({ ...allowed, allowedPrivateCidrs: [] }));
  t.match((await send(upstream, { ...allowed, allowedPrivateCidrs: [] })).error, { code: 'address_denied' });
  await server.drained();
});

test('an override sends a host elsewhere, verifies the original name, and never reaches the daemon itself', async (t) => {
  const server = await openRawServer(
    (socket, received) => {
      if (received.endsWith('\r\n\r\n')) socket.write(answer('elsewhere'));
    },
    { tls: authority.leafFor(['api.test']) },
  );
  t.teardown(() => server.close());
  const target: Authority = { host: '127.0.0.1', port: server.port };
  const overrides = new Map([
    ['api.test:443', target],
    ['other.test:443', target],
    ['own.test:443', { host: '127.0.0.1', port: 7080 }],
  ]);
  const upstream = upstreamWith(t, { overrides, ownListeners: () => [{ address: '0.0.0.0', port: 7080 }] });
  t.match(await send(upstream, destinationOf(443)), { error: null, body: 'elsewhere' });
  await upstream.vet(destinationOf(443), signal);
  t.match((await send(upstream, destinationOf(443, { host: 'other.test' }))).error, {
    code: 'upstream_tls_failed',
    message: /^No TLS connection to other\.test:443: .* another name/,
  });
  const own = await send(upstream, destinationOf(443, { host: 'own.test' }));
  t.match(own.error, { code: 'address_denied', message: /^own\.test:443/ });
  t.notMatch(own.error?.message, /127\.0\.0\.1/);
});

/** A proxy that connects every CONNECT to one port here, if the login is right. */
function proxyTo(port: () => number, login: string | null): Script {
  return (socket, received) => {
    if (socket.listenerCount('data') > 1 || !received.endsWith('\r\n\r\n')) return;
    const isAdmitted =
      login === null ||
      received.includes(`\r\nProxy-Authorization: Basic ${Buffer.from(login).toString('base64')}\r\n`);
    if (!isAdmitted) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n');
      return;
    }
    void dialAddresses(['127.0.0.1'], { port: port(), signal }).then((onward) => {
      socket.write('HTTP/1.1 200 Connection established\r\nContent-Length: 0\r\n\r\n');
      socket.pipe(onward).pipe(socket);
      socket.on('close', () => onward.destroy());
    });
  };
}

test('a chained proxy is asked by CONNECT with its login, over plain TCP or TLS', async (t) => {
  const server = await openRawServer(
    (socket, received) => {
      if (received.endsWith('\r\n\r\n')) socket.write(answer('through'));
    },
    { tls: authority.leafFor(['api.test']) },
  );
  t.teardown(() => server.close());
  const authorization = Secret.fromText(`Basic ${Buffer.from('user:pass').toString('base64')}`);
  for (const scheme of ['http', 'https'] as const) {
    const tls = scheme === 'https' ? { tls: authority.leafFor(['127.0.0.1']) } : {};
    const proxy = await openRawServer(
      proxyTo(() => server.port, 'user:pass'),
      tls,
    );
    const chainedProxy = { scheme, authority: { host: '127.0.0.1', port: proxy.port }, authorization };
    const upstream = upstreamWith(t, { chainedProxy, noProxyHosts: createHostSet(['direct.test']) });
    t.match(await send(upstream, destinationOf(443)), { error: null, body: 'through' }, scheme);
    t.match(await send(upstream, destinationOf(443)), { error: null, body: 'through' });
    t.equal(proxy.connectionCount, 1, 'the tunnel is pooled');
    t.match(
      proxy.received[0],
      /^CONNECT api\.test:443 HTTP\/1\.1\r\nHost: api\.test:443\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n/,
    );
    t.match((await send(upstream, destinationOf(443, { host: 'direct.test' }))).error, {
      code: 'upstream_connect_failed',
      message: /does not resolve/,
    });
    const wrong = upstreamWith(t, { chainedProxy: { ...chainedProxy, authorization: null } });
    const refused = await send(wrong, destinationOf(443));
    t.match(refused.error, {
      code: 'upstream_connect_failed',
      message: /through the proxy of KEYVEIL_UPSTREAM_PROXY: it answered 407; check the login/,
    });
    await upstream.close();
    await proxy.drained();
    await proxy.close();
  }
});

test('a chained proxy that misbehaves is named as the cause', async (t) => {
  const scripts: [words: RegExp, script: Script][] = [
    [/it answered 403; ask who runs it/, (socket) => socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')],
    [/it closed the connection/, (socket) => socket.end()],
    [/does not speak HTTP\/1/, (socket) => socket.end('SSH-2.0-x\n')],
    [/status line/, (socket) => socket.end('SSH-2.0-x\r\n\r\n')],
  ];
  for (const [words, script] of scripts) {
    const proxy = await openRawServer(script);
    t.teardown(() => proxy.close());
    const upstream = upstreamWith(t, {
      chainedProxy: { scheme: 'http', authority: { host: '127.0.0.1', port: proxy.port }, authorization: null },
    });
    const result = await send(upstream, destinationOf(443));
    t.match(result.error, { code: 'upstream_connect_failed', message: words });
    t.notMatch(result.error?.message, /127\.0\.0\.1|SSH/);
  }
  const chainedProxy = { scheme: 'http', authority: { host: '127.0.0.1', port: 1 }, authorization: null } as const;
  const gone = upstreamWith(t, { chainedProxy });
  t.match((await send(gone, destinationOf(443))).error, {
    code: 'upstream_connect_failed',
    message: /KEYVEIL_UPSTREAM_PROXY: the connection was refused/,
  });
  const own = upstreamWith(t, { chainedProxy, ownListeners: () => [{ address: '127.0.0.1', port: 1 }] });
  t.match((await send(own, destinationOf(443))).error, {
    code: 'upstream_connect_failed',
    message: /a listener of Keyveil itself/,
  });
  const silent = await openRawServer(() => undefined);
  t.teardown(() => silent.close());
  const waiting = upstreamWith(t, {
    chainedProxy: { ...chainedProxy, authority: { host: '127.0.0.1', port: silent.port } },
  });
  const controller = new AbortController();
  const given = send(waiting, destinationOf(443), { signal: controller.signal });
  while (silent.received[0] === undefined || silent.received[0] === '')
    await new Promise((resolve) => setImmediate(resolve));
  controller.abort();
  t.match((await given).error, { code: 'upstream_connect_failed', message: /given up/ });
});

test('behind a chained proxy, literals, inside names, and names that resolve here are still classified', async (t) => {
  const resolve = (host: string): Promise<readonly string[]> => {
    if (host === 'mixed.test') return Promise.resolve(['8.8.8.8', '10.0.0.1']);
    if (host === 'public.test') return Promise.resolve(['8.8.8.8']);
    return Promise.reject(Object.assign(new Error('unknown here'), { code: 'ENOTFOUND' }));
  };
  const upstream = upstreamWith(t, {
    resolve,
    chainedProxy: { scheme: 'http', authority: { host: '127.0.0.1', port: 1 }, authorization: null },
  });
  for (const host of [
    'localhost',
    'x.localhost',
    'printer',
    'nas.local',
    'metadata.google.internal',
    '169.254.169.254',
    '[::1]',
    'mixed.test',
  ]) {
    await t.rejects(upstream.vet(destinationOf(443, { host }), signal), { code: 'address_denied' }, host);
  }
  for (const host of ['public.test', 'unknown.test', '8.8.8.8']) {
    await t.resolves(upstream.vet(destinationOf(443, { host }), signal), host);
  }
});
