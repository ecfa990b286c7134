// The OpenAI SDK, set up as the Anthropic one is.
import { createReadStream } from 'node:fs';
import process from 'node:process';
import OpenAI from 'openai';
import { base, column, path } from './connection.mjs';
import { sdkOptions } from './sdk-options.mjs';

const client = new OpenAI({ baseURL: `${base}/openai`, maxRetries: 0, ...(await sdkOptions()) });
const chat = (content) => ({ model: 'any', messages: [{ role: 'user', content }] });
const modes = {
  header: async () => console.log(JSON.stringify(await client.chat.completions.create(chat('hello')))),
  body: async () => {
    const content = `key=${process.env.OPENAI_API_KEY}`;
    console.log(JSON.stringify(await client.chat.completions.create(chat(content))));
  },
  upload: async () => {
    const file = createReadStream(path);
    console.log(JSON.stringify(await client.files.create({ file, purpose: 'user_data' })));
  },
  stream: async () => {
    const stream = await client.chat.completions.create({ ...chat('hello'), stream: true });
    for await (const chunk of stream) console.log(chunk.choices[0]?.delta.content ?? '');
  },
};
await modes[column]();
