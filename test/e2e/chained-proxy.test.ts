// Behind a company's proxy: curl's requests and a WebSocket work as without it, and its refusals are told.
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { test } from 'tap';
import { WebSocket } from 'ws';
import { startCorporateProxy, type CorporateProxy } from '../support/corporate-proxy.ts';
import { readHead, startTestDaemon, type TestDaemon, type TestSession } from '../support/daemon.ts';
import { startFullUpstream, type FullUpstream } from '../support/full-upstream.ts';
import { probeProgram } from '../clients/client.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const VALUE = 'the-real-"value"-behind-two-proxies';
const LOGIN = 'staff:p@ss:word';
const hasCurl = !('missing' in probeProgram('curl', ['--version'], /^curl (\S+)/));

t.setTimeout(110_000);
const directory = mkdtempSync(join(tmpdir(), 'kv-chained-'));
let company: CorporateProxy;
let upstream: FullUpstream;
let keyveil: TestDaemon;
let session: TestSession;
let placeholder = '';

const urlOf = (login: string, port: number): string => {
  const [user = '', ...rest] = login.split(':');
  return `http://${encodeURIComponent(user)}:${encodeURIComponent(rest.join(':'))}@127.0.0.1:${port}`;
};

t.before(async () => {
  const authority = createTestAuthority();
  upstream = await startFullUpstream({ leaf: authority.leafFor(['api.test']) });
  company = await startCorporateProxy({ 'api.test:443': upstream.port }, LOGIN);
  keyveil = await startTestDaemon({ authority, environment: { KEYVEIL_UPSTREAM_PROXY: urlOf(LOGIN, company.port) } });
  const vaultId = await keyveil.createVault();
  const injection_location = { header: true, body: true };
  const networking = { type: 'limited', allowed_hosts: ['api.test'] };
  const fields = { secret_name: 'KEY', secret_value: VALUE, injection_location, networking };
  ({ placeholder } = await keyveil.createCredential(vaultId, fields));
  session = await keyveil.createSession({ vault_ids: [vaultId] });
  writeFileSync(join(directory, 'ca.pem'), await keyveil.caPem());
});

t.teardown(async () => {
  await keyveil.close();
  await company.close();
  await upstream.close();
  rmSync(directory, { recursive: true, force: true });
});

function curl(args: readonly string[]): Promise<string> {
  const env = { PATH: process.env['PATH'], ...session.variables, CURL_CA_BUNDLE: join(directory, 'ca.pem') };
  const child = spawn('curl', ['-sS', '--fail', '--max-time', '60', ...args], { env });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      const text = Buffer.concat(chunks).toString();
      if (code === 0) resolve(text);
      else reject(new Error(`curl ended with ${String(code)}: ${text}`));
    });
  });
}

test(
  'curl: header, body and upload, in both versions, and with the login after the challenge',
  { skip: !hasCurl },
  async (t) => {
    const content = randomBytes(1_000_003);
    writeFileSync(join(directory, 'upload'), content);
    const digest = createHash('sha256').update(content).digest('hex');
    for (const [flag, version] of [
      ['--http1.1', '1.1'],
      ['--http2', '2.0'],
      ['--proxy-anyauth', '2.0'],
    ] as const) {
      upstream.received.length = 0;
      const header = await curl([flag, '-H', `Authorization: Bearer ${placeholder}`, 'https://api.test/echo']);
      t.ok(header.includes(placeholder) && !header.includes(VALUE), `${flag}: the answer is veiled`);
      const json = ['-H', 'Content-Type: application/json', '-d', JSON.stringify({ key: placeholder })];
      await curl([flag, ...json, 'https://api.test/echo']);
      t.match(await curl([flag, '-T', join(directory, 'upload'), 'https://api.test/upload']), digest, flag);
      const [first, second, third] = upstream.received;
      t.equal(first?.headers['authorization'], `Bearer ${VALUE}`, flag);
      t.strictSame(JSON.parse(second?.body.toString() ?? 'null'), { key: VALUE }, flag);
      for (const one of [first, second, third]) {
        t.equal(one?.httpVersion, version, flag);
        t.equal(one?.headers['proxy-authorization'], undefined, `${flag}: no login goes further than its proxy`);
      }
    }
    const login = `Basic ${Buffer.from(LOGIN).toString('base64')}`;
    t.ok(company.asked.length > 0);
    for (const asked of company.asked) t.strictSame(asked, { target: 'api.test:443', login });
  },
);

test('a WebSocket: its messages are swapped and veiled', async (t) => {
  const socket = await keyveil.tunnel(session, 'api.test:443');
  const client = new WebSocket('wss://api.test/', { createConnection: () => socket });
  const message = await new Promise<string>((resolve, reject) => {
    client.on('error', reject);
    client.on('open', () => client.send(`key=${placeholder}`));
    client.on('message', (data: Buffer) => resolve(data.toString()));
  });
  t.equal(upstream.messages.at(-1), `key=${VALUE}`);
  t.equal(message, `echo key=${placeholder}`);
  client.terminate();
});

test('hosts inside are refused before the proxy is asked, and a host that it refuses is a 502', async (t) => {
  const before = company.asked.length;
  for (const host of ['localhost', 'printer', 'nas.local', 'metadata.google.internal', '169.254.169.254', '[::1]']) {
    t.match((await keyveil.connect(session, `${host}:443`)).head, /^HTTP\/1\.1 403 [^]*address_denied/, host);
  }
  t.equal(company.asked.length, before);
  const tls = await keyveil.tunnel(session, 'other.test:443');
  tls.write('GET / HTTP/1.1\r\nHost: other.test\r\n\r\n');
  t.match(await readHead(tls), /^HTTP\/1\.1 502 [^]*error=destination_unavailable; details="upstream_connect_failed/);
  tls.destroy();
  // Plain HTTP goes by CONNECT too.
  const plain = await keyveil.connect(session, 'plain.test:80');
  plain.socket.write('GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n');
  t.match(await readHead(plain.socket), /^HTTP\/1\.1 502 /);
  t.equal(company.asked.at(-1)?.target, 'plain.test:80');
  plain.socket.destroy();
});

test('a wrong login and a proxy that is not there are 502s that name the setting', async (t) => {
  const cases: readonly (readonly [url: string, words: RegExp, type: string])[] = [
    [urlOf('staff:wrong', company.port), /it answered 407; check the login/, 'destination_unavailable'],
    ['http://127.0.0.1:1', /connection was refused/, 'connection_refused'],
  ];
  for (const [url, words, type] of cases) {
    await keyveil.restart({ KEYVEIL_UPSTREAM_PROXY: url });
    const tls = await keyveil.tunnel(session, 'api.test:443');
    tls.write('GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n');
    const head = await readHead(tls);
    t.match(head, /^HTTP\/1\.1 502 /);
    t.match(head, `error=${type}; details="upstream_connect_failed: api.test"`);
    tls.resume();
    const body = await new Promise<string>((resolve) => tls.once('data', (chunk: Buffer) => resolve(chunk.toString())));
    t.match(body, /KEYVEIL_UPSTREAM_PROXY/);
    t.match(body, words);
    t.notMatch(body, /staff|wrong|127\.0\.0\.1/);
    tls.destroy();
  }
});
