// A page in headless Chromium, driven over the DevTools protocol by a pipe.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { API, expect, probeProgram, programChecks, type Client, type Column } from './client.ts';
import type { Scene } from './scene.ts';

const PAGE_TIMEOUT_MS = 60_000;

type Json = Record<string, unknown>;
type Handler = (params: Json) => void;

/** The DevTools protocol over descriptors 3 and 4: JSON texts that end in a zero byte. */
class DevTools {
  readonly #input: Writable;
  readonly #calls = new Map<number, { resolve: (result: Json) => void; reject: (error: Error) => void }>();
  readonly #handlers = new Map<string, Handler>();
  #lastId = 0;
  sessionId: string | undefined;

  constructor(browser: ChildProcess) {
    this.#input = browser.stdio[3] as Writable;
    this.#input.on('error', () => undefined);
    const output = browser.stdio[4] as Readable;
    output.setEncoding('utf8');
    let held = '';
    output.on('data', (text: string) => {
      const parts = (held + text).split('\0');
      held = parts.pop() ?? '';
      for (const part of parts) this.#take(JSON.parse(part) as Json);
    });
    browser.once('close', () => {
      for (const { reject } of this.#calls.values()) reject(new Error('The browser ended.'));
    });
  }

  on(method: string, handler: Handler): void {
    this.#handlers.set(method, handler);
  }

  call(method: string, params: Json = {}): Promise<Json> {
    const id = (this.#lastId += 1);
    const { sessionId } = this;
    const message = { id, method, params, ...(sessionId === undefined ? {} : { sessionId }) };
    this.#input.write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }));
  }

  #take(message: Json): void {
    if (typeof message['method'] === 'string') {
      this.#handlers.get(message['method'])?.(message['params'] as Json);
      return;
    }
    const call = this.#calls.get(message['id'] as number);
    this.#calls.delete(message['id'] as number);
    if (message['error'] === undefined) call?.resolve(message['result'] as Json);
    else call?.reject(new Error(JSON.stringify(message['error'])));
  }
}

function script(column: Column, scene: Scene): string {
  const key = JSON.stringify(scene.placeholder('API_KEY'));
  const text = '.then((response) => response.text())';
  switch (column) {
    case 'header':
      return `fetch('/echo', { headers: { authorization: 'Bearer ' + ${key} } })${text}`;
    case 'body': {
      const options = `{ method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ key: ${key} }) }`;
      return `fetch('/echo', ${options})${text}`;
    }
    case 'upload': {
      const bytes = `Uint8Array.from(atob('${readFileSync(scene.upload.path, 'base64')}'), (one) => one.charCodeAt(0))`;
      return `fetch('/upload', { method: 'PUT', body: ${bytes} })${text}`;
    }
    case 'stream':
      return `new Promise((resolve) => {
        const events = [];
        const source = new EventSource('/events');
        source.onmessage = ({ data }) => { events.push(data); seen(data); };
        source.onerror = () => { source.close(); resolve(events.join(' ')); };
      })`;
    case 'websocket':
      return `new Promise((resolve, reject) => {
        const socket = new WebSocket('${API.replace('https:', 'wss:')}/ws');
        socket.onopen = () => socket.send('key=' + ${key});
        socket.onmessage = ({ data }) => { socket.close(); resolve(data); };
        socket.onerror = () => reject(new Error('The WebSocket failed.'));
      })`;
  }
}

/** Opens a page of the API's origin, answering the proxy's question for a login. */
async function openPage(devTools: DevTools, scene: Scene): Promise<void> {
  const { targetId } = await devTools.call('Target.createTarget', { url: 'about:blank' });
  const attached = await devTools.call('Target.attachToTarget', { targetId, flatten: true });
  devTools.sessionId = attached['sessionId'] as string;
  const proceed = (method: string, params: Json): void => {
    // The page may be gone by then; what it was asked for fails with a message of its own.
    devTools.call(method, params).catch(() => undefined);
  };
  devTools.on('Fetch.requestPaused', ({ requestId }) => proceed('Fetch.continueRequest', { requestId }));
  devTools.on('Fetch.authRequired', ({ requestId }) => {
    const { username, password } = scene.proxy;
    const authChallengeResponse = { response: 'ProvideCredentials', username, password };
    proceed('Fetch.continueWithAuth', { requestId, authChallengeResponse });
  });
  devTools.on('Runtime.bindingCalled', ({ payload }) => {
    scene.upstream.gate.seen(Number(/\d+/.exec(String(payload))?.[0]));
  });
  await devTools.call('Page.enable');
  await devTools.call('Fetch.enable', { handleAuthRequests: true });
  const loaded = new Promise<void>((resolve) => devTools.on('Page.loadEventFired', () => resolve()));
  const { errorText } = await devTools.call('Page.navigate', { url: `${API}/echo` });
  expect(errorText === undefined, `The page did not load: ${String(errorText)}`);
  await loaded;
  await devTools.call('Fetch.disable');
  await devTools.call('Runtime.addBinding', { name: 'seen' });
}

async function runInPage(column: Column, scene: Scene): Promise<string> {
  const profile = mkdtempSync(join(scene.directory, 'chromium-'));
  const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'];
  const own = [`--user-data-dir=${profile}`, `--proxy-server=${scene.proxy.origin}`, '--remote-debugging-pipe'];
  const browser = spawn('chromium', [...flags, ...own], {
    env: scene.environment(),
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  });
  const closed = new Promise((resolve) => browser.once('close', resolve));
  const timer = setTimeout(() => browser.kill('SIGKILL'), PAGE_TIMEOUT_MS);
  try {
    const devTools = new DevTools(browser);
    await openPage(devTools, scene);
    scene.upstream.received.length = 0;
    const expression = script(column, scene);
    const outcome = await devTools.call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    expect(outcome['exceptionDetails'] === undefined, JSON.stringify(outcome['exceptionDetails']));
    return String((outcome['result'] as Json)['value']);
  } finally {
    clearTimeout(timer);
    browser.kill('SIGKILL');
    await closed;
  }
}

/** Chromium reads the CA from the user's NSS database. */
function trustCa(scene: Scene): void {
  const database = join(scene.environment()['HOME'] ?? '', '.pki/nssdb');
  mkdirSync(database, { recursive: true });
  const certutil = (args: readonly string[]): void => {
    const { status, stderr } = spawnSync('certutil', ['-d', `sql:${database}`, ...args], { encoding: 'utf8' });
    expect(status === 0, `certutil failed: ${stderr}`);
  };
  certutil(['-N', '--empty-password']);
  certutil(['-A', '-t', 'C,,', '-n', 'keyveil', '-i', join(scene.directory, 'ca.pem')]);
}

export const chromium: Client = {
  name: 'Chromium page',
  needs: '`--proxy-server`, the login given by the driver, the CA in the NSS database',
  probe: () => {
    const browser = probeProgram('chromium', ['--version'], /Chromium (\S+)/);
    if ('missing' in browser) return browser;
    const certutil = spawnSync('certutil', ['-H']);
    return certutil.error === undefined ? browser : { missing: 'certutil (libnss3-tools) is not installed' };
  },
  prepare: async (scene) => trustCa(scene),
  checks: programChecks({
    run: runInPage,
    columns: ['header', 'body', 'upload', 'stream', 'websocket'],
    http: '2.0',
  }),
};
