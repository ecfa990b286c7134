// Swaps placeholders in the messages that a client sends over a WebSocket, also when they are fragmented.
import type { MissRecord, SwapRecord } from '../../model/audit.ts';
import { SWAP_GROWTH_DEFAULT_BYTES } from '../../model/limits.ts';
import type { BodyResources, Lease } from './body-resources.ts';
import { BodySwapper } from './body-swapper.ts';
import type { SwapPlan } from './plan.ts';
import { SwapTally } from './tally.ts';
import { FrameParser, isControl, OPCODE, writeFrame, type FramePiece } from './websocket-frames.ts';

export interface WebSocketSwapOptions {
  /** Asked at the start of each message, so that a rotation or an archive counts from the next one on. */
  currentPlan(): Promise<SwapPlan | null>;
  /** Memory for frames that don't come at once, and the bound of growth. Without it, such frames are never kept. */
  readonly bodies?: { readonly resources: BodyResources; readonly sessionId: string };
}

export interface WebSocketSwap {
  /**
   * Takes bytes from the client (and changes them) and gives those for the upstream; calls are served one after the
   * other. Rejects with a `WebSocketFault`, or with what the swap throws: then the connection must be closed.
   */
  push(bytes: Buffer): Promise<Buffer[]>;
  /** Of the whole connection until now, one for each credential and version. */
  swaps(): readonly SwapRecord[];
  misses(): readonly MissRecord[];
  /** Gives back memory. Can be called again. */
  dispose(): void;
}

interface Message {
  readonly opcode: number;
  readonly swapper: BodySwapper | null;
  /** A frame of it has been sent, so that the next one continues it. */
  isBegun: boolean;
}

/**
 * Frames stay as they are cut: what may begin a placeholder at the end of a fragment moves to the next one. A frame
 * that does not come at once is kept whole while there is memory for it; else it is sent on in fragments (RFC 6455
 * section 5.4), so that none is too big.
 */
class Swapping implements WebSocketSwap {
  readonly #options: WebSocketSwapOptions;
  readonly #parser = new FrameParser({ isMasked: true });
  readonly #tally = new SwapTally();
  #tail: Promise<unknown> = Promise.resolve();
  #message: Message | null = null;
  #held: Buffer[] = [];
  #lease: Lease | null = null;

  constructor(options: WebSocketSwapOptions) {
    this.#options = options;
  }

  push(bytes: Buffer): Promise<Buffer[]> {
    const result = this.#tail.then(() => this.#take(bytes));
    this.#tail = result;
    return result;
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

  async #take(bytes: Buffer): Promise<Buffer[]> {
    const frames: Buffer[] = [];
    for (const piece of this.#parser.push(bytes)) {
      if (isControl(piece.opcode)) {
        frames.push(writeFrame({ opcode: piece.opcode, fin: true, isMasked: true, payload: [piece.payload] }));
        continue;
      }
      if (piece.isFirst && piece.opcode !== OPCODE.continuation) this.#message = await this.#openMessage(piece.opcode);
      const frame = this.#takeData(piece, this.#message as Message);
      if (frame !== null) frames.push(frame);
    }
    return frames;
  }

  async #openMessage(opcode: number): Promise<Message> {
    const plan = await this.#options.currentPlan();
    if (plan === null) return { opcode, swapper: null, isBegun: false };
    const swapper = new BodySwapper({
      plan,
      bodyClass: opcode === OPCODE.text ? 'text' : 'raw',
      location: 'websocket',
      growthBytes: this.#options.bodies?.resources.growthBytes ?? SWAP_GROWTH_DEFAULT_BYTES,
      tally: this.#tally,
    });
    return { opcode, swapper, isBegun: false };
  }

  #takeData(piece: FramePiece, message: Message): Buffer | null {
    this.#held.push(piece.payload);
    if (!piece.isLast && this.#mayHold(piece)) return null;
    const payload = this.#held.flatMap((held) => (message.swapper === null ? [held] : [...message.swapper.push(held)]));
    const fin = piece.fin && piece.isLast;
    if (fin && message.swapper !== null) payload.push(...message.swapper.end());
    const opcode = message.isBegun ? OPCODE.continuation : message.opcode;
    message.isBegun = true;
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
