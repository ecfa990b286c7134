// The strict HTTP/1.1 client codec's writing half: a request's head as text, byte for byte as it came.
import { KeyveilError } from '../../model/errors.ts';
import type { HttpVersion, RawHeaders, UpstreamRequest } from '../exchange.ts';
import { requireField, requireRequestLine } from './field-syntax.ts';

const EXPECTS_CONTENT = new Set(['POST', 'PUT', 'PATCH']);
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']); // RFC 9110 section 9.2.2

/** Whether a request can be sent a second time when nothing of a response to it has come. */
export function isReplayable(request: UpstreamRequest): boolean {
  return request.body.kind === 'none' && request.upgrade === undefined && IDEMPOTENT.has(request.method);
}

function fieldLines(headers: RawHeaders): string {
  let text = '';
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    const value = headers[index + 1] as string;
    requireField(name, value);
    text += `${name}: ${value}\r\n`;
  }
  return text;
}

/** What the fields say already of what HTTP/1.1 wants said. */
interface Present {
  framing: boolean;
  promisesBody: boolean;
  connection: boolean;
  upgrade: boolean;
  te: boolean;
}

/** Else the next request on this connection would be taken for the body (RFC 9112 section 6). */
function requireBody(request: UpstreamRequest, present: Present): void {
  if (!present.promisesBody || request.body.kind !== 'none') return;
  throw new KeyveilError('bad_request', 'The fields of the request announce a body, and it has none.');
}

function presentFields(headers: RawHeaders): Present {
  const present: Present = { framing: false, promisesBody: false, connection: false, upgrade: false, te: false };
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    switch (name.length) {
      case 2:
        present.te ||= name.toLowerCase() === 'te';
        break;
      case 7:
        present.upgrade ||= name.toLowerCase() === 'upgrade';
        break;
      case 10:
        present.connection ||= name.toLowerCase() === 'connection';
        break;
      case 14:
        if (name.toLowerCase() === 'content-length') {
          present.framing = true;
          present.promisesBody ||= headers[index + 1] !== '0';
        }
        break;
      case 17:
        if (name.toLowerCase() === 'transfer-encoding') present.framing = present.promisesBody = true;
        break;
      default:
    }
  }
  return present;
}

/** Fields that belong to this connection, and those that frame the body when the client's version did it otherwise. */
function addedLines(request: UpstreamRequest, clientVersion: HttpVersion): string {
  const present = presentFields(request.headers);
  requireBody(request, present);
  let text = '';
  if (!present.framing && request.body.kind === 'length') text += `Content-Length: ${request.body.bytes}\r\n`;
  if (!present.framing && request.body.kind === 'stream') text += 'Transfer-Encoding: chunked\r\n';
  // The end of its stream said that there is none; HTTP/1.1 servers ask for a length (RFC 9110 section 8.6).
  const isSilent = clientVersion === '2' && request.body.kind === 'none' && EXPECTS_CONTENT.has(request.method);
  if (!present.framing && isSilent) text += 'Content-Length: 0\r\n';
  if (request.upgrade !== undefined) {
    if (!present.connection) text += 'Connection: Upgrade\r\n';
    if (!present.upgrade) text += `Upgrade: ${request.upgrade}\r\n`;
  } else if (present.te && !present.connection) text += 'Connection: TE\r\n'; // RFC 9110 section 10.1.4
  return text;
}

/** Joins cookie crumbs at the place of the first (RFC 9113 section 8.2.3). */
export function joinCookies(headers: RawHeaders): RawHeaders {
  let first = -1;
  let joined: string[] | null = null;
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    const isCookie = name.length === 6 && name.toLowerCase() === 'cookie';
    if (isCookie && first < 0) first = index;
    else if (isCookie) {
      joined ??= headers.slice(0, index);
      joined[first + 1] = `${joined[first + 1] as string}; ${headers[index + 1] as string}`;
    } else joined?.push(name, headers[index + 1] as string);
  }
  return joined ?? headers;
}

/**
 * The head in Latin-1, with its empty line. `Host` and everything else is as the request has it. Throws `bad_request`
 * for what would break out of its line.
 */
export function serialiseRequestHead(request: UpstreamRequest, clientVersion: HttpVersion): string {
  requireRequestLine(request);
  const headers = clientVersion === '2' ? joinCookies(request.headers) : request.headers;
  return `${request.method} ${request.target} HTTP/1.1\r\n${fieldLines(headers)}${addedLines(request, clientVersion)}\r\n`;
}

/** What ends a chunked body: the last chunk, and the trailers. Throws `bad_request` as the head does. */
export function serialiseLastChunk(trailers: RawHeaders): string {
  return `0\r\n${fieldLines(trailers)}\r\n`;
}
