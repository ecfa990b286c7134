// The switch of two connections to WebSocket, and the record of what their messages held.
import type { Duplex } from 'node:stream';
import type { ResponseHead } from './exchange.ts';
import type { Forward } from './forward.ts';
import { endToEndResponseHeaders } from './hop-by-hop.ts';
import { RecentVeils } from './recent-veils.ts';
import type { Rules } from './request-head.ts';
import { toKeyveilError } from './responses.ts';
import type { SwapPlan } from './swap/plan.ts';
import { WebSocketFault } from './swap/websocket-frames.ts';
import type { BodyResources } from './swap/body-resources.ts';
import { createWebSocketSwap, type WebSocketSwap } from './swap/websocket-swap.ts';
import type { Veil } from './veil/veil.ts';
import { createWebSocketVeil, type WebSocketVeil } from './veil/websocket-veil.ts';
import { relayWebSocket } from './websocket-relay.ts';
import { requireValidSwitch, type UpgradeClient } from './websocket.ts';

const INTERNAL_ERROR = 1011;
const POLICY_VIOLATION = 1008;

export interface WebSocketSwitch {
  readonly forward: Forward;
  readonly upgrade: UpgradeClient;
  readonly head: ResponseHead;
  readonly upstream: Duplex;
  /** Bytes that came together with the 101. */
  readonly firstBytes: Buffer;
  /** Those of the handshake. */
  readonly rules: Rules;
  /** The rules as the database has them now, asked for each message. */
  readonly currentRules: () => Promise<Rules>;
  readonly veilsMessages: boolean;
  readonly bodies: BodyResources;
  readonly sessionId: string;
}

// RFC 6455 section 7.4.1: a refused value is a matter of policy, a malformed frame has a code of its own.
function closeCodeOf(error: unknown): number {
  if (error instanceof WebSocketFault) return error.closeCode;
  return toKeyveilError(error).code === 'internal_error' ? INTERNAL_ERROR : POLICY_VIOLATION;
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
  const veils = new RecentVeils(rules);
  const readRules = async (): Promise<Rules> => {
    const current = await currentRules();
    veils.note(current);
    return current;
  };
  const { bodies: resources, sessionId } = options;
  const currentPlan = async (): Promise<SwapPlan | null> => (await readRules()).plan;
  const swap = swapsMessages ? createWebSocketSwap({ currentPlan, bodies: { resources, sessionId } }) : null;
  const currentVeils = async (): Promise<readonly Veil[]> => {
    await readRules();
    return veils.list();
  };
  const messageVeil = options.veilsMessages ? createWebSocketVeil({ currentVeils }) : null;
  const finish = (outcome: 'forwarded' | 'failed', error: unknown): void => {
    record(forward, swap, messageVeil);
    if (error === null) return forward.complete(outcome, null);
    return forward.complete(outcome, error instanceof WebSocketFault ? 'malformed_frame' : toKeyveilError(error).code);
  };
  relayWebSocket({ client, upstream, toUpstream: swap, toClient: messageVeil, closeCodeOf }).then(
    (counts) => {
      Object.assign(trail, counts);
      finish('forwarded', null);
    },
    (error: unknown) => finish('failed', error),
  );
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
