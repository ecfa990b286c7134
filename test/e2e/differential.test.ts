// The same exchanges directly and through Keyveil: what either side receives differs in a closed list of fields only.
import { createHash } from 'node:crypto';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import * as zlib from 'node:zlib';
import t, { test, type Test } from 'tap';
import { headerValue, type RawHeaders } from '../../proxy/exchange.ts';
import {
  createHttp1Client,
  createHttp2Client,
  startHttp1PlanServer,
  startHttp2PlanServer,
  type Client,
  type Content,
  type Framing,
  type Interim,
  type PlannedRequest,
  type PlannedResponse,
  type PlanServer,
  type Plans,
  type SeenRequest,
  type SeenResponse,
} from '../support/exchange-peers.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';
import { startTestProxy, type TestProxy } from '../support/proxy.ts';
import { createTestAuthority } from '../support/test-authority.ts';

const PAIRS = 300;
/** Milliseconds in all; it takes a tenth of that on a machine that does nothing else. */
const TIMEOUT_MS = 240_000;
const SEED = 20_260_730;
type Version = '1.1' | '2';

// ---- the generator

/** mulberry32: small, seeded, good enough to choose test cases. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const METHODS = ['GET', 'GET', 'HEAD', 'POST', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'REPORT'];
const STATUSES = [
  200, 200, 200, 201, 202, 203, 204, 205, 206, 207, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404,
  405, 406, 409, 410, 411, 412, 413, 415, 416, 418, 421, 422, 425, 429, 451, 500, 501, 502, 503, 504, 507, 511, 599,
];
const NO_CONTENT = new Set([204, 205, 304]);
const REQUEST_FIELDS: RawHeaders[] = [
  ['Accept', '*/*'],
  ['ACCEPT', 'text/html', 'Accept', 'application/json;q=0.9'],
  ['X-Empty', ''],
  ['x-Mixed-Case', 'Value With  Two Spaces'],
  ['X-Latin', '\u00fcber \u00a7 \u00ff'],
  ['X-Tab', 'a\tb'],
  ["x!#$%&'*+.^_`|~9", 'an odd name'],
  ['constructor', 'no prototype'],
  ['X-Dup', '1', 'x-other', 'between', 'X-Dup', '2', 'X-Dup', ''],
  ['Authorization', 'Bearer abc.def-ghi'],
  ['Cookie', 'a=1', 'Cookie', 'b=2; c="3"', 'Cookie', 'd='],
  ['X-Long', 'v'.repeat(5000)],
  ['If-None-Match', '"a", W/"b"'],
  ['Forwarded', 'for=192.0.2.60;proto=http'],
  ['Via', '1.1 other'],
  ['X-Forwarded-For', '192.0.2.1'],
  ['Cache-Control', 'no-cache', 'Cache-Control', 'no-store'],
  ['Accept-Encoding', 'gzip, br'],
];
const HOP_FIELDS: RawHeaders[] = [
  ['Connection', 'X-Hop, keep-alive', 'X-Hop', 'gone', 'Keep-Alive', 'timeout=5'],
  ['Proxy-Connection', 'keep-alive', 'Proxy-Authorization', 'Basic eDp5'],
  ['TE', 'trailers, deflate;q=0.5', 'Connection', 'TE'],
];
const RESPONSE_FIELDS: RawHeaders[] = [
  ['Content-Type', 'text/plain; charset=utf-8'],
  ['Set-Cookie', 'a=1; Path=/', 'X-Between', '', 'Set-Cookie', 'b=2; HttpOnly', 'set-cookie', 'c=3'],
  ['Vary', 'Accept', 'Vary', 'Origin'],
  ['X-Empty', '', 'x-Mixed', 'Value'],
  ['X-Latin', 'gr\u00fc\u00df Gott'],
  ['Link', '</a>; rel=next', 'Link', '</b>; rel=prev'],
  ['ETag', 'W/"x"', 'Last-Modified', 'Mon, 01 Jan 2024 00:00:00 GMT', 'Date', 'Tue, 02 Jan 2024 00:00:00 GMT'],
  ['Proxy-Status', 'inner; details="cached"'],
  ['Via', '1.1 cdn', 'Server', 'odd/1.0', 'X-Powered-By', 'tests'],
  ['Www-Authenticate', 'Basic realm="x"', 'WWW-Authenticate', 'Bearer'],
  ['constructor', 'no prototype', '__proto__', 'neither'],
  ['Location', 'https://elsewhere.test/a%20b?c=d#e'],
  ['X-Long', 'w'.repeat(9000)],
  ['Alt-Svc', 'h3=":443"', 'Strict-Transport-Security', 'max-age=1'],
];
const RESPONSE_HOP_FIELDS: RawHeaders[] = [
  ['Connection', 'close'],
  ['Connection', 'X-Hop', 'X-Hop', 'gone'],
];
const TARGETS = [
  '/',
  '/a/b?c=d&e=%20',
  "/%7Efoo/..%2f/./x;y=(1)'!*",
  '/?',
  '//double//slash',
  '/q?u=https://x.test/%00',
];

class Generator {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = createRandom(seed);
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.below(values.length)] as Value;
  }

  /** Some of the groups, each name at most once. */
  fields(groups: readonly RawHeaders[], most: number): string[] {
    const chosen = new Set<RawHeaders>();
    for (let count = this.below(most + 1); count > 0; count -= 1) chosen.add(this.pick(groups));
    return [...chosen].flat();
  }

  bytes(): Buffer {
    const size = this.pick([0, 1, 3, 100, 4000, 16_384, 70_000]);
    const bytes = Buffer.alloc(size);
    const isText = this.below(2) === 0;
    for (let index = 0; index < size; index += 1) bytes[index] = isText ? 97 + ((index * 7) % 26) : this.below(256);
    return bytes;
  }

  /** The bytes in a coding, and its field. */
  coded(bytes: Buffer): { bytes: Buffer; fields: string[] } {
    switch (this.below(6)) {
      case 0:
        return { bytes: zlib.gzipSync(bytes), fields: ['Content-Encoding', 'gzip'] };
      case 1:
        return { bytes: zlib.deflateSync(bytes), fields: ['Content-Encoding', 'deflate'] };
      case 2:
        return { bytes: zlib.brotliCompressSync(bytes, FAST_BROTLI), fields: ['Content-Encoding', 'br'] };
      default:
        return { bytes, fields: [] };
    }
  }

  cut(bytes: Buffer): Buffer[] {
    const pieces: Buffer[] = [];
    const count = 1 + this.below(4);
    let from = 0;
    for (let piece = 1; piece <= count && from < bytes.length; piece += 1) {
      const to = piece === count ? bytes.length : from + 1 + this.below(bytes.length - from);
      pieces.push(bytes.subarray(from, to));
      from = to;
    }
    return pieces;
  }

  content(bytes: Buffer): Content {
    const framing: Framing = this.below(2) === 0 ? 'length' : 'stream';
    const hasTrailers = framing === 'stream' && this.below(2) === 0;
    return {
      framing,
      pieces: this.cut(bytes),
      trailers: hasTrailers ? ['X-Sum', 'abc', 'X-Sum', '', 'X-End', '1'] : [],
    };
  }
}

const FAST_BROTLI = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } };
const NOTHING: Content = { framing: 'none', pieces: [], trailers: [] };

interface Pair {
  readonly id: string;
  readonly request: Omit<PlannedRequest, 'host'>;
  readonly hopFields: RawHeaders;
  readonly response: PlannedResponse;
  readonly responseHopFields: RawHeaders;
}

function generateInterim(random: Generator, expects: boolean): Interim[] {
  const interim: Interim[] = expects ? [{ status: 100, fields: [] }] : [];
  if (random.below(4) === 0) {
    interim.push({
      status: 103,
      fields: ['Link', '</s.css>; rel=preload', 'Link', '</t.js>; rel=preload', 'X-Early', ''],
    });
  }
  if (random.below(8) === 0) interim.push({ status: 102, fields: [] });
  return interim;
}

function generateRequest(random: Generator, id: string): Pair['request'] {
  const method = random.pick(METHODS);
  const hasContent = /^P|^REPORT|^DELETE/.test(method) && random.below(6) > 0;
  const isRange = method === 'GET' && random.below(4) === 0;
  const target = method === 'OPTIONS' && random.below(2) === 0 ? '*' : random.pick(TARGETS);
  const fields = ['X-Case', id, ...random.fields(REQUEST_FIELDS, 6)];
  if (isRange) fields.push('Range', 'bytes=0-99');
  if (!hasContent) return { method, target, fields, content: NOTHING };
  const coded = random.coded(random.bytes());
  fields.push(...coded.fields);
  if (random.below(5) === 0) fields.push('Expect', '100-continue');
  return { method, target, fields, content: random.content(coded.bytes) };
}

function generateResponse(random: Generator, { method, fields }: Pair['request']): PlannedResponse {
  const status = fields.includes('Range') ? 206 : random.pick(STATUSES);
  const coded = random.coded(random.bytes());
  const isEmpty = method === 'HEAD' || NO_CONTENT.has(status);
  const isStated = (method === 'HEAD' || status === 304) && status !== 204 && status !== 205;
  const range = status === 206 ? ['Content-Range', `bytes 0-${Math.max(0, coded.bytes.length - 1)}/999999`] : [];
  return {
    interim: generateInterim(random, fields.includes('Expect')),
    status,
    reason: random.pick(['OK', 'Very Odd', '']),
    fields: [...random.fields(RESPONSE_FIELDS, 6), ...coded.fields, ...range],
    content: isEmpty ? NOTHING : random.content(coded.bytes),
    statedLength: isStated && random.below(2) === 0 ? random.below(100_000) : null,
  };
}

function generatePair(random: Generator, id: string): Pair {
  const request = generateRequest(random, id);
  return {
    id,
    request,
    hopFields: random.below(3) === 0 ? random.fields(HOP_FIELDS, 2) : [],
    response: generateResponse(random, request),
    responseHopFields: random.below(4) === 0 ? random.pick(RESPONSE_HOP_FIELDS) : [],
  };
}

// ---- what may differ, in full

/** Hop-by-hop fields (RFC 9110 section 7.6.1), and what frames a message in one version and not in the other. */
const NEVER_COMPARED = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'te',
  'transfer-encoding',
  'x-hop',
]);

interface Crossing {
  readonly client: Version;
  readonly upstream: Version;
}

/** Fields in the form in which both versions can have them. */
function comparable(fields: RawHeaders, { client, upstream }: Crossing): [string, string][] {
  const list: [string, string][] = [];
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] as string;
    if (!NEVER_COMPARED.has(name.toLowerCase())) list.push([name, fields[index + 1] as string]);
  }
  if (client === '1.1' && upstream === '1.1') return list;
  // HTTP/2 has lower-case names, and duplicates of a name stand together.
  const groups = new Map<string, string[]>();
  for (const [name, value] of list) {
    const lower = name.toLowerCase();
    const group = groups.get(lower);
    if (group === undefined) groups.set(lower, [value]);
    else group.push(value);
  }
  const cookies = groups.get('cookie');
  if (cookies !== undefined && client !== upstream) groups.set('cookie', [cookies.join('; ')]);
  return [...groups].flatMap(([name, values]) => values.map((value): [string, string] => [name, value]));
}

function withoutFields(list: [string, string][], lowerNames: readonly string[]): [string, string][] {
  return list.filter(([name]) => !lowerNames.includes(name.toLowerCase()));
}

function decoded(body: Buffer, fields: RawHeaders): Buffer {
  switch (body.length === 0 ? undefined : headerValue(fields, 'content-encoding')) {
    case 'gzip':
      return zlib.gunzipSync(body);
    case 'deflate':
      return zlib.inflateSync(body);
    case 'br':
      return zlib.brotliDecompressSync(body);
    default:
      return body;
  }
}

interface Rules extends Crossing {
  /** A credential covers the host: bodies are read in both directions, and none of them holds anything. */
  readonly isSearched: boolean;
}

// What a search leaves of a coded body is the same content, with less coding or none.
const CODING_FIELDS = ['content-encoding', 'content-length'];
// Asked for are only codings that can be looked into, and 100 is said before the upstream sees anything of the request.
const SEARCHED_REQUEST_FIELDS = [...CODING_FIELDS, 'accept-encoding', 'expect'];

function digest(body: Buffer): string {
  return `${body.length} ${createHash('sha256').update(body).digest('hex')}`;
}

function comparableRequest(seen: SeenRequest, rules: Rules): unknown {
  const all = comparable(seen.fields, rules);
  let fields = rules.isSearched ? withoutFields(all, SEARCHED_REQUEST_FIELDS) : all;
  // HTTP/1.1 says of an empty POST that it is empty; in HTTP/2 the end of the stream does.
  if (rules.client !== rules.upstream && seen.body.length === 0) fields = withoutFields(fields, ['content-length']);
  const { method, target } = seen;
  const body = digest(rules.isSearched ? decoded(seen.body, seen.fields) : seen.body);
  return { method, target, fields, body, trailers: comparable(seen.trailers, rules) };
}

function comparableResponse(seen: SeenResponse, rules: Rules): unknown {
  let fields = comparable(seen.fields, rules);
  if (rules.isSearched) {
    fields = withoutFields(fields, CODING_FIELDS).map(([name, value]) => [
      name,
      name.toLowerCase() === 'etag' ? value.replace(/^W\//, '') : value,
    ]);
  }
  if (rules.client !== rules.upstream && seen.body.length === 0) fields = withoutFields(fields, ['content-length']);
  return {
    status: seen.status,
    // HTTP/2 has none.
    reason: rules.client === '1.1' && rules.upstream === '1.1' ? seen.reason : '',
    fields,
    body: digest(rules.isSearched ? decoded(seen.body, seen.fields) : seen.body),
    trailers: comparable(seen.trailers, rules),
    interim: seen.interim.map((one) => ({ status: one.status, fields: comparable(one.fields, rules) })),
  };
}

// ---- the runs

const authority = createTestAuthority();
const HOSTS: Record<Version, string> = { '1.1': 'one.test', '2': 'two.test' };
const leaf = authority.leafFor(Object.values(HOSTS));
const pairs = new Map<string, Pair>();
const generator = new Generator(SEED);
for (let index = 0; index < PAIRS; index += 1) pairs.set(String(index), generatePair(generator, String(index)));
const lastSeen = new Map<string, SeenRequest>();
let servers: Record<Version, PlanServer>;
let keyveil: TestProxy;

function plansFor(version: Version): Plans {
  const caseOf = (fields: RawHeaders): string => {
    const index = fields.findIndex((field, at) => at % 2 === 0 && field.toLowerCase() === 'x-case');
    return fields[index + 1] as string;
  };
  return {
    responseFor(fields) {
      const { response, responseHopFields } = pairs.get(caseOf(fields)) as Pair;
      return version === '2' ? response : { ...response, fields: [...response.fields, ...responseHopFields] };
    },
    seen: (request) => lastSeen.set(`${version} ${caseOf(request.fields)}`, request),
  };
}

t.setTimeout(TIMEOUT_MS);

t.before(async () => {
  servers = {
    '1.1': await startHttp1PlanServer(leaf, plansFor('1.1')),
    '2': await startHttp2PlanServer(leaf, plansFor('2')),
  };
  keyveil = await startTestProxy({
    authority,
    overrides: { 'one.test:443': servers['1.1'].port, 'two.test:443': servers['2'].port },
    policy: sessionPolicy([]),
  });
});

t.teardown(async () => {
  await keyveil.close();
  await servers['1.1'].close();
  await servers['2'].close();
});

function createClient(version: Version, open: (alpn: string) => Promise<TLSSocket>): Promise<Client> {
  return version === '2'
    ? createHttp2Client(() => open('h2'))
    : Promise.resolve(createHttp1Client(() => open('http/1.1')));
}

function openDirectly(version: Version, alpn: string): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const { port } = servers[version];
    const socket = connectTls({
      port,
      host: '127.0.0.1',
      servername: HOSTS[version],
      ca: authority.caPem,
      ALPNProtocols: [alpn],
    });
    socket.setNoDelay(true);
    socket.once('secureConnect', () => resolve(socket));
    socket.on('error', reject);
  });
}

/** Where two texts part, with what stands around it in both. */
function firstDifference(have: string, want: string): string | null {
  if (have === want) return null;
  let at = 0;
  while (have[at] === want[at]) at += 1;
  return `${have.slice(Math.max(0, at - 80), at + 120)} INSTEAD OF ${want.slice(at, at + 120)}`;
}

async function compareAll(t: Test, chosen: readonly Pair[], rules: Rules): Promise<void> {
  const { client, upstream } = rules;
  const host = HOSTS[upstream];
  const direct = await createClient(client, (alpn) => openDirectly(client, alpn));
  const through = await createClient(client, (alpn) => keyveil.tunnel(`${host}:443`, { ALPNProtocols: [alpn] }));
  const differing: string[] = [];
  for (const pair of chosen) {
    const hopFields = client === '1.1' ? pair.hopFields : [];
    const request = { ...pair.request, host, fields: [...pair.request.fields, ...hopFields] };
    const label = `${pair.id} ${request.method} ${pair.response.status}`;
    const expected = await direct.exchange(request).catch((error: unknown) => {
      throw new Error(`${label} directly`, { cause: error });
    });
    const expectedSeen = lastSeen.get(`${client} ${pair.id}`) as SeenRequest;
    lastSeen.clear();
    const actual = await through.exchange(request).catch((error: unknown) => String(error));
    const actualSeen = lastSeen.get(`${upstream} ${pair.id}`);
    lastSeen.clear();
    if (typeof actual === 'string' || actualSeen === undefined) {
      t.fail(
        `${label}: ${typeof actual === 'string' ? actual : JSON.stringify({ ...actual, body: actual.body.toString('latin1', 0, 500) })}`,
      );
      return;
    }
    const want = [comparableRequest(expectedSeen, rules), comparableResponse(expected, rules)];
    const have = [comparableRequest(actualSeen, rules), comparableResponse(actual, rules)];
    const difference = firstDifference(JSON.stringify(have), JSON.stringify(want));
    if (difference !== null) differing.push(`${label}: ${difference}`);
  }
  t.same(differing, [], `${chosen.length} exchanges by HTTP/${client} to HTTP/${upstream}`);
  direct.close();
  through.close();
}

const CROSSINGS: Crossing[] = [
  { client: '1.1', upstream: '1.1' },
  { client: '2', upstream: '2' },
  { client: '2', upstream: '1.1' },
  { client: '1.1', upstream: '2' },
];

/** Quarters of the pairs: each is sent by two of the crossings as it is, and by one more where bodies are searched. */
function quarters(...numbers: readonly number[]): Pair[] {
  return [...pairs.values()].filter(({ id }) => numbers.some((number) => Number(id) % 4 === number % 4));
}

for (const [number, crossing] of CROSSINGS.entries()) {
  const name = `HTTP/${crossing.client} to HTTP/${crossing.upstream}`;
  test(`${name}: nothing but hop-by-hop fields and framing differs from a direct exchange`, async (t) => {
    keyveil.setPolicy(sessionPolicy([]));
    await compareAll(t, quarters(number, number + 1), { ...crossing, isSearched: false });
  });
  test(`${name}: nor where a credential covers the host, so that bodies are searched both ways`, async (t) => {
    keyveil.setPolicy(sessionPolicy([{ placeholder: placeholderOf('D'), value: 'a-secret-that-is-nowhere-here' }]));
    await compareAll(t, quarters(number + 2), { ...crossing, isSearched: true });
  });
}
