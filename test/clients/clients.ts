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
import { chromium } from './chromium.ts';
import { go, javaClient, javaConnection, ureq } from './compiled-clients.ts';
import { grpcNode, grpcPython } from './grpc-clients.ts';
import { git, npm, pip } from './registry-clients.ts';
import { anthropic20, anthropic24, openai24 } from './sdk-clients.ts';
import { curlAnyAuth, curlHttp1, curlHttp2, wget } from './shell-clients.ts';

export const clients: readonly Client[] = [
  curlHttp1,
  curlHttp2,
  curlAnyAuth,
  wget,
  git,
  npm,
  pip,
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
  go,
  javaClient,
  javaConnection,
  ureq,
  grpcNode,
  grpcPython,
  chromium,
];
