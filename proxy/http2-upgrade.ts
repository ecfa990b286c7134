// WebSocket over HTTP/2 (RFC 8441): an extended CONNECT's side of the switch.
import { randomBytes } from 'node:crypto';
import type { ServerHttp2Stream } from 'node:http2';
import { withoutHeaders } from './exchange.ts';
import type { Http2Reply } from './http2-exchange.ts';
import type { UpgradeClient } from './websocket.ts';

// RFC 8441 section 5: these are replaced by the pseudo-header fields.
const HANDSHAKE_FIELDS = new Set(['sec-websocket-accept', 'sec-websocket-key', 'connection', 'upgrade']);

/** The upstream is asked by HTTP/1.1, with a key of ours, since the client sends none. */
export function createExtendedConnect(stream: ServerHttp2Stream, reply: Http2Reply): UpgradeClient {
  return {
    key: randomBytes(16).toString('base64'),
    sendsKey: false,
    firstBytes: Buffer.alloc(0),
    accept(head) {
      const headers = withoutHeaders(head.headers, HANDSHAKE_FIELDS);
      reply.head({ ...head, status: 200, headers, body: { kind: 'stream' } });
      reply.onAbort = null;
      reply.onFinish = null;
      return stream;
    },
  };
}
