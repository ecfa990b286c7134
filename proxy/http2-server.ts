// HTTP/2 connections inside tunnels: each stream is one request of the pipeline.
import {
  createServer,
  type Http2Server as NodeHttp2Server,
  type Http2Session,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../model/errors.ts';
import {
  HEADER_BLOCK_BYTES_MAX,
  HTTP2_CLIENT_CONNECTION_WINDOW_BYTES,
  HTTP2_CLIENT_STREAM_WINDOW_BYTES,
  HTTP2_INVALID_FRAMES_MAX,
  HTTP2_STREAMS_PER_CONNECTION_MAX,
} from '../model/limits.ts';
import { Attachment } from './attachment.ts';
import { DeadSessionWatch } from './http2-dead-session.ts';
import { Http2Reply, readHttp2Request } from './http2-exchange.ts';
import { Http2Guard } from './http2-guard.ts';
import { createExtendedConnect } from './http2-upgrade.ts';
import type { Pipeline } from './pipeline.ts';
import { openTunnelTrail, recordMalformed } from './audit-trail.ts';
import { answerError, toKeyveilError } from './responses.ts';
import type { ProxyPorts } from './settings.ts';
import type { Tunnel } from './tunnels.ts';

const END_STREAM = 0x1;

/** One client connection. */
interface Connection {
  readonly tunnel: Tunnel;
  readonly guard: Http2Guard;
}

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

function serveStream(
  stream: ServerHttp2Stream,
  head: { raw: readonly string[]; endsStream: boolean },
  context: { pipeline: Pipeline; ports: ProxyPorts; tunnel: Tunnel },
): void {
  const { pipeline, ports, tunnel } = context;
  try {
    const { request, protocol } = readHttp2Request(stream, head.raw, head.endsStream);
    if (protocol !== null && protocol !== 'websocket') {
      throw new KeyveilError(
        'connect_not_allowed',
        'The only protocol of an extended CONNECT that is served is websocket.',
      );
    }
    const reply = new Http2Reply(stream);
    pipeline.run(tunnel, { request, reply }, protocol === null ? null : createExtendedConnect(stream, reply));
  } catch (error) {
    const known = toKeyveilError(error);
    recordMalformed(ports, tunnel, { error: known, httpVersion: '2' });
    answer(stream, known, tunnel.authority.host);
  }
}

/** Creates the server. */
export function createHttp2Server(pipeline: Pipeline, ports: ProxyPorts): Http2Server {
  const connections = new Attachment<Http2Session, Connection>('keyveil.connection');
  const server: NodeHttp2Server = createServer({
    settings: {
      enableConnectProtocol: true,
      enablePush: false,
      maxConcurrentStreams: HTTP2_STREAMS_PER_CONNECTION_MAX,
      maxHeaderListSize: HEADER_BLOCK_BYTES_MAX,
      // The connection's own window follows in `session`.
      initialWindowSize: HTTP2_CLIENT_STREAM_WINDOW_BYTES,
    },
    maxHeaderListPairs: 2048,
    maxSessionMemory: 64,
    // Frames that break the protocol, and streams beyond the limit, are a sign of a flood long before Node's default.
    maxSessionInvalidFrames: HTTP2_INVALID_FRAMES_MAX,
    maxSessionRejectedStreams: HTTP2_INVALID_FRAMES_MAX,
  });
  server.on('session', (session: ServerHttp2Session) => {
    session.on('error', () => undefined);
    session.once('connect', () => session.setLocalWindowSize(HTTP2_CLIENT_CONNECTION_WINDOW_BYTES));
  });
  server.on('sessionError', () => undefined);
  const onStream = (stream: ServerHttp2Stream, ...[, flags, raw]: [unknown, number, string[]]): void => {
    const connection = stream.session === undefined ? undefined : connections.get(stream.session);
    // Without a listener a reset of the stream would be an uncaught error.
    stream.on('error', () => undefined);
    if (connection === undefined) return void stream.destroy();
    const { tunnel, guard } = connection;
    // A stream that ends from our side is destroyed first.
    stream.once('aborted', () => {
      if (!stream.destroyed) guard.noteReset();
    });
    serveStream(stream, { raw, endsStream: (flags & END_STREAM) !== 0 }, { pipeline, ports, tunnel });
  };
  server.on('stream', onStream as (...values: unknown[]) => void);
  return {
    serve(socket, tunnel) {
      // Node announces the session before `emit` returns, so the next one announced is this connection's.
      server.once('session', (session: ServerHttp2Session) => {
        const guard = createGuard(session, tunnel, ports);
        connections.set(session, { tunnel, guard });
        new DeadSessionWatch(session, socket, () => guard.endMalformed());
      });
      server.emit('connection', socket);
    },
  };
}

function createGuard(session: ServerHttp2Session, tunnel: Tunnel, ports: ProxyPorts): Http2Guard {
  return new Http2Guard(session, {
    clock: ports.clock,
    onFlood() {
      // The requests that are open on the connection end for the same reason.
      tunnel.cutReason ??= 'http2_flood';
      openTunnelTrail(ports, tunnel).finish('refused', 'http2_flood');
    },
    onMalformed() {
      tunnel.cutReason ??= 'malformed_frame';
      openTunnelTrail(ports, tunnel).finish('refused', 'malformed_frame');
    },
  });
}
