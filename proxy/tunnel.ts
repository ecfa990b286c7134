// What travels inside a tunnel: TLS is terminated, plain HTTP is handled as such, pass-through hosts are relayed.
import type { Socket } from 'node:net';
import { normaliseHost } from '../model/authority.ts';
import type { ConnectionReason } from '../model/audit.ts';
import { openTunnelTrail } from './audit-trail.ts';
import { parseClientHello, type ClientHello } from './client-hello.ts';
import type { Destination } from './exchange.ts';
import { peek, readOpening } from './first-bytes.ts';
import type { Http1Server } from './http1-server.ts';
import type { Http2Server } from './http2-server.ts';
import { relay } from './relay.ts';
import { toKeyveilError } from './responses.ts';
import type { ProxyPorts } from './settings.ts';
import { terminateTls } from './tunnel-tls.ts';
import type { Tunnel } from './tunnels.ts';

/** As they are sent (RFC 7301 section 3.1): a list would be translated for each connection. */
const PROTOCOLS = Buffer.from('\x02h2\x08http/1.1', 'latin1');

export interface TunnelServers {
  readonly http1: Http1Server;
  readonly http2: Http2Server;
}

/** A tunnel that was opened: the client has got its 200. */
export interface OpenedTunnel {
  readonly tunnel: Tunnel;
  readonly socket: Socket;
  readonly destination: Destination;
}

/** Serves one tunnel; resolves when its connection has been handed over or closed. */
export async function serveTunnel(opened: OpenedTunnel, servers: TunnelServers, ports: ProxyPorts): Promise<void> {
  const { tunnel, socket } = opened;
  const { settings } = ports;
  if (!settings.interceptionOn || settings.passthroughHosts.covers(tunnel.authority.host)) {
    await relayUnread(opened, ports);
    return;
  }
  const opening = await peek(socket, settings.firstBytesTimeoutMs, readOpening);
  switch (opening?.protocol) {
    case 'tls':
      await serveTls(opened, opening.hello, { servers, ports });
      return;
    case 'http1':
      markIdle(tunnel, ports);
      servers.http1.serve(socket, tunnel);
      socket.resume();
      return;
    case 'unsupported':
    case undefined:
      refuse(opened, ports, 'unsupported_protocol');
  }
}

function markIdle(tunnel: Tunnel, ports: ProxyPorts): void {
  tunnel.idleSince = ports.clock.now();
}

function refuse(opened: OpenedTunnel, ports: ProxyPorts, reason: ConnectionReason): void {
  const { tunnel, socket } = opened;
  // A client that opened a tunnel and left without a word asked for nothing.
  if (!socket.readableEnded && !socket.destroyed) openTunnelTrail(ports, tunnel).finish('refused', reason);
  socket.destroy();
}

interface TunnelParts {
  readonly servers: TunnelServers;
  readonly ports: ProxyPorts;
}

async function serveTls(opened: OpenedTunnel, hello: ClientHello | null, parts: TunnelParts): Promise<void> {
  const { servers, ports } = parts;
  const { tunnel, socket } = opened;
  const { host } = tunnel.authority;
  const context = ports.leaves.contextFor(host);
  const handshake = await terminateTls(socket, {
    host,
    hello,
    context: context instanceof Promise ? await context : context,
    timeoutMs: ports.settings.handshakeTimeoutMs,
    protocols: PROTOCOLS,
  });
  if (!handshake.ok) {
    openTunnelTrail(ports, tunnel).finish('refused', tunnel.cutReason ?? handshake.reason);
    return;
  }
  tunnel.scheme = 'https';
  markIdle(tunnel, ports);
  if (handshake.protocol === 'http/1.1') {
    servers.http1.serve(handshake.socket, tunnel);
    return;
  }
  tunnel.isMultiplexed = true;
  // An HTTP/2 session has no use for half a connection: when the client has closed its side, the tunnel is over.
  handshake.socket.allowHalfOpen = false;
  servers.http2.serve(handshake.socket, tunnel);
}

function readHello(bytes: Buffer): ClientHello | null {
  const hello = parseClientHello(bytes);
  return hello.kind === 'incomplete' ? null : hello;
}

async function relayUnread(opened: OpenedTunnel, ports: ProxyPorts): Promise<void> {
  const { tunnel, socket, destination } = opened;
  const hello = await peek(socket, ports.settings.firstBytesTimeoutMs, readHello);
  if (hello === null || hello.kind !== 'hello') return refuse(opened, ports, 'unsupported_protocol');
  if (hello.serverName !== null && normaliseHost(hello.serverName) !== tunnel.authority.host) {
    return refuse(opened, ports, 'sni_mismatch');
  }
  const trail = openTunnelTrail(ports, tunnel);
  tunnel.isRelay = true;
  const abortion = new AbortController();
  const abort = (): void => abortion.abort();
  socket.once('close', abort);
  try {
    const upstream = await ports.upstream.dial(destination, abortion.signal);
    const counts = await relay(socket, upstream);
    Object.assign(trail, counts);
    trail.finish('relayed', tunnel.cutReason);
  } catch (error) {
    // Inside the tunnel nothing can be told to the client but by closing it.
    trail.finish('failed', tunnel.cutReason ?? toKeyveilError(error).code);
    socket.destroy();
  }
}
