// The head of a request on its way upstream: which fields go on, and what is swapped in them.
import type { SessionPolicy } from '../model/ports.ts';
import type { AuditTrail } from './audit-trail.ts';
import type { ClientRequest } from './client-exchange.ts';
import { headerValue, type RawHeaders } from './exchange.ts';
import { endToEndRequestHeaders } from './hop-by-hop.ts';
import { findUrlMisses, swapHeaders, type HeaderSwap } from './swap/headers.ts';
import type { SwapPlan } from './swap/plan.ts';
import type { Tunnel } from './tunnels.ts';
import { askForIdentity } from './veil/accept-encoding.ts';
import type { Veil } from './veil/veil.ts';

const NO_SENSITIVE_NAMES: ReadonlySet<string> = new Set();

/** What the policy says about this request. */
export interface Rules {
  readonly policy: SessionPolicy;
  readonly plan: SwapPlan | null;
  readonly veil: Veil | null;
}

/**
 * A request's fields as they go upstream: hop-by-hop fields gone, placeholders swapped, and where a veil applies no
 * coding asked for. Throws what `swapHeaders` throws.
 */
export function swapHead(
  request: ClientRequest,
  run: { readonly target: string; readonly rules: Rules; readonly trail: AuditTrail },
): HeaderSwap {
  const { plan, veil } = run.rules;
  const { trail } = run;
  const passedOn = endToEndRequestHeaders(request.headers);
  const headers = veil === null ? passedOn : askForIdentity(passedOn);
  if (plan === null) return { headers, swaps: [], misses: [], basicTokens: [], sensitiveNames: NO_SENSITIVE_NAMES };
  const swapped = swapHeaders(headers, plan, 'header');
  trail.addMisses(swapped.misses);
  trail.addMisses(findUrlMisses(run.target, plan));
  return swapped;
}

/** HTTP/1.0 clients may leave Host out; what goes upstream is HTTP/1.1, which needs it (RFC 9112 section 3.2). */
export function withHost(headers: RawHeaders, tunnel: Tunnel): RawHeaders {
  if (headerValue(headers, 'host') !== undefined) return headers;
  const { host, port } = tunnel.authority;
  const isDefault = port === (tunnel.scheme === 'https' ? 443 : 80);
  return ['Host', isDefault ? host : `${host}:${port}`, ...headers];
}
