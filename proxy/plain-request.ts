// Plain HTTP outside of a tunnel: requests in absolute form on the proxy port itself (RFC 9112 section 3.2.2).
import type { IncomingMessage, ServerResponse } from 'node:http';
import { KeyveilError } from '../model/errors.ts';
import { authenticate, loginFieldOf } from './admission.ts';
import { requireAuthority, splitAbsoluteTarget } from './destination-check.ts';
import { createHttp1Exchange } from './http1-exchange.ts';
import type { Pipeline } from './pipeline.ts';
import type { ProxyPorts } from './settings.ts';
import { Tunnel, type TunnelRegistry } from './tunnels.ts';

export interface PlainRequestContext {
  readonly pipeline: Pipeline;
  readonly registry: TunnelRegistry;
  readonly ports: ProxyPorts;
}

/** Serves one request. Rejects with the refusal that the caller answers. */
export async function servePlainRequest(
  request: IncomingMessage,
  response: ServerResponse,
  context: PlainRequestContext,
): Promise<void> {
  const { pipeline, registry, ports } = context;
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
  const authority = requireAuthority(target.authority, 'http');
  const exchange = createHttp1Exchange(request, response, request.socket);
  const policy = await authenticate(ports.policies, loginFieldOf(request.rawHeaders));
  const tunnel = new Tunnel({ policy, authority, socket: request.socket, nowMs: ports.clock.now() });
  registry.add(tunnel);
  response.once('close', () => registry.remove(tunnel));
  if (response.destroyed) return registry.remove(tunnel);
  // Port and environment are looked at there, where a refusal is recorded as any request's.
  await pipeline.run(tunnel, exchange);
}
