// got with an agent that opens the tunnel.
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import got from 'got';
import { HttpsProxyAgent } from 'https-proxy-agent';
import { authorization, base, column, key, path, printLines, proxy } from './connection.mjs';

const client = got.extend({ agent: { https: new HttpsProxyAgent(proxy) } });
const modes = {
  header: async () => console.log(await client.get(`${base}/echo`, { headers: { authorization } }).text()),
  body: async () => console.log(await client.post(`${base}/echo`, { json: { key } }).text()),
  upload: async () => {
    const request = client.stream.put(`${base}/upload`);
    await pipeline(createReadStream(path), request, async (answer) => printLines(withNewline(answer)));
  },
  stream: async () => printLines(client.stream(`${base}/events`)),
};

async function* withNewline(stream) {
  yield* stream;
  yield new TextEncoder().encode('\n');
}
await modes[column]();
