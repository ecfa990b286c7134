// Random bodies and the answer that a search of the whole body gives: for the fuzzer and the tests of the swap.
import { strictEqual } from 'node:assert';
import { randomFillSync } from 'node:crypto';
import zlib from 'node:zlib';
import type { BodyResources } from '../../proxy/swap/body-resources.ts';
import { headerValue } from '../../proxy/exchange.ts';
import { compileSwapPlan, type SwapPlan } from '../../proxy/swap/plan.ts';
import { cut, decodeBody, send, type Mode } from '../proxy/swap/body-support.ts';
import { placeholderOf, sessionPolicy } from '../support/policies.ts';

export type Coding = 'identity' | 'gzip' | 'x-gzip' | 'deflate' | 'deflate-raw' | 'br';

export const CODINGS: readonly Coding[] = ['identity', 'gzip', 'x-gzip', 'deflate', 'deflate-raw', 'br'];

export const CONTENT_TYPES: readonly string[] = [
  'application/json',
  'application/x-www-form-urlencoded',
  'text/plain',
  'multipart/form-data; boundary=x',
  'application/octet-stream',
];

/** Two that overlap in text, one with a prefix, one that is not for this host. */
export const PLACEHOLDERS: readonly string[] = [
  placeholderOf('One'),
  placeholderOf('Two'),
  placeholderOf('Two', 'sk-'),
  placeholderOf('Far'),
];
const UNCOVERED = 3;

export interface SwapCase {
  /** Values of the first three placeholders. */
  readonly values: readonly string[];
  readonly body: Buffer;
  readonly contentType: string;
  readonly coding: Coding;
  readonly mode: Mode;
  /** Length of the chunks in which the encoded body comes. */
  readonly chunkBytes: number;
}

export function encodeBody(coding: Coding, body: Buffer): Buffer {
  switch (coding) {
    case 'identity':
      return body;
    case 'gzip':
    case 'x-gzip':
      return zlib.gzipSync(body);
    case 'deflate':
      return zlib.deflateSync(body);
    case 'deflate-raw':
      return zlib.deflateRawSync(body);
    case 'br':
      return zlib.brotliCompressSync(body, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 3 } });
  }
}

function planOfCase(values: readonly string[]): SwapPlan {
  const credentials = PLACEHOLDERS.map((placeholder, index) => ({
    placeholder,
    value: values[index] ?? 'never',
    hosts: index === UNCOVERED ? ['other.test'] : null,
  }));
  return compileSwapPlan(sessionPolicy(credentials), { host: 'api.test', scheme: 'https' }) as SwapPlan;
}

/** Written from the rules, not from the code under test: one regular expression over the whole body. */
function expectedBody({ values, body, contentType }: SwapCase): Buffer {
  const text = body.toString('latin1');
  const start = /[^ \t\r\n]/.exec(text)?.[0] ?? '';
  const isForm = contentType.startsWith('application/x-www-form');
  const isJson = contentType === 'application/json' || (isForm && (start === '{' || start === '['));
  const write = (value: string): string => {
    if (isJson) return JSON.stringify(value).slice(1, -1);
    return isForm ? new URLSearchParams([['', value]]).toString().slice(1) : value;
  };
  const pattern = new RegExp([...PLACEHOLDERS].sort((a, b) => b.length - a.length).join('|'), 'g');
  const replaced = text.replaceAll(pattern, (found) => {
    const index = PLACEHOLDERS.indexOf(found);
    return index === UNCOVERED ? found : Buffer.from(write(values[index] as string)).toString('latin1');
  });
  return Buffer.from(replaced, 'latin1');
}

/** Sends a case through the swap and compares with the answer; throws where they differ. */
export async function checkCase(each: SwapCase, resources: BodyResources): Promise<void> {
  const encoded = encodeBody(each.coding, each.body);
  const name = each.coding === 'deflate-raw' ? 'deflate' : each.coding;
  const headers = ['Content-Type', each.contentType, ...(name === 'identity' ? [] : ['Content-Encoding', name])];
  const chunks = cut(encoded, each.chunkBytes);
  const sent = await send({ plan: planOfCase(each.values), headers, chunks, mode: each.mode, resources });
  const { framing } = sent.prepared;
  if (framing.kind === 'length') {
    strictEqual(framing.bytes, sent.body.length, 'framing');
    strictEqual(headerValue(sent.headers, 'content-length'), String(sent.body.length), 'Content-Length');
  }
  const expected = expectedBody(each);
  if (expected.equals(each.body) && (each.mode === 'buffered' || each.mode === 'spooled')) {
    strictEqual(sent.body.toString('hex'), encoded.toString('hex'), 'an unchanged body is the original');
    return;
  }
  const isStill = headerValue(sent.headers, 'content-encoding') !== undefined;
  const decoded = decodeBody(isStill ? each.coding : 'identity', sent.body);
  strictEqual(decoded.toString('latin1'), expected.toString('latin1'), 'the body');
}

/** Bytes of files as people upload them: none holds a placeholder. */
export function binaryBody(random: () => number): { readonly body: Buffer; readonly contentType: string } {
  const noise = randomFillSync(Buffer.alloc(Math.floor(random() * 5000)));
  const text = `kvph_ kvph_${'One'.repeat(9)} é☃\u{1f600} `.repeat(1 + Math.floor(random() * 20));
  const kinds: readonly [string, () => Buffer][] = [
    ['image/png', () => Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), zlib.deflateSync(noise)])],
    ['application/zip', () => Buffer.concat([Buffer.from('PK\x03\x04'), zlib.deflateRawSync(text), noise])],
    ['application/x-tar', () => Buffer.concat([Buffer.alloc(512), Buffer.from(text), Buffer.alloc(1024)])],
    [
      'application/x-protobuf',
      () => Buffer.concat([Buffer.from([0x0a, text.length & 0x7f]), Buffer.from(text), noise]),
    ],
    ['text/plain; charset=utf-16', () => Buffer.from(`\ufeff${text}`, 'utf16le')],
    ['application/octet-stream', () => noise],
  ];
  const [contentType, make] = kinds[Math.floor(random() * kinds.length)] as (typeof kinds)[number];
  return { contentType, body: make() };
}
