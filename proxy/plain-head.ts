// The head of a request as almost every client sends it, read in one go; any other is left to Node's parser.
import type { RawHeaders } from './exchange.ts';

/** A head of HTTP/1.1 with nothing behind it. */
export interface PlainHead {
  readonly method: string;
  /** As it stands in the request line (RFC 9112 section 3.2). */
  readonly target: string;
  readonly rawHeaders: RawHeaders;
  /** How many `Host` fields it has. */
  readonly hostCount: number;
}

const HEAD_BYTES_MAX = 8192;
const FIELDS_MAX = 100;
// Lines of printable ASCII, none of them empty but the last.
const LINES = /^(?:[\u0020-\u007e]+\r\n)+\r\n$/;
const REQUEST_LINE = /^([A-Z]+) ([!-~]+) HTTP\/1\.1\r\n/;
const FIELD = /([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)\r\n/y;

/** Fields that say how the message ends or what follows it; `Connection` may only say what is so anyway. */
function changesFraming(lowerName: string, value: string): boolean {
  switch (lowerName) {
    case 'expect':
    case 'upgrade':
    case 'trailer':
    case 'content-length':
    case 'transfer-encoding':
      return true;
    case 'connection':
    case 'proxy-connection': // Node's parser takes it for the same
      return value.toLowerCase() !== 'keep-alive';
    default:
      return false;
  }
}

/**
 * Reads what has come at once on a connection. Null unless it is one whole head without a body, in which nothing could be
 * read in two ways: no optional white space but one blank before a value, no empty value, no character outside of ASCII.
 * What is taken here is a part of what Node's strict parser takes, with the same outcome (RFC 9112 sections 2.2, 3 and 5).
 */
export function readPlainHead(chunk: Buffer): PlainHead | null {
  if (chunk.length > HEAD_BYTES_MAX) return null;
  const text = chunk.toString('latin1');
  const line = LINES.test(text) ? REQUEST_LINE.exec(text) : null;
  if (line === null) return null;
  const rawHeaders: string[] = [];
  let hostCount = 0;
  let position = line[0].length;
  while (position < text.length - 2) {
    FIELD.lastIndex = position;
    const field = FIELD.exec(text);
    if (field === null || rawHeaders.length === 2 * FIELDS_MAX) return null;
    const [whole, name, value] = field as unknown as [string, string, string];
    if (name.length === 4) hostCount += Number(name.toLowerCase() === 'host');
    else if (name.length < 18 && changesFraming(name.toLowerCase(), value)) return null;
    rawHeaders.push(name, value);
    position += whole.length;
  }
  return { method: line[1] as string, target: line[2] as string, rawHeaders, hostCount };
}
