// Connections of a session, counted until they close: in this process, in the primary where there is one, in the metrics.
import type { Socket } from 'node:net';
import type { Destination, Upstream } from './exchange.ts';
import type { ProxyPorts } from './settings.ts';
import type { Tunnel, TunnelRegistry } from './tunnels.ts';

// One reason for all: making one costs more than closing the tunnel, most of it its stack.
const CLIENT_GONE = new DOMException('The client has gone.', 'AbortError');

type Ports = Pick<ProxyPorts, 'gate' | 'metrics'>;

/**
 * Counts a connection to its session. Rejects with `overloaded` at the limit of all connections or of the session's.
 * It is uncounted once: when it closes, or when the function that this resolves with is called.
 */
export async function countConnection(
  tunnel: Tunnel,
  socket: Socket,
  { registry, ports }: { registry: TunnelRegistry; ports: Ports },
): Promise<() => void> {
  const { gate, metrics } = ports;
  const { sessionId } = tunnel;
  registry.add(tunnel);
  try {
    await gate?.enter(sessionId);
  } catch (error) {
    registry.remove(tunnel);
    throw error;
  }
  metrics.tunnels(1);
  let isCounted = true;
  const leave = (): void => {
    if (!isCounted) return;
    isCounted = false;
    socket.off('close', leave);
    registry.remove(tunnel);
    gate?.leave(sessionId);
    metrics.tunnels(-1);
  };
  if (socket.destroyed) leave();
  else socket.once('close', leave);
  return leave;
}

/** A refusal of a session that is known, so that it is written to the audit log. */
export class Refusal extends Error {
  readonly sessionId: string;

  constructor(cause: unknown, sessionId: string) {
    super('refused', { cause });
    this.sessionId = sessionId;
  }
}

/** Looks whether the destination may be reached, until the client leaves. Rejects with a `Refusal` of the session's. */
export async function vetWhileOpen(upstream: Upstream, destination: Destination, socket: Socket): Promise<void> {
  const abortion = new AbortController();
  const abort = (): void => abortion.abort(CLIENT_GONE);
  socket.once('close', abort);
  try {
    await upstream.vet(destination, abortion.signal);
  } catch (error) {
    throw new Refusal(error, destination.sessionId);
  } finally {
    socket.off('close', abort);
  }
}
