// Two worker processes: a rotation that was answered is obeyed by the next request in both, and a dead worker is replaced.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import t, { test } from 'tap';
import { readHead } from '../support/daemon.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type TestUpstream } from '../support/upstream.ts';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const ROTATIONS = Number(process.env['TEST_ROTATIONS'] ?? 50);

let directory = '';
let daemon: ChildProcess;
let upstream: TestUpstream;
let proxyPort = 0;
let caPem = '';

type Json = Record<string, unknown>;

function admin(method: string, path: string, body?: Json): Promise<Json> {
  const payload = body === undefined ? '' : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const headers = payload === '' ? {} : { 'content-type': 'application/json' };
    const call = httpRequest({ socketPath: join(directory, 'data/admin.sock'), method, path, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        if (response.statusCode !== 200) reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
        else resolve(path.endsWith('.pem') || path === '/metrics' ? { text } : (JSON.parse(text) as Json));
      });
    });
    call.on('error', reject);
    call.end(payload);
  });
}

async function tunnel(login: string): Promise<TLSSocket> {
  const socket = connectTcp(proxyPort, '127.0.0.1');
  socket.on('error', () => undefined);
  const authorization = `Basic ${Buffer.from(login).toString('base64')}`;
  socket.write(`CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\nProxy-Authorization: ${authorization}\r\n\r\n`);
  const head = await readHead(socket);
  if (!head.startsWith('HTTP/1.1 200')) throw new Error(head);
  const tls = connectTls({ socket, servername: 'api.test', ca: caPem, ALPNProtocols: ['http/1.1'] });
  tls.on('error', () => undefined);
  await once(tls, 'secureConnect');
  return tls;
}

t.before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kvw-'));
  const authority = createTestAuthority();
  upstream = await startUpstream({ leaf: authority.leafFor(['api.test']) });
  writeFileSync(join(directory, 'ca.pem'), authority.caPem);
  const flags = {
    'data-dir': join(directory, 'data'),
    'proxy-listen': '127.0.0.1:0',
    'admin-listen': '127.0.0.1:0',
    'upstream-ca-file': join(directory, 'ca.pem'),
    'upstream-overrides': `api.test:443=127.0.0.1:${upstream.port}`,
    workers: '2',
  };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
  daemon = spawn(process.execPath, [MAIN, 'serve', ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let log = '';
  for await (const chunk of daemon.stdout as AsyncIterable<Buffer>) {
    log += chunk.toString();
    if (log.includes('"Ready"')) break;
  }
  daemon.stdout?.resume();
  proxyPort = Number(/"port":(\d+),"msg":"The proxy listens"/.exec(log)?.[1]);
  caPem = (await admin('GET', '/v1/ca.pem'))['text'] as string;
});

t.teardown(async () => {
  daemon.kill('SIGKILL');
  await upstream.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Processes whose parent is the daemon. */
function workerPids(): number[] {
  const path = `/proc/${daemon.pid}/task/${daemon.pid}/children`;
  return readFileSync(path, 'utf8')
    .trim()
    .split(' ')
    .filter((text) => text !== '')
    .map(Number);
}

test(
  'a rotation that was answered is obeyed by the next request in both workers',
  { skip: process.platform !== 'linux' },
  async (t) => {
    const vault = (await admin('POST', '/v1/vaults', { display_name: 'v' }))['id'] as string;
    const created = await admin('POST', `/v1/vaults/${vault}/credentials`, {
      auth: {
        type: 'environment_variable',
        secret_name: 'KEY',
        secret_value: 'the-value-number-0000',
        networking: { type: 'unrestricted' },
      },
    });
    const { placeholder } = created['auth'] as { placeholder: string };
    const session = await admin('POST', '/v1/sessions', { vault_ids: [vault] });
    const variables = (session['startup_context'] as { environment_variables: Record<string, string> })
      .environment_variables;
    const url = new URL(variables['HTTPS_PROXY'] as string);
    // Connections are handed out in turn, so of four some are at each worker.
    const tunnels = await Promise.all([1, 2, 3, 4].map(() => tunnel(`${url.username}:${url.password}`)));
    let stale = 0;
    for (let round = 1; round <= ROTATIONS; round += 1) {
      const value = `the-value-number-${String(round).padStart(4, '0')}`;
      await admin('POST', `/v1/vaults/${vault}/credentials/${created['id'] as string}`, {
        auth: { type: 'environment_variable', secret_value: value },
      });
      upstream.received.length = 0;
      await Promise.all(
        tunnels.map(async (tls) => {
          tls.write(`GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: ${placeholder}\r\n\r\n`);
          await readHead(tls);
          tls.read();
        }),
      );
      stale += upstream.received.filter((request) => request.header('x-key') !== value).length;
      if (upstream.received.length !== tunnels.length) t.fail(`${upstream.received.length} requests arrived`);
    }
    t.equal(stale, 0, `${ROTATIONS} rotations`);
    const metrics = (await admin('GET', '/metrics'))['text'] as string;
    t.match(metrics, new RegExp(`keyveil_requests_total\\{outcome="forwarded"\\} ${ROTATIONS * tunnels.length}\\n`));
    for (const tls of tunnels) tls.destroy();

    const before = workerPids();
    t.equal(before.length, 2);
    process.kill(before[0] as number, 'SIGKILL');
    let after = workerPids();
    for (let look = 0; look < 100 && !(after.length === 2 && !after.includes(before[0] as number)); look += 1) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      after = workerPids();
    }
    t.equal(after.length, 2, 'another has taken its place');
    for (let round = 0; round < 4; round += 1) {
      const tls = await tunnel(`${url.username}:${url.password}`);
      tls.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
      t.match(await readHead(tls), /^HTTP\/1\.1 200 /);
      tls.destroy();
    }
  },
);

test('SIGTERM ends the primary and its workers in good order', async (t) => {
  const workers = workerPids();
  const gone = once(daemon, 'exit');
  daemon.kill('SIGTERM');
  t.same(await gone, [0, null]);
  for (const pid of workers) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
});
