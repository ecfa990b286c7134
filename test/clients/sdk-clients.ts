// The official Anthropic and OpenAI SDKs against a fake of each API.
import { createHash } from 'node:crypto';
import { answerJson, EVENT_COUNT, type FullReceived, type FullResponse } from '../support/full-upstream.ts';
import { expect, type Check, type Client, type Column } from './client.ts';
import { nodeLibrary, NODE_24 } from './script-clients.ts';
import type { Scene, SecretName, SiteRoute } from './scene.ts';

interface Sdk {
  readonly script: string;
  readonly packageName: string;
  readonly secretName: SecretName;
}

const ANTHROPIC: Sdk = {
  script: 'anthropic',
  packageName: '@anthropic-ai/sdk',
  secretName: 'ANTHROPIC_API_KEY',
};
const OPENAI: Sdk = {
  script: 'openai',
  packageName: 'openai',
  secretName: 'OPENAI_API_KEY',
};

/** The part of a multipart body that is a file (RFC 7578). */
function filePart(request: FullReceived): Buffer {
  const boundary = /boundary=([^;]+)/.exec(String(request.headers['content-type']))?.[1] ?? '';
  const { body } = request;
  const begin = body.indexOf('\r\n\r\n', body.indexOf('filename="')) + 4;
  return body.subarray(begin, body.indexOf(`\r\n--${boundary}`, begin));
}

function promptOf(request: FullReceived): string {
  const { messages } = JSON.parse(request.body.toString()) as { messages: { content: string }[] };
  return messages[0]?.content ?? '';
}

async function sendEvents(response: FullResponse, events: AsyncIterable<readonly [string, unknown]>): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for await (const [name, data] of events) {
    const event = name === '' ? '' : `event: ${name}\n`;
    (response as NodeJS.WritableStream).write(`${event}data: ${JSON.stringify(data)}\n\n`);
  }
  (response as NodeJS.WritableStream).end();
}

const ANSWER = { id: 'msg_1', type: 'message', role: 'assistant', model: 'any', stop_reason: 'end_turn' };
const USAGE = { input_tokens: 1, output_tokens: 1 };

/** Serves the two APIs. */
export const sdkRoute: SiteRoute = async (request, response, site) => {
  const path = request.url.replace(/\?.*/, '');
  async function* anthropicEvents() {
    yield ['message_start', { type: 'message_start', message: { ...ANSWER, content: [], usage: USAGE } }] as const;
    const block = { type: 'text', text: '' };
    yield ['content_block_start', { type: 'content_block_start', index: 0, content_block: block }] as const;
    for (let number = 1; number <= EVENT_COUNT; number += 1) {
      await site.gate.pass(number);
      const delta = { type: 'text_delta', text: `event ${number}` };
      yield ['content_block_delta', { type: 'content_block_delta', index: 0, delta }] as const;
    }
    yield ['content_block_stop', { type: 'content_block_stop', index: 0 }] as const;
    yield ['message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: USAGE }] as const;
    yield ['message_stop', { type: 'message_stop' }] as const;
  }
  async function* openaiEvents() {
    for (let number = 1; number <= EVENT_COUNT; number += 1) {
      await site.gate.pass(number);
      const choice = { index: 0, delta: { content: `event ${number}` }, finish_reason: null };
      yield ['', { id: 'c', object: 'chat.completion.chunk', choices: [choice] }] as const;
    }
  }
  const isStream = request.body.includes('"stream":true');
  switch (path) {
    case '/v1/messages':
      if (isStream) await sendEvents(response, anthropicEvents());
      else answerJson(response, { ...ANSWER, content: [{ type: 'text', text: promptOf(request) }], usage: USAGE });
      return true;
    case '/openai/chat/completions': {
      const message = { role: 'assistant', content: isStream ? '' : promptOf(request) };
      if (isStream) await sendEvents(response, openaiEvents());
      else answerJson(response, { id: 'c', choices: [{ index: 0, message, finish_reason: 'stop' }] });
      return true;
    }
    case '/v1/files':
    case '/openai/files': {
      const sha256 = createHash('sha256').update(filePart(request)).digest('hex');
      answerJson(response, { id: 'file_1', type: 'file', object: 'file', sha256 });
      return true;
    }
    default:
      return false;
  }
};

function checksOf(sdk: Sdk, run: (column: Column, scene: Scene) => Promise<string>): Partial<Record<Column, Check>> {
  const ask = async (column: Column, scene: Scene) => {
    scene.upstream.received.length = 0;
    scene.upstream.gate.reset();
    const output = await run(column, scene);
    const [request] = scene.upstream.received;
    expect(request !== undefined, 'No request arrived.');
    // The Anthropic SDK sends its key in either of two fields, as its version has it.
    const { 'x-api-key': key, authorization = `Bearer ${String(key)}` } = request.headers;
    const wanted = `Bearer ${scene.secret(sdk.secretName)}`;
    expect(authorization === wanted, `The key arrived in ${String(authorization)}.`);
    return { output, request };
  };
  return {
    async header(scene) {
      await ask('header', scene);
    },
    async body(scene) {
      const { output, request } = await ask('body', scene);
      const prompt = promptOf(request);
      expect(prompt === `key=${scene.secret(sdk.secretName)}`, `The prompt arrived as ${prompt}.`);
      expect(output.includes(scene.placeholder(sdk.secretName)), `The answer came as ${output}.`);
    },
    async upload(scene) {
      const { output } = await ask('upload', scene);
      expect(output.includes(scene.upload.sha256), `The file arrived with another hash: ${output}`);
    },
    async stream(scene) {
      const { output } = await ask('stream', scene);
      expect(output.includes(`event ${EVENT_COUNT}`), `The events came as ${output}.`);
    },
  };
}

function sdkClient(sdk: Sdk, title: string, on: string): Client {
  const isOld = on !== NODE_24;
  const { run, probe } = nodeLibrary(sdk.script, isOld ? [sdk.packageName, 'undici'] : [sdk.packageName], on);
  return {
    name: isOld ? `${title}, Node.js 20` : title,
    needs: isOld ? '`fetchOptions` with undici’s `EnvHttpProxyAgent` as dispatcher' : '',
    probe,
    checks: checksOf(sdk, async (column, scene) => (await scene.run(run(column, scene))).stdout),
  };
}

export const anthropic24 = sdkClient(ANTHROPIC, 'Anthropic SDK', NODE_24);
export const anthropic20 = sdkClient(ANTHROPIC, 'Anthropic SDK', process.execPath);
export const openai24 = sdkClient(OPENAI, 'OpenAI SDK', NODE_24);
