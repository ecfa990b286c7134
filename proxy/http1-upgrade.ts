// HTTP/1.1 upgrade requests to WebSocket: the client's side of the switch.
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import { recordMalformed } from './audit-trail.ts';
import type { ClientExchange } from './client-exchange.ts';
import { headerValue } from './exchange.ts';
import { readHttp1Request } from './http1-exchange.ts';
import type { Pipeline } from './pipeline.ts';
import { answerAndClose, formatHead, RawReply } from './raw-reply.ts';
import { toKeyveilError } from './responses.ts';
import type { ProxyPorts } from './settings.ts';
import type { Tunnel } from './tunnels.ts';
import type { UpgradeClient } from './websocket.ts';

function createUpgradeClient(upgrade: Http1Upgrade, reply: RawReply): UpgradeClient {
  const { request, socket, rest } = upgrade;
  return {
    key: (headerValue(request.rawHeaders, 'sec-websocket-key') ?? '').trim(),
    sendsKey: true,
    firstBytes: rest,
    accept(head) {
      reply.detach();
      const headers = [...head.headers, 'Connection', 'Upgrade', 'Upgrade', 'websocket'];
      socket.write(formatHead(head.status, head.reason, headers));
      return socket;
    },
  };
}

export interface Http1Upgrade {
  readonly pipeline: Pipeline;
  readonly ports: ProxyPorts;
  readonly tunnel: Tunnel;
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that came with the request. */
  readonly rest: Buffer;
}

/** Handles an upgrade request to `websocket`; the connection is not an HTTP server's any more. */
export function upgradeToWebSocket(upgrade: Http1Upgrade): void {
  const { pipeline, ports, tunnel, request, socket } = upgrade;
  const reply = new RawReply(socket);
  let exchange: ClientExchange;
  try {
    exchange = { request: readHttp1Request(request), reply };
    const { httpVersion, body } = exchange.request;
    // Bytes after the head are the new protocol's: they can't be a body too (RFC 6455 section 4.1).
    if (httpVersion !== '1.1' || body.kind === 'stream' || (body.kind === 'length' && body.bytes > 0)) {
      throw new KeyveilError('bad_request', 'A WebSocket handshake is an HTTP/1.1 GET without a body.');
    }
  } catch (error) {
    const known = toKeyveilError(error);
    recordMalformed(ports, tunnel, { error: known, httpVersion: request.httpVersion });
    answerAndClose(socket, known, tunnel.authority.host);
    return;
  }
  pipeline.run(tunnel, exchange, createUpgradeClient(upgrade, reply));
}
