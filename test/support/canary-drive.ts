// What the canary run does: every feature and every error path that a secret or a token can be brought near to.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { collectProcess } from './canary.ts';
import type { CanaryScene } from './canary-scene.ts';
import { basicLogin, readAll, type TestSession } from './operator.ts';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
/** Longer ones do not fit into a request line or a field of the admin API. */
const URL_CHARACTERS_MAX = 1000;

/** A credential and what stands for it. */
export interface Planted {
  readonly id: string;
  readonly name: string;
  readonly value: string;
  readonly placeholder: string;
}

const auth = (fields: Record<string, unknown>): Record<string, unknown> => ({
  type: 'environment_variable',
  networking: {
    type: 'limited',
    allowed_hosts: ['api.test', 'echo.test', 'faulty.test', 'wrong.test', 'gone.test', 'plain.test'],
  },
  injection_location: { header: true, body: true },
  ...fields,
});

/** Makes one credential of each secret. */
export async function plantCredentials(
  scene: CanaryScene,
  vaultId: string,
  secrets: Readonly<Record<string, string>>,
): Promise<Planted[]> {
  const planted: Planted[] = [];
  for (const [name, value] of Object.entries(secrets)) {
    const secret_name = `KEY_${name.toUpperCase()}`;
    const body = { auth: auth({ secret_name, secret_value: value }) };
    const answer = await scene.admin('POST', `/v1/vaults/${vaultId}/credentials`, { body });
    if (answer.status !== 200) throw new Error(answer.text);
    planted.push({ id: answer.body.id, name: secret_name, value, placeholder: answer.body.auth.placeholder });
  }
  return planted;
}

/** Opens a session of a vault; the token is told by its answer alone. */
export async function openSession(
  scene: CanaryScene,
  vaultIds: readonly string[],
): Promise<TestSession & { token: string }> {
  const answer = await scene.admin('POST', '/v1/sessions', { body: { vault_ids: vaultIds }, isOneTime: true });
  if (answer.status !== 200) throw new Error(answer.text);
  const variables = answer.body.startup_context.environment_variables as Record<string, string>;
  const { username, password } = new URL(variables['HTTPS_PROXY'] as string);
  return { id: answer.body.id, variables, authorization: basicLogin(username, password), token: password };
}

/** Bodies that are refused, with the text in a place where it does not belong. */
function refusedBodies(text: string): readonly unknown[] {
  const networking = { type: 'unrestricted' };
  const credential = (fields: Record<string, unknown>): unknown => ({
    auth: auth({ secret_name: 'REFUSED', secret_value: text, ...fields }),
  });
  return [
    `{"auth":{"secret_value":${JSON.stringify(text)}`,
    `{"auth":{"secret_value":${JSON.stringify(text)}} ${text}`,
    text,
    JSON.stringify(text),
    [text],
    { auth: text },
    credential({ type: text }),
    credential({ secret_name: `${text}!` }),
    credential({ secret_name: 'PATH' }),
    credential({ secret_value: [text] }),
    credential({ secret_value: { value: text } }),
    credential({ secret_value: `${text}\r\nX-Injected: 1` }),
    credential({ secret_value: `${text}\0` }),
    credential({ secret_value: text.repeat(Math.ceil(40_000 / text.length)) }),
    credential({ networking: text }),
    credential({ networking: { type: 'limited', allowed_hosts: [`https://${text}`] } }),
    credential({ networking: { type: 'limited', allowed_hosts: ['*.com'] } }),
    credential({ networking: { type: text } }),
    credential({ injection_location: { header: text } }),
    credential({ injection_location: { header: false, body: false } }),
    credential({ placeholder_prefix: ` ${text}` }),
    credential({ note: text }),
    credential({ secret_name: 'KEY_PLAIN' }),
    { auth: auth({ secret_name: 'REFUSED', secret_value: text }), display_name: { text } },
    { auth: auth({ secret_name: 'REFUSED', secret_value: text }), metadata: { key: [text] } },
    { auth: auth({ secret_name: 'REFUSED', secret_value: text }), metadata: text },
    { auth: auth({ secret_name: 'REFUSED', secret_value: text, networking: null }), note: text },
    { auth: { type: 'static_bearer', token: text, mcp_server_url: text } },
    { display_name: '', networking, secret_value: text },
    { auth: auth({ secret_name: 'REFUSED', secret_value: text }), padding: 'x'.repeat(1_100_000) },
  ];
}

/** Sends the text to the admin API in every place where it is refused. */
export async function sendRefusals(
  scene: CanaryScene,
  at: { vaultId: string; credentialId: string; text: string },
): Promise<number[]> {
  const { vaultId, credentialId, text } = at;
  const statuses: number[] = [];
  const send = async (...call: Parameters<CanaryScene['admin']>): Promise<void> => {
    statuses.push((await scene.admin(...call)).status);
  };
  for (const body of refusedBodies(text)) await send('POST', `/v1/vaults/${vaultId}/credentials`, { body });
  const encoded = encodeURIComponent(text);
  const bodies = [
    { name: text, scope: text },
    { vault_ids: [text] },
    { environment_id: text, vault_ids: [] },
    { active: text },
  ];
  const paths = [
    '/v1/vaults',
    `/v1/vaults/${vaultId}/credentials/${credentialId}`,
    '/v1/environments',
    '/v1/sessions',
    '/v1/admin_tokens',
    '/v1/emergency_stop',
  ];
  for (const path of paths) {
    for (const body of bodies) await send('POST', path, { body: { ...body, unexpected: text } });
  }
  if (encoded.length > URL_CHARACTERS_MAX) return statuses;
  for (const path of ['/v1/vaults/', `/v1/vaults/${vaultId}/credentials/`, '/v1/sessions/', '/v1/admin_tokens/', '/']) {
    for (const method of ['GET', 'POST', 'DELETE', 'PATCH']) await send(method, path + encoded);
  }
  for (const query of ['page', 'limit', 'created_at_gte', 'outcome'])
    await send('GET', `/v1/audit_events?${query}=${encoded}`);
  const field = Buffer.from(text).toString('latin1');
  await send('GET', '/v1/vaults', { token: field });
  await send('GET', '/v1/vaults', { token: null, headers: { authorization: `Bearer ${field}` } });
  await send('GET', '/v1/vaults', { token: null, headers: { authorization: basicLogin('admin', text) } });
  await send('GET', '/v1/vaults', { headers: { host: `${encoded}.test` } });
  await send('POST', '/v1/vaults', { body: '{}', headers: { 'content-type': `text/plain; x="${encoded}"` } });
  return statuses;
}

interface Exchange {
  readonly host: string;
  readonly request: string;
  readonly fields?: readonly string[];
  readonly body?: string;
}

/** One request over HTTP/1.1 in a tunnel of its own; all that comes back is kept. */
export async function exchange(
  scene: CanaryScene,
  session: TestSession,
  { host, request, fields = [], body }: Exchange,
): Promise<string> {
  const tls = await scene.keyveil.tunnel(session, `${host}:443`);
  const length = body === undefined ? [] : [`Content-Length: ${String(Buffer.byteLength(body))}`];
  const head = [`${request} HTTP/1.1`, `Host: ${host}`, 'Connection: close', ...fields, ...length];
  tls.write(`${head.join('\r\n')}\r\n\r\n${body ?? ''}`);
  const answer = await readAll(tls);
  scene.keep('proxy answers', `${request} at ${host}`, Buffer.from(answer, 'latin1'));
  return answer;
}

/** Bytes to the proxy port itself; all that comes back is kept. */
async function sendToProxy(scene: CanaryScene, text: string): Promise<string> {
  const socket = connectTcp(scene.keyveil.proxyPort, '127.0.0.1');
  // A CONNECT that is good leaves the connection open; nothing more is sent on it.
  socket.on('data', (chunk) => chunk.includes('200 ') && socket.destroy());
  socket.write(text);
  const answer = await readAll(socket);
  scene.keep('proxy answers', text.split('\r\n')[0] as string, Buffer.from(answer, 'latin1'));
  return answer;
}

async function overHttp2(scene: CanaryScene, session: TestSession, { placeholder }: Planted): Promise<void> {
  const tls = await scene.keyveil.tunnel(session, 'echo.test:443', { ALPNProtocols: ['h2'] });
  const client = connectHttp2('https://echo.test', { createConnection: () => tls });
  client.on('error', () => undefined);
  for (const path of ['/say/fields', '/say/length', '/say/trailers', '/say/gzip', '/say/events']) {
    const stream = client.request({ ':method': 'POST', ':path': path, 'content-type': 'application/json' });
    const heads: unknown[] = [];
    stream.on('response', (fields, _flags) => heads.push(fields));
    stream.on('trailers', (fields) => heads.push(fields));
    stream.end(JSON.stringify({ key: placeholder }));
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    scene.keep(
      'proxy answers',
      `HTTP/2 ${path}`,
      `${JSON.stringify(heads)}${Buffer.concat(chunks).toString('latin1')}`,
    );
  }
  client.destroy();
}

async function overWebSocket(scene: CanaryScene, session: TestSession, { placeholder, value }: Planted): Promise<void> {
  const tls = await scene.keyveil.tunnel(session, 'echo.test:443');
  const headers = value.length < URL_CHARACTERS_MAX ? { 'X-Key': placeholder } : {};
  const client = new WebSocket('wss://echo.test/socket', { createConnection: () => tls, headers });
  await once(client, 'open');
  for (const message of [JSON.stringify({ key: placeholder }), placeholder, Buffer.from(placeholder)]) {
    client.send(message);
    const [data] = (await once(client, 'message')) as [Buffer];
    scene.keep('proxy answers', 'WebSocket', data);
  }
  client.terminate();
}

/** Uses a credential everywhere; the upstream sends it back wherever the veil covers its length. */
export async function useCredential(scene: CanaryScene, session: TestSession, planted: Planted): Promise<void> {
  const { placeholder, value } = planted;
  const isVeiled = Buffer.byteLength(value) >= 8;
  const isField = value.length < URL_CHARACTERS_MAX;
  const say = isVeiled ? ['fields', 'gzip', 'length', 'trailers', 'events', 'nothing'] : ['nothing'];
  const json = JSON.stringify({ key: placeholder });
  const type = ['Content-Type: application/json'];
  for (const path of say) {
    await exchange(scene, session, {
      host: 'echo.test',
      request: `POST /say/${path}?status=401`,
      fields: type,
      body: json,
    });
    if (isField)
      await exchange(scene, session, {
        host: 'echo.test',
        request: `GET /say/${path}?status=503`,
        fields: [`X-Key: ${placeholder}`],
      });
  }
  if (isVeiled) {
    await overHttp2(scene, session, planted);
    await overWebSocket(scene, session, planted);
    const login = [`Authorization: ${basicLogin('robot', placeholder)}`];
    if (isField)
      await exchange(scene, session, {
        host: 'echo.test',
        request: 'POST /say/fields',
        fields: login,
        body: placeholder,
      });
  }
  await exchange(scene, session, {
    host: 'echo.test',
    request: 'POST /say/nothing',
    fields: ['Content-Type: application/x-www-form-urlencoded'],
    body: `a=b&key=${placeholder}`,
  });
  await exchange(scene, session, {
    host: 'other.test',
    request: `GET /${placeholder}?q=${placeholder}`,
    fields: [`X-Key: ${placeholder}`],
  });
  for (const fault of ['cut', 'reset', 'syntax', 'noise', 'chunk', 'coding', 'ok']) {
    const fields = isField && isVeiled ? [`X-Key: ${placeholder}`] : [];
    await exchange(scene, session, { host: 'faulty.test', request: `POST /${fault}`, fields, body: placeholder });
  }
  for (const host of ['wrong.test', 'gone.test'])
    await exchange(scene, session, { host, request: 'POST /', fields: [`X-Key: ${placeholder}`], body: placeholder });
  await sendToProxy(
    scene,
    `GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nProxy-Authorization: ${session.authorization}\r\nX-Key: ${placeholder}\r\nConnection: close\r\n\r\n`,
  );
}

/** Logins that fail, and destinations that are refused, with the token in every place that a client may mistake. */
export async function misuseToken(scene: CanaryScene, session: TestSession & { token: string }): Promise<void> {
  const { id, token, authorization } = session;
  const connect = (target: string, ...fields: string[]): string =>
    [`CONNECT ${target} HTTP/1.1`, `Host: ${target}`, ...fields].join('\r\n') + '\r\n\r\n';
  const login = `Proxy-Authorization: ${authorization}`;
  const texts = [
    connect(`${id}:${token}@api.test:443`, login),
    connect(`${token}.test:443`, login),
    connect('169.254.169.254:443', login),
    connect('10.1.2.3:443', login),
    connect('localhost:7081', login),
    connect('api.test:443', login, `X-Token: ${token}`),
    connect('api.test:443', `Authorization: ${authorization}`),
    connect('api.test:443', `Proxy-Authorization: Bearer ${token}`, login),
    connect('api.test:443', `Proxy-Authorization: Basic ${token}`),
    connect('api.test:443', `Proxy-Authorization: ${basicLogin(token, id)}`),
    connect('api.test:443', `Proxy-Authorization: ${basicLogin(id, `${token}x`)}`),
    connect('api.test:443', `Proxy-Authorization : ${authorization}`),
    connect('api.test:443', login, `Bad field ${token}`),
    `GET http://${id}:${token}@plain.test/ HTTP/1.1\r\nHost: plain.test\r\n${login}\r\n\r\n`,
    `GET http://${token}@plain.test/ HTTP/1.1\r\nHost: plain.test\r\n${login}\r\n\r\n`,
    `GET https://api.test/ HTTP/1.1\r\nHost: ${token}\r\n${login}\r\n\r\n`,
    `${token} / HTTP/1.1\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: api.test\r\n${login}\r\n\r\n`,
  ];
  for (const text of texts) await sendToProxy(scene, text);
  await exchange(scene, session, { host: 'api.test', request: 'GET /', fields: [login] });
  await exchange(scene, session, { host: 'api.test', request: 'GET /', fields: [login, 'Host: other.test'] });
  await exchange(scene, session, { host: 'api.test', request: 'CONNECT api.test:443', fields: [login] });
}

/** A command line as a process of its own; what it prints is kept, and what others can see of it. */
export async function runCommand(
  scene: CanaryScene,
  words: readonly string[],
  options: { readonly stdin?: string; readonly isOneTime?: boolean; readonly timeoutMs?: number } = {},
): Promise<{ code: number | null; output: string }> {
  const { dataDirectory } = scene.keyveil;
  const env = { PATH: process.env['PATH'], TMPDIR: scene.temporaryDirectory, KEYVEIL_DATA_DIR: dataDirectory };
  const child = spawn(process.execPath, [MAIN, ...words], { env, stdio: ['pipe', 'pipe', 'pipe'] });
  const chunks: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stdin.on('error', () => undefined);
  if (options.timeoutMs !== undefined) setTimeout(() => child.kill('SIGINT'), options.timeoutMs).unref();
  const closed = once(child, 'close');
  const seen = collectProcess(child.pid as number, [dataDirectory, scene.temporaryDirectory]);
  child.stdin.end(options.stdin ?? '');
  const [code] = (await closed) as [number | null];
  scene.answers.push(...seen);
  const output = Buffer.concat(chunks);
  scene.keep(options.isOneTime === true ? 'one-time answers' : 'command output', words.join(' '), output);
  return { code, output: output.toString() };
}

/** The commands that read secrets, show objects, and make copies. */
export async function runCommands(
  scene: CanaryScene,
  secrets: Readonly<Record<string, string>>,
): Promise<(number | null)[]> {
  const codes: (number | null)[] = [];
  const run = async (line: string, options: Parameters<typeof runCommand>[2] = {}): Promise<string> => {
    const { code, output } = await runCommand(scene, line.split(' '), options);
    codes.push(code);
    return output;
  };
  const { plain = '', special = '', text = '', long = '' } = secrets;
  const dotenv = join(scene.backupDirectory, '../secrets.env');
  writeFileSync(dotenv, `FROM_FILE=${plain}\nALSO_FROM_FILE='${long}'\nBAD LINE ${plain}\n`);
  await run('vault create by-hand');
  await run('credential create TYPED --vault by-hand --host api.test', { stdin: `${special}\n` });
  await run('credential create TYPED --vault by-hand --host api.test', { stdin: `${plain}\n` });
  await run('credential rotate TYPED --vault by-hand', { stdin: text });
  await run(`credential import --dotenv ${dotenv} --vault by-hand --host api.test`);
  writeFileSync(dotenv, `FROM_FILE=${plain}\nALSO_FROM_FILE='${long}'\n`);
  await run(`credential import --dotenv ${dotenv} --vault by-hand --host api.test`);
  await run('credential list --vault by-hand --json');
  await run('audit --json');
  await run('doctor');
  await run(`backup ${join(scene.backupDirectory, 'keyveil.db')}`);
  await run('run --vault by-hand -- sh -c env');
  return codes;
}
