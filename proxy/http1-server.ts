// Requests of HTTP/1.x connections inside tunnels: parsed by Node's strict parser, answered by the pipeline.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { HEADER_BLOCK_BYTES_MAX } from '../model/limits.ts';
import { KeyveilError } from '../model/errors.ts';
import { Attachment } from './attachment.ts';
import { recordMalformed } from './audit-trail.ts';
import { DirectConnection } from './http1-direct.ts';
import { asksForWebSocket, createHttp1Exchange, isClosing } from './http1-exchange.ts';
import { Http1Intake } from './http1-intake.ts';
import { discard } from './linger.ts';
import type { Pipeline } from './pipeline.ts';
import { answerAndClose } from './raw-reply.ts';
import { toKeyveilError } from './responses.ts';
import type { ProxyPorts } from './settings.ts';
import type { Tunnel } from './tunnels.ts';
import { upgradeToWebSocket } from './http1-upgrade.ts';

/** Options of every HTTP/1.x server of the data plane: Node's strict parser, and no time-outs but our own. */
export const STRICT_SERVER_OPTIONS = {
  insecureHTTPParser: false,
  maxHeaderSize: HEADER_BLOCK_BYTES_MAX,
  // Checked in http1-exchange.ts: Node would answer by itself, and go on with what is pipelined behind.
  requireHostHeader: false,
  keepAliveTimeout: 0,
  headersTimeout: 0,
  requestTimeout: 0,
} as const;

/** A connection that the server has. */
interface Connection {
  readonly tunnel: Tunnel;
  readonly intake: Http1Intake;
}

const connections = new Attachment<Duplex, Connection>('keyveil.connection');

function connectionOf(socket: Duplex): Connection {
  const connection = connections.get(socket);
  if (connection === undefined) throw new Error('A request came by a connection that is no tunnel.');
  return connection;
}

/** The answer to bytes that Node's parser refused; null when the connection is past answering. */
export function describeParserError(error: NodeJS.ErrnoException): KeyveilError | null {
  if (error.code === 'ECONNRESET' || error.code === 'EPIPE') return null;
  if (error.code === 'HPE_HEADER_OVERFLOW') {
    return new KeyveilError('header_too_large', `The header block is longer than ${HEADER_BLOCK_BYTES_MAX} bytes.`);
  }
  return new KeyveilError('bad_request', 'The request is not well-formed HTTP/1.1.');
}

/** The server that every HTTP/1.x connection inside a tunnel is handed to; it never listens. */
export interface Http1Server {
  /** Takes a connection over; bytes that were put back into it are read first. */
  serve(socket: Duplex, tunnel: Tunnel): void;
}

// An upgrade that is not honoured goes on as an ordinary request: the head is put back without the fields that ask
// for it (RFC 9110 section 7.8: a server may ignore Upgrade).
function requeueWithoutUpgrade(request: IncomingMessage, socket: Duplex, rest: Buffer): void {
  let head = `${request.method} ${request.url} HTTP/${request.httpVersion}\r\n`;
  const { rawHeaders } = request;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    const value = rawHeaders[index + 1] as string;
    if (/^(?:upgrade|http2-settings)$/i.test(name)) continue;
    const kept = /^connection$/i.test(name) ? withoutOptions(value) : value;
    if (kept !== '') head += `${name}: ${kept}\r\n`;
  }
  socket.unshift(Buffer.concat([Buffer.from(`${head}\r\n`, 'latin1'), rest]));
}

function withoutOptions(connection: string): string {
  const options = connection.split(',').map((option) => option.trim());
  return options.filter((option) => !/^(?:upgrade|http2-settings)$/i.test(option)).join(', ');
}

/** Runs at once, or after the requests that are under way: what is pipelined behind them must not overtake their answers. */
function inOrder(socket: Duplex, tunnel: Tunnel, work: () => void): void {
  const before = tunnel.previous();
  if (before === undefined) work();
  else void before.then(() => (socket.writable ? work() : socket.destroy()));
}

/** Creates the server. */
export function createHttp1Server(pipeline: Pipeline, ports: ProxyPorts): Http1Server {
  const server: Server = createServer(STRICT_SERVER_OPTIONS);
  // Node drops fields past its own limit silently; ours is counted in http1-exchange.ts.
  server.maxHeadersCount = 0;
  const serve = (socket: Duplex, tunnel: Tunnel): void => {
    server.emit('connection', socket);
    const intake = new Http1Intake(socket, ports.clock, tunnel.sessionId);
    connections.set(socket, { tunnel, intake });
    tunnel.intake = intake;
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const { tunnel, intake } = connectionOf(request.socket);
    intake.begin(request, response);
    if (isClosing(request.socket)) return intake.discard();
    try {
      pipeline.run(tunnel, createHttp1Exchange(request, response, request.socket));
    } catch (error) {
      const known = toKeyveilError(error);
      recordMalformed(ports, tunnel, { error: known, httpVersion: '1.1' });
      // What was pipelined behind a request that was refused for its framing may be a part of it.
      intake.discard();
      discard(request);
      inOrder(request.socket, tunnel, () => answerAndClose(request.socket, known, tunnel.authority.host));
    }
  };
  const onUpgrade = (request: IncomingMessage, socket: Duplex, rest: Buffer): void => {
    const { tunnel, intake } = connectionOf(socket);
    const unread = Buffer.concat([rest, intake.release()]);
    inOrder(socket, tunnel, () => {
      if (asksForWebSocket(request)) {
        upgradeToWebSocket({ pipeline, ports, tunnel, request, socket, rest: unread });
        return;
      }
      // A server that takes over knows nothing of the answers that its predecessor still owes.
      requeueWithoutUpgrade(request, socket, unread);
      serve(socket, tunnel);
    });
  };
  server.on('request', onRequest);
  // Without these listeners Node answers 100 Continue, and 417, by itself.
  server.on('checkContinue', onRequest);
  server.on('checkExpectation', onRequest);
  server.on('upgrade', onUpgrade);
  server.on('connect', (_request: IncomingMessage, socket: Duplex) => {
    const { tunnel, intake } = connectionOf(socket);
    intake.release();
    const error = new KeyveilError(
      'connect_not_allowed',
      'CONNECT inside a tunnel is not allowed. Open it at the proxy.',
    );
    recordMalformed(ports, tunnel, { error, httpVersion: '1.1' });
    inOrder(socket, tunnel, () => answerAndClose(socket, error, tunnel.authority.host));
  });
  server.on('clientError', (cause: NodeJS.ErrnoException, socket: Duplex) => {
    const { tunnel, intake } = connectionOf(socket);
    intake.discard();
    const error = describeParserError(cause);
    // In the middle of a request its own record tells; an answer now would be taken for the answer to that one.
    if (error === null || tunnel.openRequests > 0) return void socket.destroy();
    recordMalformed(ports, tunnel, { error, httpVersion: '1.1' });
    answerAndClose(socket, error, tunnel.authority.host);
  });
  return { serve: (socket, tunnel) => void new DirectConnection(socket, { tunnel, pipeline, takeOver: serve }) };
}
