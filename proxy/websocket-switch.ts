// The switch of two connections to WebSocket, and the record of what their messages held.
import type { Duplex } from 'node:stream';
import type { ResponseHead } from './exchange.ts';
import type { Forward } from './forward.ts';
import { endToEndResponseHeaders } from './hop-by-hop.ts';
import { RecentVeils, versionKey } from './recent-veils.ts';
import type { Rules } from './request-head.ts';
import { toKeyveilError } from './responses.ts';
import { WebSocketFault } from './swap/websocket-frames.ts';
import type { BodyResources } from './swap/body-resources.ts';
import { createWebSocketSwap, type WebSocketSwap } from './swap/websocket-swap.ts';
import { createWebSocketVeil, type WebSocketVeil } from './veil/websocket-veil.ts';
import { relayWebSocket } from './websocket-relay.ts';
import { requireValidSwitch, type UpgradeClient } from './websocket.ts';

const INTERNAL_ERROR = 1011;
const POLICY_VIOLATION = 1008;
const TRY_AGAIN_LATER = 1013; // of the registry of close codes, section 11.7

export interface WebSocketSwitch {
  readonly forward: Forward;
  readonly upgrade: UpgradeClient;
  readonly head: ResponseHead;
  readonly upstream: Duplex;
  /** Bytes that came together with the 101. */
  readonly firstBytes: Buffer;
  /** Those of the handshake. */
  readonly rules: Rules;
  /** The rules as the database has them now, asked whenever bytes have come. */
  readonly currentRules: () => Rules | Promise<Rules>;
  readonly veilsMessages: boolean;
  readonly bodies: BodyResources;
  readonly sessionId: string;
}

// RFC 6455 section 7.4.1: a refused value is a matter of policy, a malformed frame has a code of its own.
function closeCodeOf(error: unknown): number {
  if (error instanceof WebSocketFault) return error.closeCode;
  const { code } = toKeyveilError(error);
  if (code === 'overloaded') return TRY_AGAIN_LATER;
  return code === 'internal_error' ? INTERNAL_ERROR : POLICY_VIOLATION;
}

/** Answers the client's handshake and joins the two connections; the request's record is written when both are closed. */
export function switchToWebSocket(options: WebSocketSwitch): void {
  const { forward, upgrade, head, upstream, firstBytes, rules, currentRules } = options;
  const swapsMessages = rules.plan !== null && rules.plan.swapsBody;
  try {
    requireValidSwitch(head, upgrade.key, swapsMessages || options.veilsMessages);
  } catch (error) {
    upstream.destroy();
    forward.fail(error);
    return;
  }
  const { trail } = forward;
  trail.status = head.status;
  let client: Duplex;
  try {
    client = upgrade.accept(forward.veilHead({ ...head, headers: endToEndResponseHeaders(head.headers) }));
  } catch (error) {
    upstream.destroy();
    forward.fail(error);
    return;
  }
  if (upgrade.firstBytes.length > 0) client.unshift(upgrade.firstBytes);
  if (firstBytes.length > 0) upstream.unshift(firstBytes);
  const { bodies: resources, sessionId } = options;
  const veils = new RecentVeils(rules, () => sentVersions(forward, swap));
  const readRules = <Part>(partOf: (rules: Rules) => Part): Part | Promise<Part> => {
    const noted = (current: Rules): Part => {
      veils.note(current);
      return partOf(current);
    };
    const current = currentRules();
    return current instanceof Promise ? current.then(noted) : noted(current);
  };
  const swap = swapsMessages
    ? createWebSocketSwap({ currentPlan: () => readRules(({ plan }) => plan), bodies: { resources, sessionId } })
    : null;
  const messageVeil = options.veilsMessages
    ? createWebSocketVeil({ currentVeils: () => readRules(() => veils.list()) })
    : null;
  const finish = (outcome: 'forwarded' | 'failed', error: unknown): void => {
    record(forward, swap, messageVeil);
    if (error === null) return forward.complete(outcome, null);
    return forward.complete(outcome, error instanceof WebSocketFault ? 'malformed_frame' : toKeyveilError(error).code);
  };
  relayWebSocket({ client, upstream, toUpstream: swap, toClient: messageVeil, closeCodeOf, sessionId }).then(
    (counts) => {
      Object.assign(trail, counts);
      finish('forwarded', null);
    },
    (error: unknown) => finish('failed', error),
  );
}

/** The values that have left by the connection, or may with the message that is under way. */
function sentVersions(forward: Forward, swap: WebSocketSwap | null): ReadonlySet<string> {
  const sent = [...forward.headSwaps, ...(swap?.swaps() ?? [])];
  const open = swap?.openPlan()?.entries.filter(({ body }) => body === 'swap') ?? [];
  return new Set([...sent, ...open].map(({ credentialId, secretVersion }) => versionKey(credentialId, secretVersion)));
}

function record(forward: Forward, swap: WebSocketSwap | null, veil: WebSocketVeil | null): void {
  const { trail } = forward;
  if (swap !== null) {
    trail.addSwaps(swap.swaps());
    trail.addMisses(swap.misses());
    swap.dispose();
  }
  if (veil !== null) {
    trail.veils = veil.veils();
    if (veil.impossible()) trail.note = 'veil_not_possible';
  }
}
