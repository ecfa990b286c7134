// The bare sketch: node:http takes the CONNECT, TLS ends here, undici dispatches upstream; one header is replaced.
// It checks no session, reads no policy, veils nothing and records nothing.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import process from 'node:process';
import { createSecureContext, TLSSocket } from 'node:tls';
import { Agent } from 'undici';

const { BENCH_CA, BENCH_LEAF, BENCH_PLACEHOLDER, BENCH_VALUE } = process.env;
const leaf = JSON.parse(readFileSync(BENCH_LEAF, 'utf8'));
const secureContext = createSecureContext(leaf);
const agent = new Agent({ connect: { ca: readFileSync(BENCH_CA, 'utf8') }, headersTimeout: 0, bodyTimeout: 0 });
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'proxy-connection', 'te', 'transfer-encoding', 'upgrade']);

function requestHeaders(raw) {
  const headers = [];
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index].toLowerCase();
    if (HOP_BY_HOP.has(name)) continue;
    headers.push(
      raw[index],
      name === 'authorization' ? raw[index + 1].replace(BENCH_PLACEHOLDER, BENCH_VALUE) : raw[index + 1],
    );
  }
  return headers;
}

function responseHeaders(raw) {
  const headers = [];
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index].toString('latin1');
    if (!HOP_BY_HOP.has(name.toLowerCase())) headers.push(name, raw[index + 1].toString('latin1'));
  }
  return headers;
}

const inner = createServer((request, response) => {
  const { method, url: path, rawHeaders, headers } = request;
  const hasBody = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
  let resumeUpstream = null;
  response.on('drain', () => resumeUpstream?.());
  agent.dispatch(
    {
      origin: request.socket.origin,
      path,
      method,
      headers: requestHeaders(rawHeaders),
      body: hasBody ? request : null,
    },
    {
      onConnect: () => undefined,
      onHeaders(status, raw, resume, reason) {
        resumeUpstream = resume;
        response.writeHead(status, reason, responseHeaders(raw));
        return true;
      },
      onData: (chunk) => response.write(chunk),
      onComplete: () => response.end(),
      onError: () => response.destroy(),
    },
  );
});

const server = createServer();
server.on('connect', (request, socket) => {
  socket.on('error', () => socket.destroy());
  socket.setNoDelay(true);
  socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
  const secured = new TLSSocket(socket, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
  secured.origin = `https://${request.url}`;
  secured.on('error', () => socket.destroy());
  secured.once('secure', () => inner.emit('connection', secured));
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`READY ${server.address().port}\n`));
