// Plain HTTP outside of a tunnel: requests in absolute form on the proxy port itself (RFC 9112 section 3.2.2).
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Authority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';
import type { SessionPolicy } from '../model/ports.ts';
import { authenticate, loginFieldOf } from './admission.ts';
import { Attachment } from './attachment.ts';
import { requireAuthority, splitAbsoluteTarget } from './destination-check.ts';
import { createHttp1Exchange } from './http1-exchange.ts';
import type { Http1Intake } from './http1-intake.ts';
import type { Pipeline } from './pipeline.ts';
import { answerAndClose } from './raw-reply.ts';
import { countConnection } from './session-connections.ts';
import type { ProxyPorts } from './settings.ts';
import { Tunnel, type TunnelRegistry } from './tunnels.ts';
import type { UnauthenticatedSockets } from './unauthenticated.ts';

interface PlainRequestsContext {
  readonly pipeline: Pipeline;
  readonly registry: TunnelRegistry;
  readonly unauthenticated: UnauthenticatedSockets;
  readonly ports: ProxyPorts;
}

/** A connection that has sent a plain request. */
interface Connection {
  readonly socket: Socket;
  readonly intake: Http1Intake;
  /** Its place among those of the session whose login it has shown last; null before. */
  tunnel: Tunnel | null;
  leave: (() => void) | null;
  /** The request that came last, until it has been answered. */
  last: Promise<void> | null;
  request: IncomingMessage | null;
}

function destinationOf(request: IncomingMessage): Authority {
  const target = splitAbsoluteTarget(request.url ?? '');
  if (target === null) {
    throw new KeyveilError(
      'bad_request',
      'This is a proxy. Send CONNECT host:port, or a request whose target is an absolute http:// URL.',
    );
  }
  if (target.scheme !== 'http') {
    throw new KeyveilError(
      'bad_request',
      'Only http:// URLs can be asked for directly. For https:// open a tunnel with CONNECT.',
    );
  }
  return requireAuthority(target.authority, 'http');
}

/** Resolves when the response is over, with its connection too: Node does not tell a response that waits for its turn. */
function ended(response: ServerResponse, socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      socket.off('close', end);
      response.off('close', end);
      resolve();
    };
    socket.once('close', end);
    response.once('close', end);
  });
}

/**
 * Serves plain requests, those of one connection one after the other. From its first good login on, a connection counts
 * to its session as a tunnel does, between its requests too, until it closes or shows the login of another session.
 */
export class PlainRequests {
  readonly #context: PlainRequestsContext;
  readonly #connections = new Attachment<Socket, Connection>('keyveil.plain');

  constructor(context: PlainRequestsContext) {
    this.#context = context;
  }

  /** Serves one request. Rejects with the refusal that the caller answers. */
  async serve(request: IncomingMessage, response: ServerResponse, intake: Http1Intake): Promise<void> {
    const { pipeline, ports } = this.#context;
    const { socket } = request;
    const connection = this.#connectionOf(socket, intake);
    const before = connection.last;
    const last = ended(response, socket).then(() => {
      if (connection.last === last) connection.last = null;
    });
    connection.last = last;
    connection.request = request;
    if (before !== null) await before;
    // The answer before may have been the connection's last.
    if (!socket.writable || response.destroyed) return;
    const authority = destinationOf(request);
    const exchange = createHttp1Exchange(request, response, socket);
    const policy = await authenticate(ports.policies, loginFieldOf(request.rawHeaders));
    const tunnel = await this.#join(connection, policy, authority);
    if (socket.destroyed) return;
    // Port and environment are looked at there, where a refusal is recorded as any request's.
    pipeline.run(tunnel, exchange);
  }

  /** Answers bytes that are no request: an answer at once would be taken for that of a request under way. */
  async refuseBytes(socket: Socket, error: KeyveilError): Promise<void> {
    const connection = this.#connections.get(socket);
    // What is broken is the body of that one.
    if (connection?.request?.complete === false && connection.last !== null) return void socket.destroy();
    await this.finished(socket);
    // The answer before may have been the connection's last.
    if (!socket.writable) return;
    this.#context.ports.metrics.request('refused', error.code);
    answerAndClose(socket, error, '');
  }

  /** Resolves when what was asked on the connection so far is over. */
  async finished(socket: Socket): Promise<void> {
    await this.#connections.get(socket)?.last;
  }

  /** The connection has become a tunnel, and is counted as that. */
  leave(socket: Socket): void {
    this.#connections.get(socket)?.leave?.();
  }

  #connectionOf(socket: Socket, intake: Http1Intake): Connection {
    let connection = this.#connections.get(socket);
    if (connection === undefined) {
      connection = { socket, intake, tunnel: null, leave: null, last: null, request: null };
      this.#connections.set(socket, connection);
    }
    return connection;
  }

  /** Its requests run one after the other, so its one place goes with them from host to host. */
  async #join(connection: Connection, policy: SessionPolicy, authority: Authority): Promise<Tunnel> {
    const { unauthenticated, ports } = this.#context;
    const { socket, intake } = connection;
    const nowMs = ports.clock.now();
    if (connection.tunnel?.sessionId === policy.sessionId) {
      connection.tunnel.moveTo({ policy, authority, nowMs });
      return connection.tunnel;
    }
    const tunnel = new Tunnel({ policy, authority, socket, nowMs });
    tunnel.intake = intake;
    const leave = await countConnection(tunnel, socket, this.#context);
    connection.leave?.();
    connection.leave = leave;
    connection.tunnel = tunnel;
    unauthenticated.admit(socket);
    return tunnel;
  }
}
