// WebSockets through the real proxy: swap and veil of messages, control frames, closes, rotation, HTTP/1.1 and HTTP/2.
import { once } from 'node:events';
import * as http2 from 'node:http2';
import { createServer } from 'node:https';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t, { test, type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { VEILS_PER_CONNECTION_MAX } from '../../model/limits.ts';
import type { SessionPolicy } from '../../model/ports.ts';
import { acceptOf } from '../../proxy/websocket.ts';
import { FrameParser, OPCODE, writeFrame } from '../../proxy/swap/websocket-frames.ts';
import { startTestDaemon } from '../support/daemon.ts';
import { formsIn, valueForms } from '../support/encodings.ts';
import { placeholderOf, sessionPolicy, type CredentialInput } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { openRawServer } from '../support/raw-server.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const VALUE = 'the-real/value+of "the" key';
const PLACEHOLDER = placeholderOf('W');
const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
const HANDSHAKE = `Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ${KEY}\r\nSec-WebSocket-Version: 13\r\n`;
const HOSTS = ['body.test', 'head.test', 'free.test', 'raw.test'];

const CREDENTIALS: readonly CredentialInput[] = [
  { placeholder: PLACEHOLDER, value: VALUE, hosts: ['body.test', 'raw.test'], secretName: 'BODY_KEY' },
  { placeholder: placeholderOf('H'), value: `${VALUE}-2`, hosts: ['head.test'], body: false, secretName: 'HEAD_KEY' },
];

const authority = createTestAuthority();
const leaf = authority.leafFor(HOSTS);

/** What the next connection's server side does with it. */
let onConnection: (socket: WebSocket, request: IncomingMessage) => void = () => undefined;
const webSockets = new WebSocketServer({ noServer: true, perMessageDeflate: { threshold: 0 } });
const server = createServer(leaf);
server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
  webSockets.handleUpgrade(request, socket, head, (webSocket) => onConnection(webSocket, request));
});
const serverSockets = new Set<Socket>();
server.on('connection', (socket: Socket) => {
  serverSockets.add(socket);
  socket.on('error', () => socket.destroy());
});
let keyveil: TestProxy;
let rawPort = 0;
/** What the raw upstream answers to a handshake, and to each later chunk. */
let rawScript: (socket: Socket, received: string) => void = () => undefined;

t.before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const raw = await openRawServer((socket, received) => rawScript(socket, received), { tls: leaf });
  rawPort = raw.port;
  const overrides = Object.fromEntries(HOSTS.map((host) => [`${host}:443`, host === 'raw.test' ? rawPort : port]));
  keyveil = await startTestProxy({ authority, overrides, policy: sessionPolicy(CREDENTIALS) });
  t.teardown(() => raw.close());
});

t.teardown(async () => {
  await keyveil.close();
  for (const socket of serverSockets) socket.destroy();
  server.close();
});

interface Pair {
  readonly client: WebSocket;
  readonly peer: WebSocket;
  readonly headers: IncomingHttpHeaders;
}

/** A WebSocket through the proxy, and its other end. */
async function openPair(t: Test, host: string, headers: Record<string, string> = {}): Promise<Pair> {
  const tls = await keyveil.tunnel(`${host}:443`);
  const met = new Promise<{ peer: WebSocket; headers: IncomingHttpHeaders }>((resolve) => {
    onConnection = (peer, request) => {
      peer.on('error', () => undefined);
      resolve({ peer, headers: request.headers });
    };
  });
  const client = new WebSocket(`wss://${host}/socket?x=1`, { createConnection: () => tls, headers });
  t.teardown(() => client.terminate());
  await once(client, 'open');
  return { client, ...(await met) };
}

interface Message {
  readonly text: string;
  readonly isBinary: boolean;
}

/** What comes, pings among it, in order. */
function record(socket: WebSocket): {
  readonly seen: (Message | { ping: string })[];
  readonly reach: (count: number) => Promise<void>;
} {
  const seen: (Message | { ping: string })[] = [];
  let wake = (): void => undefined;
  socket.on('message', (data: Buffer, isBinary) => {
    seen.push({ text: data.toString(), isBinary });
    wake();
  });
  socket.on('ping', (data) => {
    seen.push({ ping: data.toString() });
    wake();
  });
  return {
    seen,
    async reach(count) {
      while (seen.length < count) await new Promise<void>((resolve) => (wake = resolve));
    },
  };
}

test('the handshake takes the way of every request: its fields are swapped', async (t) => {
  const { client, headers } = await openPair(t, 'head.test', { 'X-Key': `k ${placeholderOf('H')}` });
  t.equal(headers['x-key'], `k ${VALUE}-2`);
  t.equal(headers['sec-websocket-version'], '13');
  t.equal(client.protocol, '');
});

test('placeholders in text, binary and fragmented messages are swapped, and pings keep their place', async (t) => {
  const { client, peer, headers } = await openPair(t, 'body.test');
  t.equal(headers['sec-websocket-extensions'], undefined, 'compression is not offered where messages are rewritten');
  const { seen, reach } = record(peer);
  client.send(`{"key":"${PLACEHOLDER}"}`);
  client.send(Buffer.from(`bin ${PLACEHOLDER} ${PLACEHOLDER}`));
  client.send('', { fin: true });
  for (let cut = 1; cut < PLACEHOLDER.length; cut += 5) {
    client.send(`a${PLACEHOLDER.slice(0, cut)}`, { fin: false });
    client.ping(`ping ${cut}`);
    client.send(`${PLACEHOLDER.slice(cut)}b`, { fin: true });
  }
  client.send(Array.from(PLACEHOLDER).join(''), { fin: false });
  client.send('', { fin: true });
  const cuts = Math.ceil((PLACEHOLDER.length - 1) / 5);
  await reach(4 + 2 * cuts);
  t.same(seen.slice(0, 3), [
    { text: JSON.stringify({ key: VALUE }), isBinary: false },
    { text: `bin ${VALUE} ${VALUE}`, isBinary: true },
    { text: '', isBinary: false },
  ]);
  const pairs = seen.slice(3, -1);
  t.same(
    pairs.filter((_, index) => index % 2 === 0),
    Array.from({ length: cuts }, (_, index) => ({ ping: `ping ${1 + 5 * index}` })),
    'a ping between two fragments comes before their message is whole',
  );
  t.same(
    pairs.filter((_, index) => index % 2 === 1),
    Array.from({ length: cuts }, () => ({ text: `a${VALUE}b`, isBinary: false })),
  );
  t.same(seen.at(-1), { text: VALUE, isBinary: false });
  const event = keyveil.nextEvent();
  client.close();
  const { outcome, status, swaps } = await event;
  t.match({ outcome, status }, { outcome: 'forwarded', status: 101 });
  t.match(swaps, [{ location: 'websocket', count: 4 + cuts }]);
});

test('values in the messages of a server are veiled in every form', async (t) => {
  for (const host of ['body.test', 'head.test']) {
    const { client, peer } = await openPair(t, host);
    const value = host === 'body.test' ? VALUE : `${VALUE}-2`;
    const forms = valueForms(value);
    const { seen, reach } = record(client);
    const texts = Object.entries(forms);
    for (const [name, form] of texts) peer.send(Buffer.from(`${name}: ${form} end`, 'latin1'), { binary: true });
    peer.send(`text ${value}`);
    peer.send(value.slice(0, 9), { fin: false });
    peer.ping('between');
    peer.send(value.slice(9), { fin: true });
    await reach(texts.length + 3);
    for (const [index, [name]] of texts.entries()) {
      const { text } = seen[index] as Message;
      t.same(formsIn(text, forms), [], `${name} is not there: ${text}`);
    }
    const placeholder = host === 'body.test' ? PLACEHOLDER : placeholderOf('H');
    t.same(seen.slice(texts.length), [
      { text: `text ${placeholder}`, isBinary: false },
      { ping: 'between' },
      { text: placeholder, isBinary: false },
    ]);
    const event = keyveil.nextEvent();
    client.close();
    t.equal((await event).veils[0]?.count, texts.length + 2);
  }
});

test('close codes and reasons pass both ways', async (t) => {
  for (const host of ['body.test', 'free.test']) {
    for (const isFromClient of [true, false]) {
      const { client, peer } = await openPair(t, host);
      const [from, to] = isFromClient ? [client, peer] : [peer, client];
      const closed = Promise.all([once(to, 'close'), once(from, 'close')]);
      from.close(4001, 'so long');
      const [[code, reason], [echoed]] = await closed;
      t.same([code, String(reason), echoed], [4001, 'so long', 4001], `${host}, client ${isFromClient}`);
    }
  }
  const { client, peer } = await openPair(t, 'body.test');
  const lost = once(client, 'close');
  peer.terminate();
  t.same((await lost)[0], 1006, 'a connection that breaks is no clean close');
});

test('compression is negotiated end to end where nothing is rewritten', async (t) => {
  const { client, peer, headers } = await openPair(t, 'free.test');
  t.match(headers['sec-websocket-extensions'], /permessage-deflate/);
  t.match(client.extensions, /permessage-deflate/);
  const { seen, reach } = record(peer);
  client.send(`${'compressible '.repeat(1000)}${PLACEHOLDER}`, { compress: true });
  await reach(1);
  t.equal((seen[0] as Message).text, `${'compressible '.repeat(1000)}${PLACEHOLDER}`, 'and nothing is swapped');
  client.close();
});

/** A handshake by hand in a tunnel to the raw upstream; `extra` goes in the same write. */
async function openRaw(t: Test, extra: readonly Buffer[] = []): Promise<TLSSocket> {
  const tls = await keyveil.tunnel('raw.test:443');
  t.teardown(() => tls.destroy());
  tls.write(Buffer.concat([Buffer.from(`GET / HTTP/1.1\r\nHost: raw.test\r\n${HANDSHAKE}\r\n`), ...extra]));
  return tls;
}

function textFrame(text: string, isMasked: boolean): Buffer {
  return writeFrame({ opcode: OPCODE.text, fin: true, isMasked, payload: [Buffer.from(text)] });
}

const SWITCHED = `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${acceptOf(KEY)}\r\n\r\n`;

/** Reads the proxy's 101 and then frames until one is the last. */
async function readFrames(source: NodeJS.ReadableStream, hasHead: boolean) {
  const parser = new FrameParser({ isMasked: false });
  const frames: { opcode: number; text: string; code: number }[] = [];
  let head = hasHead ? '' : '\r\n\r\n';
  for await (const chunk of source) {
    let bytes = chunk as Buffer;
    if (!head.includes('\r\n\r\n')) {
      head += bytes.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) continue;
      bytes = Buffer.from(head.slice(end + 4), 'latin1');
      head = head.slice(0, end + 4);
    }
    for (const { opcode, payload } of parser.push(bytes)) {
      const code = opcode === OPCODE.close && payload.length >= 2 ? payload.readUInt16BE(0) : 0;
      frames.push({ opcode, text: payload.toString('latin1'), code });
    }
    if (frames.some(({ opcode }) => opcode === OPCODE.close)) break;
  }
  return { head, frames };
}

test('frames that come together with the handshake, either way, are treated like all others', async (t) => {
  const served = new Promise<string>((resolve) => {
    let isSwitched = false;
    rawScript = (socket, received) => {
      const end = received.indexOf('\r\n\r\n');
      if (end < 0) return;
      if (!isSwitched) {
        isSwitched = true;
        socket.write(Buffer.concat([Buffer.from(SWITCHED), textFrame(`first ${VALUE}`, false)]));
      }
      const frames = Buffer.from(received.slice(end + 4), 'latin1');
      const texts = [...new FrameParser({ isMasked: true }).push(frames)].map(({ payload }) => payload.toString());
      if (texts.length < 2) return;
      resolve(texts.join('|'));
      socket.end(writeFrame({ opcode: OPCODE.close, fin: true, isMasked: false, payload: [Buffer.from([3, 232])] }));
    };
  });
  const tls = await openRaw(t, [textFrame(`early ${PLACEHOLDER}`, true), textFrame('second', true)]);
  const { head, frames } = await readFrames(tls, true);
  t.match(head, /^HTTP\/1\.1 101 Switching Protocols\r\n/);
  t.match(frames, [{ text: `first ${PLACEHOLDER}` }, { code: 1000 }]);
  t.equal(await served, `early ${VALUE}|second`);
});

test('a malformed frame of the client closes with 1002, and the upstream gets nothing of it', async (t) => {
  const unmasked = textFrame('not masked', false);
  const reserved = Buffer.from([0xf1, 0x81, 1, 2, 3, 4, 5]);
  const lonely = writeFrame({ opcode: OPCODE.continuation, fin: true, isMasked: true, payload: [Buffer.from('x')] });
  for (const bad of [unmasked, reserved, lonely]) {
    let afterHead = '';
    const closed = new Promise<void>((resolve) => {
      rawScript = (socket, received) => {
        const end = received.indexOf('\r\n\r\n');
        socket.once('close', () => resolve());
        if (end >= 0 && received.length === end + 4) socket.write(SWITCHED);
        afterHead = received.slice(end + 4);
      };
    });
    const tls = await openRaw(t);
    const event = keyveil.nextEvent();
    const reading = readFrames(tls, true);
    tls.write(bad);
    const { frames } = await reading;
    t.match(frames, [{ opcode: OPCODE.close, code: 1002 }]);
    t.match(await event, { outcome: 'failed', reason: 'malformed_frame' });
    await closed;
    t.equal(afterHead, '');
  }
});

test('a malformed frame of the server closes with 1002 too', async (t) => {
  rawScript = (socket, received) => {
    if (received.endsWith('\r\n\r\n')) socket.write(Buffer.concat([Buffer.from(SWITCHED), textFrame('masked', true)]));
  };
  const event = keyveil.nextEvent();
  const { frames } = await readFrames(await openRaw(t), true);
  t.match(frames, [{ opcode: OPCODE.close, code: 1002 }]);
  t.match(await event, { outcome: 'failed', reason: 'malformed_frame' });
});

test('the protocol switches only on a right answer', async (t) => {
  const wrong = [
    SWITCHED.replace(acceptOf(KEY), acceptOf('another key')),
    SWITCHED.replace(/Sec-WebSocket-Accept.*\r\n/, ''),
    SWITCHED.replace(
      'Upgrade: websocket\r\n',
      'Upgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n',
    ),
  ];
  for (const answer of wrong) {
    rawScript = (socket, received) => {
      if (received.endsWith('\r\n\r\n')) socket.write(answer);
    };
    const tls = await openRaw(t);
    const [chunk] = (await once(tls, 'data')) as [Buffer];
    t.match(chunk.toString(), /^HTTP\/1\.1 502 [\s\S]*upstream_protocol_error/);
    tls.destroy();
  }
});

test('a rotation counts from the next message of an open socket on', async (t) => {
  const { client, peer } = await openPair(t, 'body.test');
  const { seen, reach } = record(peer);
  const { seen: back, reach: reachBack } = record(client);
  for (const [index, value] of [VALUE, 'rotated-value-0002', 'rotated-value-0003'].entries()) {
    const secretVersion = index + 1;
    keyveil.setPolicy(sessionPolicy([{ placeholder: PLACEHOLDER, value, secretVersion, hosts: ['body.test'] }]));
    client.send(PLACEHOLDER);
    await reach(index + 1);
    if (index < 2) continue;
    // Those that were sent before the rotations are echoed after them.
    peer.send(`it is ${value}`);
    peer.send(`it was ${VALUE} and rotated-value-0002`);
    await reachBack(2);
  }
  t.same(
    seen.map((message) => (message as Message).text),
    [VALUE, 'rotated-value-0002', 'rotated-value-0003'],
  );
  t.same(
    back.map((message) => (message as Message).text),
    [`it is ${PLACEHOLDER}`, `it was ${PLACEHOLDER} and ${PLACEHOLDER}`],
  );
  keyveil.setPolicy(sessionPolicy(CREDENTIALS));
  client.close();
});

/** A credential that covers the host, at a version; and one that does not. */
const versioned = (secretVersion: number, other = 1): SessionPolicy =>
  sessionPolicy([
    { placeholder: PLACEHOLDER, value: `value-of-version-${secretVersion}`, secretVersion, hosts: ['body.test'] },
    { placeholder: placeholderOf('H'), value: `other-of-version-${other}`, secretVersion: other, hosts: ['head.test'] },
  ]);
const valueAt = (version: number): string => `value-of-version-${version}`;

test('a value that was sent stays veiled whatever is rotated afterwards, and however often', async (t) => {
  keyveil.setPolicy(versioned(1));
  const { client, peer } = await openPair(t, 'body.test');
  const { seen, reach } = record(peer);
  const { seen: back, reach: reachBack } = record(client);
  let sent = 0;
  let echoes = 0;
  const say = async (text: string): Promise<void> => {
    client.send(text);
    await reach((sent += 1));
  };
  const echo = async (version: number): Promise<string> => {
    peer.send(`you said ${valueAt(version)}`);
    await reachBack((echoes += 1));
    return (back.at(-1) as Message).text;
  };
  await say(PLACEHOLDER);
  keyveil.setPolicy(versioned(2));
  t.equal(await echo(1), `you said ${PLACEHOLDER}`, 'after its own rotation');
  for (let other = 2; other < 40; other += 1) {
    keyveil.setPolicy(versioned(2, other));
    await say('ping');
    t.equal(await echo(1), `you said ${PLACEHOLDER}`, `after rotation ${other} of another credential`);
  }
  for (let version = 3; version < 60; version += 1) {
    keyveil.setPolicy(versioned(version));
    await say(version === 30 ? PLACEHOLDER : 'ping, and no placeholder');
    t.equal(await echo(1), `you said ${PLACEHOLDER}`, `after its rotation to version ${version}`);
    if (version >= 30) t.equal(await echo(30), `you said ${PLACEHOLDER}`, 'and another that was sent');
  }
  t.same(
    seen.map((message) => (message as Message).text).filter((text) => !text.startsWith('ping')),
    [valueAt(1), valueAt(30)],
  );
  keyveil.setPolicy(sessionPolicy(CREDENTIALS));
  client.close();
});

test('a message of the server that began before a rotation is looked at with the new value too', async (t) => {
  keyveil.setPolicy(versioned(1));
  const { client, peer } = await openPair(t, 'body.test');
  const { reach } = record(peer);
  const { seen: back, reach: reachBack } = record(client);
  peer.send(`begun ${'-'.repeat(2000)} ${valueAt(1)}`, { fin: false });
  client.send('the fragment has come');
  await reach(1);
  for (const version of [2, 3]) {
    keyveil.setPolicy(versioned(version));
    client.send(PLACEHOLDER);
    await reach(version);
    peer.send(` and ${valueAt(version)} after ${valueAt(version - 1)}`, { fin: version === 3 });
  }
  await reachBack(1);
  const P = PLACEHOLDER;
  t.equal((back[0] as Message).text, `begun ${'-'.repeat(2000)} ${P} and ${P} after ${P} and ${P} after ${P}`);
  keyveil.setPolicy(sessionPolicy(CREDENTIALS));
  client.close();
});

test('more values than can be looked for are not sent: the socket is closed with 1013', async (t) => {
  keyveil.setPolicy(versioned(1));
  const { client, peer } = await openPair(t, 'body.test');
  const { seen, reach } = record(peer);
  const closed = once(client, 'close');
  const row = keyveil.nextEvent();
  for (let version = 1; version <= VEILS_PER_CONNECTION_MAX; version += 1) {
    keyveil.setPolicy(versioned(version));
    client.send(PLACEHOLDER);
    await reach(version);
  }
  keyveil.setPolicy(versioned(VEILS_PER_CONNECTION_MAX + 1));
  client.send(PLACEHOLDER);
  t.equal((await closed)[0], 1013);
  t.match(await row, { outcome: 'failed', reason: 'overloaded' });
  t.equal(seen.length, VEILS_PER_CONNECTION_MAX);
  keyveil.setPolicy(sessionPolicy(CREDENTIALS));
});

test('a value that cannot be opened closes the socket with 1008, and the message goes nowhere', async (t) => {
  const { client, peer } = await openPair(t, 'body.test');
  const { seen } = record(peer);
  keyveil.setPolicy(sessionPolicy([{ placeholder: PLACEHOLDER, value: null, hosts: ['body.test'] }]));
  const gone = once(peer, 'close');
  const closed = once(client, 'close');
  client.send(`say ${PLACEHOLDER}`);
  t.equal((await closed)[0], 1008);
  await gone;
  t.same(seen, []);
  keyveil.setPolicy(sessionPolicy(CREDENTIALS));
});

async function openExtendedConnect(t: Test, host: string, headers: Record<string, string>) {
  const socket = await keyveil.tunnel(`${host}:443`, { ALPNProtocols: ['h2'] });
  const session = http2.connect(`https://${host}`, { createConnection: () => socket });
  session.on('error', () => undefined);
  t.teardown(() => session.destroy());
  const [settings] = (await once(session, 'remoteSettings')) as [http2.Settings];
  t.equal(settings.enableConnectProtocol, true);
  const stream = session.request({
    ':method': 'CONNECT',
    ':protocol': 'websocket',
    ':path': '/socket',
    'sec-websocket-version': '13',
    ...headers,
  });
  stream.on('error', () => undefined);
  const [answer] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader];
  return { stream, answer };
}

test('an extended CONNECT over HTTP/2 gets the same', async (t) => {
  const met = new Promise<{ peer: WebSocket; headers: IncomingHttpHeaders }>((resolve) => {
    onConnection = (peer, request) => resolve({ peer, headers: request.headers });
  });
  const { stream, answer } = await openExtendedConnect(t, 'body.test', { 'x-key': PLACEHOLDER });
  t.equal(answer[':status'], 200);
  t.equal(answer['sec-websocket-accept'], undefined);
  const { peer, headers } = await met;
  t.equal(headers['x-key'], VALUE);
  const { seen, reach } = record(peer);
  stream.write(textFrame(`over h2 ${PLACEHOLDER}`, true));
  await reach(1);
  t.same(seen, [{ text: `over h2 ${VALUE}`, isBinary: false }]);
  const reading = readFrames(stream, false);
  peer.send(`back ${VALUE}`);
  peer.close(4002, 'done');
  const { frames } = await reading;
  t.match(frames, [{ text: `back ${PLACEHOLDER}` }, { opcode: OPCODE.close, code: 4002 }]);
});

test('a malformed frame over HTTP/2 closes with 1002', async (t) => {
  onConnection = (peer) => peer.on('error', () => undefined);
  const { stream } = await openExtendedConnect(t, 'body.test', {});
  const reading = readFrames(stream, false);
  stream.write(textFrame('not masked', false));
  t.match((await reading).frames, [{ opcode: OPCODE.close, code: 1002 }]);
});

test('archiving the session cuts its open sockets within a second', async (t) => {
  const { port } = server.address() as AddressInfo;
  const daemon = await startTestDaemon({ authority, overrides: { 'body.test': port, 'free.test': port } });
  t.teardown(() => daemon.close());
  const vaultId = await daemon.createVault();
  await daemon.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['body.test'] },
    injection_location: { header: true, body: true },
  });
  const session = await daemon.createSession({ vault_ids: [vaultId] });
  const gone: Promise<unknown>[] = [];
  for (const host of ['body.test', 'free.test']) {
    const peerGone = new Promise<void>((resolve) => {
      onConnection = (peer) => peer.once('close', () => resolve());
    });
    const tls = await daemon.tunnel(session, `${host}:443`);
    const client = new WebSocket(`wss://${host}/`, { createConnection: () => tls });
    client.on('error', () => undefined);
    await once(client, 'open');
    gone.push(once(client, 'close'), peerGone);
  }
  const startedAt = performance.now();
  t.equal((await daemon.admin('POST', `/v1/sessions/${session.id}/archive`)).status, 200);
  await Promise.all(gone);
  const ms = performance.now() - startedAt;
  t.comment(`${Math.round(ms)} ms`);
  t.ok(ms < 3000, 'with room for a busy machine');
});
