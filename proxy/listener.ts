// The proxy port: CONNECT requests and plain requests in absolute form, from the first byte to the 200 or the refusal.
import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer, type AddressInfo, type Server as Port, type Socket } from 'node:net';
import { tryParseAuthority, type Authority } from '../model/authority.ts';
import { KeyveilError } from '../model/errors.ts';
import { Roster } from '../model/roster.ts';
import { authenticate, loginFieldOf, requireAdmitted, requireInterception } from './admission.ts';
import { Attachment } from './attachment.ts';
import { AuditTrail } from './audit-trail.ts';
import { destroyOnError } from './closed.ts';
import { awaitConnect, type ConnectRequest, type FirstRequestHandlers } from './connect-request.ts';
import type { Destination } from './exchange.ts';
import { Http1Intake } from './http1-intake.ts';
import { createHttp1Server, describeParserError, STRICT_SERVER_OPTIONS } from './http1-server.ts';
import { isClosing } from './http1-exchange.ts';
import { createHttp2Server } from './http2-server.ts';
import { discard, lingerAfterAnswer } from './linger.ts';
import { Pipeline } from './pipeline.ts';
import { PlainRequests } from './plain-requests.ts';
import { answerAndClose } from './raw-reply.ts';
import { answerError, toKeyveilError } from './responses.ts';
import { countConnection, Refusal, vetWhileOpen } from './session-connections.ts';
import { SessionWatch } from './session-watch.ts';
import type { ProxyPorts } from './settings.ts';
import { serveTunnel, type OpenedTunnel, type TunnelServers } from './tunnel.ts';
import { Tunnel, TunnelRegistry } from './tunnels.ts';
import { dropVeils } from './veil/compile.ts';
import { UnauthenticatedSockets } from './unauthenticated.ts';

const ESTABLISHED = Buffer.from('HTTP/1.1 200 Connection Established\r\n\r\n');

export interface Proxy {
  /** Binds; rejects with the system's error. */
  listen(address: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  /** Answers 503 to new tunnels and requests and stops listening; what is under way goes on. */
  drain(): void;
  /** Resolves when no request is under way. */
  idle(): Promise<void>;
  /** Looks at once for sessions that have ended. */
  settle(): Promise<void>;
  /** Connections that count to a session. */
  readonly tunnelCount: number;
  /** Connections that have not shown a session. */
  readonly unauthenticatedCount: number;
  /** Closes everything and waits for it. */
  close(): Promise<void>;
}

class ProxyServer implements Proxy {
  readonly #ports: ProxyPorts;
  /** What listens. */
  readonly #port: Port;
  /** Reads what is no plain CONNECT; the port itself where that speaks TLS. */
  readonly #server: Server;
  readonly #firstRequest: FirstRequestHandlers = {
    onConnect: (request, socket) => {
      this.#unauthenticated.hear(socket);
      void this.#open(request, socket);
    },
    onOther: (socket) => {
      this.#server.emit('connection', socket);
      this.#watchHeads(socket);
      socket.resume();
    },
  };
  readonly #registry: TunnelRegistry;
  readonly #pipeline: Pipeline;
  readonly #inner: TunnelServers;
  readonly #watch: SessionWatch;
  readonly #unauthenticated: UnauthenticatedSockets;
  readonly #plain: PlainRequests;
  readonly #sockets = new Roster<Socket>();
  readonly #intakes = new Attachment<Socket, Http1Intake>('keyveil.intake');

  constructor(ports: ProxyPorts) {
    this.#ports = ports;
    const { settings } = ports;
    this.#registry = new TunnelRegistry(settings);
    this.#pipeline = new Pipeline(ports);
    this.#inner = {
      http1: createHttp1Server(this.#pipeline, ports),
      http2: createHttp2Server(this.#pipeline, ports),
    };
    this.#watch = new SessionWatch({ ...ports, registry: this.#registry });
    const unauthenticated = new UnauthenticatedSockets(ports);
    this.#unauthenticated = unauthenticated;
    this.#plain = new PlainRequests({ registry: this.#registry, pipeline: this.#pipeline, unauthenticated, ports });
    this.#server =
      settings.tls === null
        ? createHttpServer(STRICT_SERVER_OPTIONS)
        : createHttpsServer({ ...STRICT_SERVER_OPTIONS, ...settings.tls, minVersion: 'TLSv1.2' });
    this.#server.maxHeadersCount = 0;
    this.#port = settings.tls === null ? createServer({ noDelay: true }) : this.#server;
    this.#wire();
  }

  get tunnelCount(): number {
    return this.#registry.count;
  }

  get unauthenticatedCount(): number {
    return this.#unauthenticated.size;
  }

  #wire(): void {
    const server = this.#server;
    this.#port.on('connection', (socket: Socket) => this.#track(socket));
    server.on('secureConnection', (socket: Socket) => {
      this.#unauthenticated.secure(socket);
      this.#watchHeads(socket);
    });
    server.on('connect', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      void this.#onHttpConnect(request, socket, head);
    });
    for (const event of ['request', 'checkContinue', 'checkExpectation']) {
      server.on(event, (request: IncomingMessage, response: ServerResponse) => void this.#onRequest(request, response));
    }
    server.on('clientError', (cause: NodeJS.ErrnoException, socket: Socket) => {
      this.#intakes.get(socket)?.discard();
      const error = describeParserError(cause);
      if (error === null) socket.destroy();
      else void this.#plain.refuseBytes(socket, error);
    });
  }

  /** Every socket has an error handler from its first moment. */
  #track(socket: Socket): void {
    destroyOnError(socket);
    const seat = this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.remove(seat));
    this.#unauthenticated.add(socket);
    if (this.#ports.settings.tls === null) return awaitConnect(socket, this.#firstRequest);
    socket.setNoDelay(true);
    this.#unauthenticated.awaitHandshake(socket);
  }

  #watchHeads(socket: Socket): void {
    this.#intakes.set(socket, new Http1Intake(socket, this.#ports.clock));
  }

  async #onHttpConnect(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    destroyOnError(socket);
    this.#unauthenticated.hear(socket);
    const rest = this.#intakes.get(socket)?.release();
    this.#intakes.delete(socket);
    if (rest !== undefined && rest.length > 0) socket.unshift(rest);
    if (head.length > 0) socket.unshift(head);
    await this.#plain.finished(socket);
    if (socket.writable) await this.#open(request, socket);
    else socket.destroy();
  }

  async #open(request: ConnectRequest, socket: Socket): Promise<void> {
    const authority = tryParseAuthority(request.url ?? '');
    try {
      const opened = await this.#admit(request, socket, authority);
      if (opened !== null) void this.#serve(opened);
    } catch (error) {
      this.#refuse(socket, error, { authority, request });
    }
  }

  /** After the 200 nothing can be told to the client but by closing its connection. */
  async #serve(opened: OpenedTunnel): Promise<void> {
    try {
      await serveTunnel(opened, this.#inner, this.#ports);
    } catch (error) {
      this.#ports.logger.error({ error, sessionId: opened.tunnel.sessionId }, 'A tunnel failed inside Keyveil.');
      opened.socket.destroy();
    }
  }

  /** Syntax, session, port, environment, address; then the 200. Null when the client has gone meanwhile. */
  async #admit(request: ConnectRequest, socket: Socket, authority: Authority | null): Promise<OpenedTunnel | null> {
    const { policies, settings, audit, upstream, clock } = this.#ports;
    if (authority === null) {
      throw new KeyveilError(
        'bad_request',
        'CONNECT needs host:port, with a host name or IP address and a port from 1 to 65535.',
      );
    }
    if (this.#pipeline.state.isDraining) throw new KeyveilError('shutting_down', 'Keyveil is shutting down.');
    const policy = await authenticate(policies, loginFieldOf(request.rawHeaders));
    const tunnel = new Tunnel({ policy, authority, socket, nowMs: clock.now() });
    try {
      await countConnection(tunnel, socket, { registry: this.#registry, ports: this.#ports });
      this.#plain.leave(socket);
      this.#unauthenticated.admit(socket);
      await audit.ready(policy.sessionId);
      requireAdmitted(policy, authority, settings);
      requireInterception(policy, settings);
    } catch (error) {
      throw new Refusal(error, policy.sessionId);
    }
    if (socket.destroyed) return null;
    const destination: Destination = {
      sessionId: policy.sessionId,
      scheme: 'https',
      authority,
      allowedPrivateCidrs: policy.allowedPrivateCidrs,
    };
    if (!upstream.isConnected(destination)) await vetWhileOpen(upstream, destination, socket);
    if (socket.destroyed) return null;
    socket.write(ESTABLISHED);
    return { tunnel, socket, destination };
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket } = request;
    const intake = this.#intakes.get(socket);
    if (intake === undefined) return void socket.destroy();
    intake.begin(request, response);
    if (isClosing(socket)) return intake.discard();
    this.#unauthenticated.hear(socket);
    try {
      await this.#plain.serve(request, response, intake);
    } catch (error) {
      const known = this.#record(error, null);
      if (response.headersSent || response.destroyed) return void socket.destroy();
      const answer = answerError(known, '');
      discard(request);
      lingerAfterAnswer(socket);
      // RFC 9110 section 15.5.8: after a 407 the client comes again, on this connection or on a new one.
      response.writeHead(answer.status, answer.reason, [...answer.headers, 'Connection', 'close']);
      response.end(answer.body);
      this.#unauthenticated.refuse(socket, known, request);
    }
  }

  #refuse(socket: Socket, error: unknown, asked: { authority: Authority | null; request: ConnectRequest }): void {
    const known = this.#record(error, asked.authority);
    this.#unauthenticated.refuse(socket, known, asked.request);
    answerAndClose(socket, known, asked.authority?.host ?? '');
  }

  /** Writes a refusal of a session's to the audit log; refusals without a session are counted, not written one by one. */
  #record(error: unknown, authority: Authority | null): KeyveilError {
    const cause = error instanceof Refusal ? error.cause : error;
    const known = toKeyveilError(cause);
    if (known.code === 'internal_error') this.#ports.logger.error({ error: cause }, 'A tunnel could not be opened.');
    if (!(error instanceof Refusal)) {
      this.#ports.metrics.request('refused', known.code);
      return known;
    }
    const { host = '', port = 0 } = authority ?? {};
    const trail = new AuditTrail(
      { sessionId: error.sessionId, method: 'CONNECT', scheme: 'tunnel', host, port, target: '', httpVersion: '1.1' },
      this.#ports,
    );
    trail.status = known.status;
    trail.finish(known.status >= 500 ? 'failed' : 'refused', known.code);
    return known;
  }

  listen(address: { readonly host: string; readonly port: number }): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#port.once('error', reject);
      this.#port.listen(address.port, address.host, () => {
        this.#port.off('error', reject);
        this.#port.on('error', (error) => this.#ports.logger.error({ error }, 'The proxy port failed.'));
        resolve(this.#port.address() as AddressInfo);
      });
    });
  }

  drain(): void {
    this.#pipeline.state.isDraining = true;
    this.#port.close();
    if (this.#port === this.#server) return this.#server.closeIdleConnections();
    for (const socket of this.#sockets.items()) if (this.#intakes.get(socket)?.isIdle === true) socket.destroy();
  }

  async idle(): Promise<void> {
    while (this.#registry.all().some((tunnel) => tunnel.openRequests > 0 || tunnel.isRelay)) {
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }

  settle(): Promise<void> {
    return this.#watch.settle();
  }

  async close(): Promise<void> {
    this.#pipeline.state.isDraining = true;
    this.#unauthenticated.close();
    await this.#watch.close();
    const closed = new Promise<void>((resolve) => this.#port.close(() => resolve()));
    const open = this.#sockets.items();
    const gone = open.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    for (const socket of open) socket.destroy();
    await Promise.all([closed, ...gone]);
    dropVeils();
  }
}

/** Creates the data plane; nothing listens yet. */
export function createProxy(ports: ProxyPorts): Proxy {
  return new ProxyServer(ports);
}
