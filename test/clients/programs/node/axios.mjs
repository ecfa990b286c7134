// axios with nothing but the variables.
import { createReadStream } from 'node:fs';
import axios from 'axios';
import { authorization, base, column, key, path, printLines } from './connection.mjs';

const text = { responseType: 'text', transformResponse: (body) => body };
const modes = {
  header: async () => console.log((await axios.get(`${base}/echo`, { ...text, headers: { authorization } })).data),
  body: async () => console.log((await axios.post(`${base}/echo`, { key }, text)).data),
  upload: async () => console.log((await axios.put(`${base}/upload`, createReadStream(path), text)).data),
  stream: async () => printLines((await axios.get(`${base}/events`, { responseType: 'stream' })).data),
};
await modes[column]();
