// Damage and malice through the real proxy: unreadable rows, swaps that grow, bombs both ways, and binary uploads.
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import * as zlib from 'node:zlib';
import { test, type Test } from 'tap';
import { openConnection } from '../../store/database.ts';
import { sendBinaryUploads } from '../support/binary-uploads.ts';
import { readAll, readHead, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const MIB = 1024 * 1024;
const VALUE = 'the-real-value-of-the-key';
const PLACEHOLDER = placeholderOf('D');
const UPLOADS = 300;
/** Some of it is the test's own, which is client and upstream too. */
const GROWTH_BYTES_BELOW = 160 * MIB;

const authority = createTestAuthority();
const leaf = authority.leafFor(['api.test']);

interface Scene {
  readonly keyveil: TestDaemon;
  readonly api: TestUpstream;
  readonly session: TestSession;
  readonly credential: { readonly id: string; readonly placeholder: string };
}

async function openScene(t: Test): Promise<Scene> {
  const api = await startUpstream({ leaf });
  const keyveil = await startTestDaemon({ authority, overrides: { 'api.test': api.port } });
  t.teardown(async () => {
    await keyveil.close();
    await api.close();
  });
  const vaultId = await keyveil.createVault();
  const credential = await keyveil.createCredential(vaultId, {
    secret_name: 'KEY',
    secret_value: VALUE,
    networking: { type: 'limited', allowed_hosts: ['api.test'] },
    injection_location: { header: true, body: true },
  });
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  return { keyveil, api, session, credential };
}

/** Flips a bit in the middle of the credential's sealed value, as a bad disk or an attacker would. */
function damageRow(directory: string, id: string): void {
  const database = openConnection(join(directory, 'data', 'keyveil.db'), { readonly: false });
  try {
    const columns = database.prepare('SELECT * FROM credentials WHERE id = ?').get(id) as Record<string, unknown>;
    const [name, bytes] = Object.entries(columns).find(([, value]) => Buffer.isBuffer(value)) as [string, Buffer];
    const at = bytes.length - 20;
    bytes[at] = (bytes[at] as number) ^ 1;
    database.prepare(`UPDATE credentials SET ${name} = ? WHERE id = ?`).run(bytes, id);
  } finally {
    database.close();
  }
}

async function answerTo(tls: TLSSocket): Promise<{ head: string; all: string }> {
  const head = await readHead(tls);
  return { head, all: head + (await readAll(tls)) };
}

test('a damaged row that a request needs is a 502, and the upstream receives nothing of the request', async (t) => {
  const { keyveil, api, session, credential } = await openScene(t);
  const { placeholder } = credential;
  damageRow(keyveil.directory, credential.id);
  const length = placeholder.length;
  const chunk = `${length.toString(16)}\r\n${placeholder}\r\n0\r\n\r\n`;
  const requests = [
    `GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: ${placeholder}\r\nConnection: close\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Basic ${Buffer.from(`u:${placeholder}`).toString('base64')}\r\nConnection: close\r\n\r\n`,
    `POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: ${length}\r\nConnection: close\r\n\r\n${placeholder}`,
  ];
  for (const request of requests) {
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write(request);
    const { head, all } = await answerTo(tls);
    t.match(head, /^HTTP\/1\.1 502 /);
    t.match(head, /Proxy-Status: keyveil; error=/i);
    t.match(all, /"code":"credential_unreadable"/);
    t.notMatch(all, VALUE);
  }
  t.equal(api.received.length, 0);
  t.equal(api.sockets.size, 0, 'not even a connection was made');

  const streamed = await keyveil.tunnel(session, 'api.test:443');
  streamed.write(
    `POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n${chunk}`,
  );
  t.match((await answerTo(streamed)).all, /^HTTP\/1\.1 502 [\s\S]*credential_unreadable/);
  t.equal(api.received.length, 0, 'a streamed body is cut, so that no whole request arrives');

  const tls = await keyveil.tunnel(session, 'api.test:443');
  tls.write('GET /fine HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
  t.match((await answerTo(tls)).head, /^HTTP\/1\.1 200 /, 'a request that does not need it goes through');
  t.equal(api.received[0]?.url, '/fine');
  const events = (await keyveil.admin('GET', '/v1/audit_events?limit=100')).body['data'] as Record<string, unknown>[];
  const reasons = events.filter((event) => event['status'] === 502).map((event) => event['reason']);
  t.same(reasons, ['credential_unreadable', 'credential_unreadable', 'credential_unreadable', 'credential_unreadable']);
  t.ok(events.some((event) => event['status'] === 200 && event['reason'] === 'veil_not_possible'));
});

/** The most that the process's memory grows above now while `work` runs. */
async function growthDuring(work: () => Promise<void>): Promise<number> {
  const before = process.memoryUsage.rss();
  let peak = before;
  const timer = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 10);
  await work();
  clearInterval(timer);
  return Math.max(peak, process.memoryUsage.rss()) - before;
}

async function openProxy(t: Test, value: string, respond?: Parameters<typeof startUpstream>[0]['respond']) {
  const upstream = await startUpstream(respond === undefined ? { leaf } : { leaf, respond });
  const policy = sessionPolicy([{ placeholder: PLACEHOLDER, value, hosts: ['api.test'] }]);
  const keyveil = await startTestProxy({ authority, overrides: { 'api.test:443': upstream.port }, policy });
  t.teardown(async () => {
    await keyveil.close();
    await upstream.close();
  });
  return { upstream, keyveil };
}

test('200,000 placeholders of a 32 KiB value are refused with 413 while memory stays flat', async (t) => {
  const { upstream, keyveil } = await openProxy(t, 'v'.repeat(32 * 1024));
  const piece = Buffer.from(`${PLACEHOLDER} `.repeat(1000));
  const bytes = piece.length * 200;
  const framings = [
    { fields: `Content-Length: ${bytes}`, isChunked: false },
    { fields: 'Transfer-Encoding: chunked', isChunked: true },
    { fields: `Content-Encoding: gzip\r\nTransfer-Encoding: chunked`, isChunked: true, isCoded: true },
  ];
  for (const { fields, isChunked, isCoded } of framings) {
    const sources = isCoded === true ? [zlib.gzipSync(Buffer.concat(Array.from({ length: 200 }, () => piece)))] : null;
    const growth = await growthDuring(async () => {
      const tls = await keyveil.tunnel('api.test:443');
      tls.write(`POST / HTTP/1.1\r\nHost: api.test\r\n${fields}\r\nConnection: close\r\n\r\n`);
      const answer = answerTo(tls);
      for (const part of sources ?? Array.from({ length: 200 }, () => piece)) {
        if (tls.destroyed) break;
        if (isChunked) tls.write(`${part.length.toString(16)}\r\n`);
        tls.write(part);
        if (isChunked) tls.write('\r\n');
      }
      if (isChunked && !tls.destroyed) tls.write('0\r\n\r\n');
      const { head, all } = await answer;
      t.match(head, /^HTTP\/1\.1 413 /, fields);
      t.match(all, /"code":"swap_too_large"/);
    });
    t.ok(growth < GROWTH_BYTES_BELOW, `${fields}: ${Math.round(growth / MIB)} MiB, of 6.1 GiB that it would have been`);
  }
  t.same(upstream.received, [], 'no whole request arrived');
  t.same(keyveil.bodies.usage(), { memoryBytes: 0, spoolBytes: 0, spoolFiles: 0 });
});

/** `bytes` of zeros in a coding, without holding them. */
async function bomb(coder: zlib.Gzip | zlib.BrotliCompress, bytes: number): Promise<Buffer> {
  const zeros = Buffer.alloc(MIB);
  const out: Buffer[] = [];
  coder.on('data', (chunk: Buffer) => out.push(chunk));
  const done = new Promise((resolve) => coder.on('end', resolve));
  for (let sent = 0; sent < bytes; sent += zeros.length) {
    await new Promise<void>((resolve, reject) =>
      coder.write(zeros, (error) => (error === null || error === undefined ? resolve() : reject(error))),
    );
  }
  coder.end();
  await done;
  return Buffer.concat(out);
}

test('a bomb as a request, and one as a response, are stopped for a clear reason while memory stays flat', async (t) => {
  // A little over what may be decoded at such a ratio: 1 GiB.
  const bombs = {
    gzip: await bomb(zlib.createGzip({ level: 6 }), 1032 * MIB),
    br: await bomb(zlib.createBrotliCompress({ params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } }), 1032 * MIB),
  };
  const { upstream, keyveil } = await openProxy(t, VALUE, (request, response) => {
    const coding = request.url.slice(1) as keyof typeof bombs;
    response.setHeader('Content-Encoding', coding);
    response.setHeader('Content-Type', 'application/octet-stream');
    response.end(bombs[coding]);
  });
  const requestEvent = keyveil.nextEvent();
  const requestGrowth = await growthDuring(async () => {
    const tls = await keyveil.tunnel('api.test:443');
    const length = `Content-Length: ${bombs.gzip.length}\r\nConnection: close\r\n\r\n`;
    tls.write(`POST /up HTTP/1.1\r\nHost: api.test\r\nContent-Encoding: gzip\r\n${length}`);
    tls.write(bombs.gzip);
    const { head, all } = await answerTo(tls);
    t.match(head, /^HTTP\/1\.1 400 /);
    t.match(all, /decode/);
  });
  t.match(await requestEvent, { outcome: 'refused', reason: 'bad_request' });
  t.ok(requestGrowth < GROWTH_BYTES_BELOW, `${Math.round(requestGrowth / MIB)} MiB`);
  t.same(upstream.received, []);
  const responseEvent = keyveil.nextEvent();
  let received = 0;
  const responseGrowth = await growthDuring(async () => {
    const tls = await keyveil.tunnel('api.test:443');
    tls.write('GET /br HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
    t.match(await readHead(tls), /^HTTP\/1\.1 200 /);
    tls.on('data', (chunk: Buffer) => (received += chunk.length));
    await new Promise((resolve) => tls.once('close', resolve).resume());
  });
  t.match(await responseEvent, { outcome: 'failed', reason: 'upstream_aborted' });
  t.ok(responseGrowth < GROWTH_BYTES_BELOW, `${Math.round(responseGrowth / MIB)} MiB`);
  t.ok(received < 1032 * MIB, 'it is cut, and does not look whole');
});

test('binary uploads arrive byte for byte, and keep their framing', async (t) => {
  const { upstream, keyveil } = await openProxy(t, VALUE);
  const seed = Date.now() % 2 ** 32;
  const options = { keyveil, upstream, target: 'api.test:443', count: UPLOADS, seed };
  t.same(await sendBinaryUploads(options), []);
});
