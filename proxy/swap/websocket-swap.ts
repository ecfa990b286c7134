// Swaps placeholders in the messages that a client sends over a WebSocket, also when they are fragmented.
import type { MissRecord, SwapRecord } from '../../model/audit.ts';
import { SWAP_GROWTH_DEFAULT_BYTES } from '../../model/limits.ts';
import { PLACEHOLDER_MARKER, PLACEHOLDER_RANDOM_CHARACTERS } from '../../model/placeholder.ts';
import type { BodyResources, Lease } from './body-resources.ts';
import { BodySwapper } from './body-swapper.ts';
import type { SwapPlan } from './plan.ts';
import { SwapTally } from './tally.ts';
import { isControl, OPCODE, writeFrame, type FramePiece } from './websocket-frames.ts';
import { type FrameRewriter, FrameSteps } from './websocket-steps.ts';

const PLACEHOLDER_CHARACTERS_MIN = PLACEHOLDER_MARKER.length + PLACEHOLDER_RANDOM_CHARACTERS;

export interface WebSocketSwapOptions {
  /** Asked after bytes have come, so that a rotation or an archive counts from the next message on. */
  currentPlan(): SwapPlan | null | Promise<SwapPlan | null>;
  /** Memory for frames that don't come at once, and the bound of growth. Without it, such frames are never kept. */
  readonly bodies?: { readonly resources: BodyResources; readonly sessionId: string };
}

/** Takes a client's bytes and gives those for the upstream. */
export interface WebSocketSwap extends FrameRewriter {
  /** Of the whole connection until now, one for each credential and version. */
  swaps(): readonly SwapRecord[];
  misses(): readonly MissRecord[];
  /** What the message that is under way may still be given; null between messages. */
  openPlan(): SwapPlan | null;
  /** Gives back memory. Can be called again. */
  dispose(): void;
}

interface Message {
  readonly opcode: number;
  readonly plan: SwapPlan | null;
  readonly swapper: BodySwapper | null;
  /** A frame of it has been sent, so that the next one continues it. */
  isBegun: boolean;
}

function beginsMessage(piece: FramePiece): boolean {
  return piece.isFirst && (piece.opcode === OPCODE.text || piece.opcode === OPCODE.binary);
}

/**
 * Frames stay as they are cut: what may begin a placeholder at the end of a fragment moves to the next one. A frame
 * that does not come at once is kept whole while there is memory for it; else it is sent on in fragments (RFC 6455
 * section 5.4), so that none is too big.
 */
class Swapping extends FrameSteps<SwapPlan | null> implements WebSocketSwap {
  readonly #options: WebSocketSwapOptions;
  readonly #tally = new SwapTally();
  #message: Message | null = null;
  #held: Buffer[] = [];
  #lease: Lease | null = null;

  constructor(options: WebSocketSwapOptions) {
    super(true);
    this.#options = options;
  }

  openPlan(): SwapPlan | null {
    return this.#message === null ? null : this.#message.plan;
  }

  swaps(): readonly SwapRecord[] {
    return this.#tally.swaps();
  }

  misses(): readonly MissRecord[] {
    return this.#tally.misses();
  }

  dispose(): void {
    this.#lease?.release();
    this.#lease = null;
    this.#held = [];
  }

  protected override currentRules(): SwapPlan | null | Promise<SwapPlan | null> {
    return this.#options.currentPlan();
  }

  protected override needsRules(piece: FramePiece): boolean {
    return beginsMessage(piece);
  }

  protected override rewrite(piece: FramePiece, plan: SwapPlan | null): Buffer | null {
    if (isControl(piece.opcode)) {
      return writeFrame({ opcode: piece.opcode, fin: true, isMasked: true, payload: [piece.payload] });
    }
    if (beginsMessage(piece)) this.#message = this.#openMessage(piece, plan);
    return this.#takeData(piece, this.#message as Message);
  }

  #openMessage(piece: FramePiece, plan: SwapPlan | null): Message {
    const { opcode } = piece;
    const isTooShort = piece.fin && piece.isLast && piece.payload.length < PLACEHOLDER_CHARACTERS_MIN;
    if (plan === null || isTooShort) return { opcode, plan: null, swapper: null, isBegun: false };
    const swapper = new BodySwapper({
      plan,
      bodyClass: opcode === OPCODE.text ? 'text' : 'raw',
      location: 'websocket',
      growthBytes: this.#options.bodies?.resources.growthBytes ?? SWAP_GROWTH_DEFAULT_BYTES,
      tally: this.#tally,
    });
    return { opcode, plan, swapper, isBegun: false };
  }

  #takeData(piece: FramePiece, message: Message): Buffer | null {
    this.#held.push(piece.payload);
    if (!piece.isLast && this.#mayHold(piece)) return null;
    const payload = this.#held.flatMap((held) => (message.swapper === null ? [held] : [...message.swapper.push(held)]));
    const fin = piece.fin && piece.isLast;
    if (fin && message.swapper !== null) payload.push(...message.swapper.end());
    const opcode = message.isBegun ? OPCODE.continuation : message.opcode;
    message.isBegun = true;
    if (fin) this.#message = null;
    this.dispose();
    return writeFrame({ opcode, fin, isMasked: true, payload });
  }

  #mayHold(piece: FramePiece): boolean {
    const { bodies } = this.#options;
    if (piece.isFirst && bodies !== undefined && piece.frameBytes <= bodies.resources.bufferBytes) {
      this.#lease = bodies.resources.reserveMemory(bodies.sessionId, piece.frameBytes);
    }
    return this.#lease !== null;
  }
}

/** The swap of one connection, from the client to the upstream. */
export function createWebSocketSwap(options: WebSocketSwapOptions): WebSocketSwap {
  return new Swapping(options);
}
