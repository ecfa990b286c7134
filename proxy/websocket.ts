// WebSocket upgrades (RFC 6455 section 4): the handshake takes the pipeline's way, then frames are relayed or rewritten.
import { createHash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import { headerValue, withoutHeaders, type RawHeaders, type ResponseHead } from './exchange.ts';

// RFC 6455 section 1.3.
const ACCEPT_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
// A handshake has no body, whatever it says of a length; left in, an upstream that declines would wait for one.
const NOT_PASSED_ON = new Set(['content-length']);
const NOT_PASSED_ON_REWRITTEN = new Set(['content-length', 'sec-websocket-extensions']);

/** The client's side of an upgrade, whatever the HTTP version it was asked by. */
export interface UpgradeClient {
  /** The key that the upstream must answer for. */
  readonly key: string;
  /** False when the client's version has no key of its own, so that it has to be added. */
  readonly sendsKey: boolean;
  /** Switches the protocol and hands over the connection. */
  accept(head: ResponseHead): Duplex;
  /** Bytes that the client sent before the switch was answered. */
  readonly firstBytes: Buffer;
}

/** The value that proves that a server understood the key (RFC 6455 section 4.2.2). */
export function acceptOf(key: string): string {
  return createHash('sha1')
    .update(key + ACCEPT_GUID, 'latin1')
    .digest('base64');
}

/**
 * A handshake's fields as they go upstream. Extensions are not offered where frames are to be rewritten: compressed
 * frames would hide what has to be found.
 */
export function upgradeRequestHeaders(headers: RawHeaders, client: UpgradeClient, isRewritten: boolean): RawHeaders {
  const kept = withoutHeaders(headers, isRewritten ? NOT_PASSED_ON_REWRITTEN : NOT_PASSED_ON);
  const key = client.sendsKey ? [] : ['Sec-WebSocket-Key', client.key];
  return [...kept, ...key, 'Connection', 'Upgrade', 'Upgrade', 'websocket'];
}

/** Throws `upstream_protocol_error` unless the 101 is valid for what was asked (RFC 6455 section 4.1). */
export function requireValidSwitch(head: ResponseHead, key: string, isRewritten: boolean): void {
  const isAccepted = headerValue(head.headers, 'sec-websocket-accept')?.trim() === acceptOf(key);
  const hasForeignExtension = isRewritten && headerValue(head.headers, 'sec-websocket-extensions') !== undefined;
  if (isAccepted && !hasForeignExtension) return;
  throw new KeyveilError(
    'upstream_protocol_error',
    'The upstream switched to WebSocket with an answer that does not fit the request, so the switch was refused.',
  );
}
