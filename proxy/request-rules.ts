// What one request is handled by: the session's policy as the database has it now, and what is compiled from it.
import { KeyveilError } from '../model/errors.ts';
import type { SessionPolicy } from '../model/ports.ts';
import { requireAdmitted, requireInterception, sessionInactive } from './admission.ts';
import { regardEmergencyStop } from './emergency-stop.ts';
import type { Rules } from './request-head.ts';
import type { ProxyPorts } from './settings.ts';
import { compileSwapPlan } from './swap/plan.ts';
import type { Tunnel } from './tunnels.ts';
import { compileVeil } from './veil/compile.ts';

/** A promise where the audit log has no room or the policy is not at hand. Throws or rejects with the refusal. */
export function readRules(ports: ProxyPorts, tunnel: Tunnel): Rules | Promise<Rules> {
  const { policies, audit } = ports;
  const room = audit.ready(tunnel.sessionId);
  const current =
    room === undefined ? policies.read(tunnel.sessionId) : room.then(() => policies.read(tunnel.sessionId));
  return current instanceof Promise
    ? current.then((late) => compileRules(ports, tunnel, late))
    : compileRules(ports, tunnel, current);
}

function compileRules({ settings }: ProxyPorts, tunnel: Tunnel, current: SessionPolicy | null): Rules {
  if (current === null) throw sessionInactive('archived');
  if (current.status !== 'active') throw sessionInactive(current.status);
  requireAdmitted(current, tunnel.authority, settings);
  requireInterception(current, settings);
  const policy = regardEmergencyStop(current);
  const { host } = tunnel.authority;
  const plan = compileSwapPlan(policy, { host, scheme: tunnel.scheme });
  const isVeiled = settings.veilOn && tunnel.scheme === 'https';
  return { policy, plan, veil: isVeiled && plan !== null ? compileVeil(current, host) : null };
}

/** Throws `shutting_down` while the daemon drains. */
export function requireOpen(state: { readonly isDraining: boolean }): void {
  if (state.isDraining) {
    throw new KeyveilError('shutting_down', 'Keyveil is shutting down. Try again in a moment.');
  }
}
