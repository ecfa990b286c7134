// Every substitution vector through the real proxy: whole, cut around each placeholder, byte by byte; HTTP/1.1 and 2.
import * as http2 from 'node:http2';
import type { TLSSocket } from 'node:tls';
import * as zlib from 'node:zlib';
import t, { test } from 'tap';
import { headerValue, withoutHeaders } from '../../proxy/exchange.ts';
import { substitutionVectors, type SubstitutionVector } from '../proxy/swap/vectors.ts';
import { readHead } from '../support/daemon.ts';
import { sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';
import { startUpstream, type ReceivedRequest, type TestUpstream } from '../support/upstream.ts';

const vectors = substitutionVectors();
const authority = createTestAuthority();
const HOSTS = [...new Set(vectors.map(({ host }) => host))];
const FRAMING = new Set(['host', 'content-length', 'transfer-encoding', 'content-encoding']);

let upstream: TestUpstream;
let keyveil: TestProxy;

t.before(async () => {
  upstream = await startUpstream({ leaf: authority.leafFor(HOSTS) });
  const overrides = Object.fromEntries(HOSTS.map((host) => [`${host}:443`, upstream.port]));
  keyveil = await startTestProxy({ authority, overrides, policy: sessionPolicy([]) });
});

t.teardown(async () => {
  await keyveil.close();
  await upstream.close();
});

/** The body in pieces: one, two at each place around a placeholder's bytes, and single bytes. */
function cutsOf({ body, credentials }: SubstitutionVector): Buffer[][] {
  if (body.length === 0) return [[]];
  const cuts: Buffer[][] = [[body]];
  const places = new Set<number>();
  for (const { placeholder } of credentials) {
    for (let at = body.indexOf(placeholder); at >= 0; at = body.indexOf(placeholder, at + 1)) {
      for (let place = at - 1; place <= at + placeholder.length + 1; place += 1) places.add(place);
    }
  }
  for (const place of places) {
    if (place > 0 && place < body.length) cuts.push([body.subarray(0, place), body.subarray(place)]);
  }
  if (body.length <= 4096) cuts.push(Array.from(body, (byte) => Buffer.of(byte)));
  return cuts;
}

function decode(request: ReceivedRequest): Buffer {
  switch (request.header('content-encoding')) {
    case undefined:
      return request.body;
    case 'gzip':
      return zlib.gunzipSync(request.body);
    case 'deflate':
      return zlib.inflateSync(request.body);
    case 'br':
      return zlib.brotliDecompressSync(request.body);
    default:
      throw new Error(`The coding ${request.header('content-encoding')} was not expected.`);
  }
}

const fieldsOf = (headers: readonly string[]): readonly string[] => withoutHeaders(headers, FRAMING);

interface Sent {
  readonly vector: SubstitutionVector;
  readonly pieces: readonly Buffer[];
  readonly isChunked: boolean;
}

async function sendHttp1(tls: TLSSocket, { vector, pieces, isChunked }: Sent) {
  const arrived = upstream.next();
  const host = headerValue(vector.headers, 'host') === undefined ? ['Host', vector.host] : [];
  const framing = isChunked ? ['Transfer-Encoding', 'chunked'] : ['Content-Length', String(vector.body.length)];
  const fields = [...host, ...vector.headers, ...framing];
  let head = 'POST /v HTTP/1.1\r\n';
  for (let index = 0; index < fields.length; index += 2) head += `${fields[index]}: ${fields[index + 1]}\r\n`;
  tls.write(`${head}\r\n`, 'latin1');
  for (const piece of pieces) {
    if (isChunked) tls.write(`${piece.length.toString(16)}\r\n`);
    tls.write(piece);
    if (isChunked) tls.write('\r\n');
  }
  if (isChunked) tls.write('0\r\n\r\n');
  const request = await arrived;
  await readHead(tls);
  tls.read();
  return request;
}

function sendHttp2(session: http2.ClientHttp2Session, vector: SubstitutionVector, pieces: readonly Buffer[]) {
  const arrived = upstream.next();
  const fields: Record<string, string> = { ':method': 'POST', ':path': '/v', ':authority': vector.host };
  for (let index = 0; index < vector.headers.length; index += 2) {
    const name = (vector.headers[index] as string).toLowerCase();
    if (name !== 'host') fields[name] = vector.headers[index + 1] as string;
  }
  const stream = session.request(fields);
  for (const piece of pieces) stream.write(piece);
  stream.end();
  stream.resume();
  return arrived;
}

for (const vector of vectors) {
  test(vector.name, async (t) => {
    keyveil.setPolicy(sessionPolicy(vector.credentials));
    const tls = await keyveil.tunnel(`${vector.host}:443`);
    const check = (request: ReceivedRequest, label: string, isHttp2: boolean): void => {
      const expected = fieldsOf(vector.expectedHeaders);
      const names = isHttp2 ? expected.map((text, index) => (index % 2 === 0 ? text.toLowerCase() : text)) : expected;
      t.same(fieldsOf(request.rawHeaders), names, `${label}: fields`);
      t.ok(decode(request).equals(vector.expectedBody), `${label}: body`);
    };
    const cuts = cutsOf(vector);
    for (const [index, pieces] of cuts.entries()) {
      for (const isChunked of [false, true]) {
        const request = await sendHttp1(tls, { vector, pieces, isChunked });
        check(request, `HTTP/1.1 cut ${String(index)} ${isChunked ? 'chunked' : 'length'}`, false);
        if (!isChunked) t.equal(request.header('content-length'), String(request.body.length));
      }
    }
    tls.destroy();
    const socket = await keyveil.tunnel(`${vector.host}:443`, { ALPNProtocols: ['h2'] });
    const session = http2.connect(`https://${vector.host}`, { createConnection: () => socket });
    session.on('error', () => undefined);
    for (const [index, pieces] of cuts.entries()) {
      check(await sendHttp2(session, vector, pieces), `HTTP/2 cut ${String(index)}`, true);
    }
    session.destroy();
  });
}
