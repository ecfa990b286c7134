// Fuzzes HTTP/1.1 inside a tunnel: heads and bodies of requests, several on one connection, whole and in pieces.
import { gzipSync } from 'node:zlib';
import { HOST, openProxyScene, PLACEHOLDER, UNCOVERED } from './proxy-scene.ts';
import { below, cutText, mutateText, pick, type FuzzTarget, type Random } from './target.ts';

interface Input {
  /** Latin-1, after the TLS handshake. */
  readonly pieces: readonly string[];
}

const LINES = ['GET / HTTP/1.1', 'POST /p?q=1 HTTP/1.1', 'HEAD /h HTTP/1.1', 'OPTIONS * HTTP/1.1', 'GET / HTTP/1.0'];
const ODD_LINES = [
  `GET https://${HOST}/absolute HTTP/1.1`,
  'GET https://other.test/ HTTP/1.1',
  `GET /${PLACEHOLDER} HTTP/1.1`,
  'CONNECT api.test:443 HTTP/1.1',
  'PRI * HTTP/2.0',
  'GET  /  HTTP/1.1',
  'G\tT / HTTP/1.1',
  'get /\x80 HTTP/1.1',
];
const FIELDS = [
  `X-Key: ${PLACEHOLDER}\r\n`,
  `Authorization: Bearer ${PLACEHOLDER}\r\n`,
  `Authorization: Basic ${Buffer.from(`user:${PLACEHOLDER}`).toString('base64')}\r\n`,
  `X-Other: ${UNCOVERED}\r\n`,
  `Cookie: a=${PLACEHOLDER}; b=2\r\n`,
  'Connection: close\r\n',
  'Connection: keep-alive, x-key\r\n',
  'Expect: 100-continue\r\n',
  'TE: trailers\r\nTrailer: X-Sum\r\n',
  'Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n',
  'Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAAA\r\n',
  'Accept-Encoding: gzip, br;q=0.1, *;q=0\r\n',
  'Proxy-Authorization: Basic eDp5\r\n',
  'Proxy-Connection: keep-alive\r\n',
  'Content-Digest: sha-256=:AAAA:\r\n',
  'Host: other.test\r\n',
  `X-Long: ${'x'.repeat(5000)}\r\n`,
];
const TYPES = ['application/json', 'application/x-www-form-urlencoded', 'text/plain', 'application/octet-stream'];
const BODIES = [
  `{"key":"${PLACEHOLDER}"}`,
  `key=${PLACEHOLDER}&other=${UNCOVERED}`,
  'nothing in it',
  '',
  `${'a'.repeat(5000)}${PLACEHOLDER}${'b'.repeat(3000)}`,
  PLACEHOLDER.repeat(20),
];
const TOKENS = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  '\0',
  ' ',
  '\t',
  ':',
  '0\r\n\r\n',
  '5\r\nhello\r\n',
  'Content-Length: 3\r\n',
  'Content-Length: 0\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'GET /second HTTP/1.1\r\nHost: api.test\r\n\r\n',
  ...FIELDS,
];

function chunked(body: string, random: Random): string {
  const chunks = cutText(body, 5, random).map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`);
  return `${chunks.join('')}0\r\n${random() < 0.3 ? `X-Sum: ${PLACEHOLDER}\r\n` : ''}\r\n`;
}

function makeRequest(random: Random): string {
  const line = random() < 0.85 ? pick(LINES, random) : pick(ODD_LINES, random);
  let fields = random() < 0.95 ? `Host: ${HOST}\r\n` : '';
  while (random() < 0.45) fields += pick(FIELDS, random);
  if (random() < 0.5) return `${line}\r\n${fields}\r\n`;
  let body = pick(BODIES, random);
  fields += `Content-Type: ${pick(TYPES, random)}\r\n`;
  if (random() < 0.25) {
    body = gzipSync(body).toString('latin1');
    fields += `Content-Encoding: ${pick(['gzip', 'gzip', 'br', 'identity', 'gzip, gzip'], random)}\r\n`;
  }
  if (random() < 0.5) return `${line}\r\n${fields}Transfer-Encoding: chunked\r\n\r\n${chunked(body, random)}`;
  const length = random() < 0.9 ? body.length : below(2 * body.length + 2, random);
  return `${line}\r\n${fields}Content-Length: ${length}\r\n\r\n${body}`;
}

export async function openRequestTarget(): Promise<FuzzTarget> {
  const scene = await openProxyScene();
  return {
    make(random): Input {
      let text = '';
      do text += makeRequest(random);
      while (random() < 0.35);
      return { pieces: cutText(random() < 0.8 ? mutateText(text, TOKENS, random) : text, 5, random) };
    },
    async attempt(input) {
      const tls = await scene.keyveil.tunnel(`${HOST}:443`);
      const answers = await scene.exchange(tls, (input as Input).pieces);
      if (answers !== '' && !/^HTTP\/1\.[01] [1-5]\d\d /.test(answers)) return `answered ${JSON.stringify(answers)}`;
      return scene.judge(answers);
    },
    close: () => scene.close(),
  };
}
