// fetch and WebSocket of the runtime itself, which regard the proxy's variables where NODE_USE_ENV_PROXY is known.
import { openAsBlob } from 'node:fs';
import { authorization, base, column, key, path, printLines, talk } from './connection.mjs';

const modes = {
  header: async () => console.log(await (await fetch(`${base}/echo`, { headers: { authorization } })).text()),
  body: async () => {
    const headers = { 'content-type': 'application/json' };
    console.log(await (await fetch(`${base}/echo`, { method: 'POST', headers, body: JSON.stringify({ key }) })).text());
  },
  upload: async () => {
    const body = await openAsBlob(path);
    console.log(await (await fetch(`${base}/upload`, { method: 'PUT', body })).text());
  },
  stream: async () => printLines((await fetch(`${base}/events`)).body),
  websocket: () => talk(new WebSocket(`${base.replace('https:', 'wss:')}/ws`)),
};
await modes[column]();
