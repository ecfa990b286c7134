// Parses the head of an HTTP/1.x response, or its trailers, strictly (RFC 9112 sections 4 to 6).
import { HEADER_FIELDS_MAX } from '../../model/limits.ts';

/** The upstream's bytes are no response; the message is a clause about the upstream and quotes none of them. */
export class ResponseSyntaxError extends Error {
  override readonly name = 'ResponseSyntaxError';
}

/** A parsed head and what it says about the framing and the connection. */
export interface Http1Head {
  status: number;
  reason: string;
  /** Minor version: 0 or 1. */
  minor: number;
  headers: string[];
  /** Stated length of the body in bytes, or -1. */
  contentLength: number;
  isChunked: boolean;
  /** Options of `Connection` fields in lower case, joined by commas; empty when there is none. */
  connection: string;
  /** Value of `Keep-Alive`; empty when there is none. */
  keepAlive: string;
  /** Value of `Upgrade`; empty when there is none. */
  upgrade: string;
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: |$)/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const DIGITS = /^[0-9]{1,15}$/;
// Control characters other than HTAB, DEL, and CR or LF that are not a pair (RFC 9110 section 5.5, RFC 9112 section 2.2).
const FORBIDDEN = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n/;
const SPACE = 32;
const TAB = 9;

/** Parses a complete head in Latin-1: the status line and the fields, each with its CRLF, without the empty line. */
export function parseResponseHead(text: string): Http1Head {
  if (FORBIDDEN.test(text)) throw forbiddenIn(text);
  const lineEnd = text.indexOf('\r\n');
  const line = text.slice(0, lineEnd);
  const match = STATUS_LINE.exec(line);
  if (match === null) throw new ResponseSyntaxError('it does not begin with an HTTP/1.x status line');
  const head: Http1Head = {
    status: Number(match[2]),
    reason: line.slice(13),
    minor: match[1] === '1' ? 1 : 0,
    headers: [],
    contentLength: -1,
    isChunked: false,
    connection: '',
    keepAlive: '',
    upgrade: '',
  };
  parseFields(text, lineEnd + 2, head);
  return head;
}

function forbiddenIn(text: string): ResponseSyntaxError {
  const isInStatusLine = FORBIDDEN.test(text.slice(0, text.indexOf('\r\n') + 2));
  const place = isInStatusLine ? 'its status line' : 'a field';
  return new ResponseSyntaxError(`${place} holds a control character, or a bare CR or LF`);
}

/** Parses a complete trailer section in Latin-1, each field with its CRLF, without the empty line. */
export function parseTrailers(text: string): string[] {
  if (FORBIDDEN.test(text)) throw new ResponseSyntaxError('its trailers hold a control character, or a bare CR or LF');
  const trailers: string[] = [];
  parseFields(text, 0, trailers);
  return trailers;
}

function parseFields(text: string, from: number, target: Http1Head | string[]): void {
  const isTrailers = Array.isArray(target);
  const headers = isTrailers ? target : target.headers;
  let start = from;
  while (start < text.length) {
    const end = text.indexOf('\r\n', start);
    const colon = text.indexOf(':', start);
    // A line that begins with white space (obs-fold) and one with white space before its colon have no token here.
    if (colon < 0 || colon > end) throw new ResponseSyntaxError('a field line has no colon');
    const name = text.slice(start, colon);
    if (!TOKEN.test(name))
      throw new ResponseSyntaxError('a field name is empty or holds a character that names cannot have');
    const value = trimmed(text, colon + 1, end);
    headers.push(name, value);
    // Some parsers don't take a trailing HTAB off, and see another coding or no number: such a framing means two things.
    if ((name.length === 17 || name.length === 14) && text.charCodeAt(end - 1) === TAB) refuseFraming(name);
    if (isTrailers) refuseFraming(name);
    else noteFraming(target, name, value);
    start = end + 2;
  }
  if (headers.length > 2 * HEADER_FIELDS_MAX)
    throw new ResponseSyntaxError(`it has more than ${HEADER_FIELDS_MAX} fields`);
}

function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

function noteFraming(head: Http1Head, name: string, value: string): void {
  switch (name.length) {
    case 7:
      if (name.toLowerCase() === 'upgrade') head.upgrade = value;
      return;
    case 10:
      noteConnection(head, name.toLowerCase(), value);
      return;
    case 14:
      if (name.toLowerCase() === 'content-length') noteContentLength(head, value);
      return;
    case 17:
      if (name.toLowerCase() === 'transfer-encoding') noteTransferEncoding(head, value);
      return;
    default:
  }
}

function noteConnection(head: Http1Head, lowerName: string, value: string): void {
  if (lowerName === 'connection')
    head.connection = head.connection === '' ? value.toLowerCase() : `${head.connection},${value.toLowerCase()}`;
  else if (lowerName === 'keep-alive') head.keepAlive = value;
}

function noteContentLength(head: Http1Head, value: string): void {
  // RFC 9110 section 8.6 lets a recipient refuse duplicates, equal ones too; passing them on would leave it to chance.
  if (head.contentLength >= 0) throw new ResponseSyntaxError('it has more than one Content-Length');
  if (!DIGITS.test(value)) throw new ResponseSyntaxError('its Content-Length is no number');
  if (head.isChunked) throw new ResponseSyntaxError('it has both Content-Length and Transfer-Encoding');
  head.contentLength = Number(value);
}

function noteTransferEncoding(head: Http1Head, value: string): void {
  if (head.isChunked) throw new ResponseSyntaxError('it has more than one Transfer-Encoding');
  if (head.contentLength >= 0) throw new ResponseSyntaxError('it has both Content-Length and Transfer-Encoding');
  if (value.toLowerCase() !== 'chunked') throw new ResponseSyntaxError('its Transfer-Encoding is another than chunked');
  // RFC 9112 section 6.1: HTTP/1.0 knows no transfer coding, so that the framing is faulty.
  if (head.minor === 0) throw new ResponseSyntaxError('it has a Transfer-Encoding in HTTP/1.0');
  head.isChunked = true;
}

/** RFC 9110 section 6.5.1: fields that frame a message can't come after it. */
function refuseFraming(name: string): void {
  const lowerName = name.toLowerCase();
  if (lowerName === 'content-length' || lowerName === 'transfer-encoding') {
    throw new ResponseSyntaxError('a field frames the message out of place or in an odd spelling');
  }
}

/** Whether a list of options in lower case, as `Http1Head.connection` has it, holds one. */
export function hasOption(list: string, option: string): boolean {
  if (list === option) return true;
  return list.includes(option) && list.split(',').some((item) => item.trim() === option);
}

/** Seconds of `Keep-Alive: timeout=N`; Infinity when it does not say. */
export function keepAliveSeconds(value: string): number {
  if (value === '') return Infinity;
  const match = /(?:^|[,\s])timeout\s*=\s*"?([0-9]{1,9})/i.exec(value);
  return match === null ? Infinity : Number(match[1]);
}
