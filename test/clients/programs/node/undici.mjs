// undici with its EnvHttpProxyAgent.
import { createReadStream } from 'node:fs';
import { EnvHttpProxyAgent, fetch, setGlobalDispatcher, WebSocket } from 'undici';
import { authorization, base, column, key, path, printLines, talk } from './connection.mjs';

setGlobalDispatcher(new EnvHttpProxyAgent());
const modes = {
  header: async () => console.log(await (await fetch(`${base}/echo`, { headers: { authorization } })).text()),
  body: async () => {
    const headers = { 'content-type': 'application/json' };
    console.log(await (await fetch(`${base}/echo`, { method: 'POST', headers, body: JSON.stringify({ key }) })).text());
  },
  upload: async () => {
    const body = createReadStream(path);
    console.log(await (await fetch(`${base}/upload`, { method: 'PUT', body, duplex: 'half' })).text());
  },
  stream: async () => printLines((await fetch(`${base}/events`)).body),
  websocket: () => talk(new WebSocket(`${base.replace('https:', 'wss:')}/ws`)),
};
await modes[column]();
