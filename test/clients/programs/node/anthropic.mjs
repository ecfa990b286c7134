// The Anthropic SDK with its key from ANTHROPIC_API_KEY.
import { createReadStream } from 'node:fs';
import process from 'node:process';
import Anthropic from '@anthropic-ai/sdk';
import { base, column, path } from './connection.mjs';
import { sdkOptions } from './sdk-options.mjs';

const client = new Anthropic({ baseURL: base, maxRetries: 0, ...(await sdkOptions()) });
const message = (content) => ({ model: 'any', max_tokens: 16, messages: [{ role: 'user', content }] });
const modes = {
  header: async () => console.log(JSON.stringify(await client.messages.create(message('hello')))),
  body: async () => {
    const content = `key=${process.env.ANTHROPIC_API_KEY}`;
    console.log(JSON.stringify(await client.messages.create(message(content))));
  },
  upload: async () => console.log(JSON.stringify(await client.beta.files.upload({ file: createReadStream(path) }))),
  stream: async () => {
    for await (const event of client.messages.stream(message('hello'))) {
      if (event.type === 'content_block_delta') console.log(event.delta.text);
    }
  },
};
await modes[column]();
