// Every client of the matrix, in the order of the table.
import type { Client } from './client.ts';
import {
  aiohttp,
  axios,
  fetch24,
  got,
  https,
  httpx,
  httpx2,
  requests,
  undici,
  urllib,
  websockets,
  ws,
} from './script-clients.ts';
import { grpcNode, grpcPython } from './grpc-clients.ts';
import { anthropic20, anthropic24, openai24 } from './sdk-clients.ts';
import { curlAnyAuth, curlHttp1, curlHttp2, wget } from './shell-clients.ts';

export const clients: readonly Client[] = [
  curlHttp1,
  curlHttp2,
  curlAnyAuth,
  wget,
  urllib,
  requests,
  httpx,
  httpx2,
  aiohttp,
  websockets,
  fetch24,
  undici,
  axios,
  got,
  https,
  ws,
  anthropic24,
  anthropic20,
  openai24,
  grpcNode,
  grpcPython,
];
