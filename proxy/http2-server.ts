// HTTP/2 connections inside tunnels: each stream is one request of the pipeline.
import {
  createServer,
  type Http2Server as NodeHttp2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import { HEADER_BLOCK_BYTES_MAX, HTTP2_STREAMS_PER_CONNECTION_MAX } from '../model/limits.ts';
import { Http2Reply, readHttp2Request } from './http2-exchange.ts';
import { createExtendedConnect } from './http2-upgrade.ts';
import type { Pipeline } from './pipeline.ts';
import { answerError, toKeyveilError } from './responses.ts';
import type { ProxyPorts } from './settings.ts';
import type { Tunnel } from './tunnels.ts';

const END_STREAM = 0x1;

/** The server that every HTTP/2 connection inside a tunnel is handed to; it never listens. */
export interface Http2Server {
  serve(socket: Duplex, tunnel: Tunnel): void;
}

function answer(stream: ServerHttp2Stream, error: KeyveilError, host: string): void {
  const { status, headers, reason, body } = answerError(error, host);
  const reply = new Http2Reply(stream);
  reply.head({ status, reason, headers, httpVersion: '2', body: { kind: 'length', bytes: body.length } });
  reply.data(body);
  reply.end([]);
}

/** Creates the server. */
export function createHttp2Server(pipeline: Pipeline, ports: ProxyPorts): Http2Server {
  const tunnels = new WeakMap<object, Tunnel>();
  const server: NodeHttp2Server = createServer({
    settings: {
      enableConnectProtocol: true,
      enablePush: false,
      maxConcurrentStreams: HTTP2_STREAMS_PER_CONNECTION_MAX,
      maxHeaderListSize: HEADER_BLOCK_BYTES_MAX,
      // The connection's own window follows in `session`; a stream's is large enough for one round trip on a fast link.
      initialWindowSize: 1024 * 1024,
    },
    maxHeaderListPairs: 2048,
    maxSessionMemory: 64,
    // Frames that break the protocol, and streams beyond the limit, are a sign of a flood long before Node's default.
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
  });
  server.on('session', (session: ServerHttp2Session) => {
    session.on('error', () => undefined);
    session.setLocalWindowSize(4 * 1024 * 1024);
  });
  server.on('sessionError', () => undefined);
  const onStream = (stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, raw: string[]): void => {
    const tunnel = stream.session === undefined ? undefined : tunnels.get(stream.session);
    stream.on('error', () => undefined);
    if (tunnel === undefined) return void stream.destroy();
    try {
      const { request, protocol } = readHttp2Request(stream, raw, (flags & END_STREAM) !== 0);
      if (protocol !== null && protocol !== 'websocket') {
        throw new KeyveilError(
          'connect_not_allowed',
          'The only protocol of an extended CONNECT that is served is websocket.',
        );
      }
      const reply = new Http2Reply(stream);
      const upgrade = protocol === null ? undefined : createExtendedConnect(stream, reply);
      void pipeline.run(tunnel, { request, reply }, upgrade);
    } catch (error) {
      const known = toKeyveilError(error);
      ports.metrics.request('refused', known.code);
      answer(stream, known, tunnel.authority.host);
    }
  };
  server.on('stream', onStream as (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number) => void);
  return {
    serve(socket, tunnel) {
      // Node announces the session before `emit` returns, so the next one announced is this connection's.
      server.once('session', (session: ServerHttp2Session) => tunnels.set(session, tunnel));
      server.emit('connection', socket);
    },
  };
}
