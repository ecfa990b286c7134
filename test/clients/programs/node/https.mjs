// node:https with an agent that opens the tunnel.
import { createReadStream } from 'node:fs';
import { request } from 'node:https';
import { pipeline } from 'node:stream/promises';
import { HttpsProxyAgent } from 'https-proxy-agent';
import { authorization, base, column, key, path, printLines, proxy } from './connection.mjs';

const agent = new HttpsProxyAgent(proxy);

function open(url, options = {}) {
  const call = request(`${base}${url}`, { agent, ...options });
  const answer = new Promise((resolve, reject) => {
    call.on('response', resolve);
    call.on('error', reject);
  });
  return { call, answer };
}

async function print(answer) {
  const chunks = [];
  for await (const chunk of await answer) chunks.push(chunk);
  console.log(Buffer.concat(chunks).toString());
}

const modes = {
  header: async () => {
    const { call, answer } = open('/echo', { headers: { authorization } });
    call.end();
    await print(answer);
  },
  body: async () => {
    const { call, answer } = open('/echo', { method: 'POST', headers: { 'content-type': 'application/json' } });
    call.end(JSON.stringify({ key }));
    await print(answer);
  },
  upload: async () => {
    const { call, answer } = open('/upload', { method: 'PUT' });
    await pipeline(createReadStream(path), call);
    await print(answer);
  },
  stream: async () => {
    const { call, answer } = open('/events');
    call.end();
    await printLines(await answer);
  },
};
await modes[column]();
