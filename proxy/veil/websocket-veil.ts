// Veils the messages that a server sends over a WebSocket, also when they are fragmented.
import type { VeilRecord } from '../../model/audit.ts';
import { FrameParser, isControl, OPCODE, writeFrame, type FramePiece } from '../swap/websocket-frames.ts';
import { type HitCounts, recordsOf, VeilScanner } from './scanner.ts';
import type { Veil } from './veil.ts';

export interface WebSocketVeilOptions {
  /** Asked at the start of each message; null for messages that pass as they are. */
  currentVeil(): Promise<Veil | null>;
}

export interface WebSocketVeil {
  /**
   * Takes bytes from the server (and changes them) and gives those for the client. One call at a time: wait for one
   * before the next. Rejects with a `WebSocketFault`, or with what `currentVeil` throws: then the connection must be closed.
   */
  push(bytes: Buffer): Promise<Buffer[]>;
  /** What was veiled on the whole connection so far. */
  veils(): VeilRecord[];
  /** Whether a value could not be opened. */
  impossible(): boolean;
}

interface Message {
  readonly opcode: number;
  readonly scanner: VeilScanner | null;
  /** A frame of it has been sent, so that the next one continues it. */
  isBegun: boolean;
}

/** The veil of one connection, from the server to the client. */
export function createWebSocketVeil(options: WebSocketVeilOptions): WebSocketVeil {
  return new MessageVeil(options);
}

/**
 * A message that comes at once leaves as one frame. Another leaves as it comes, in fragments of our own (RFC 6455
 * section 5.4), less what is held back until its end; control frames in between keep their place.
 */
class MessageVeil implements WebSocketVeil {
  readonly #options: WebSocketVeilOptions;
  readonly #parser = new FrameParser({ isMasked: false });
  readonly #counts: HitCounts = new Map();
  #message: Message | null = null;
  #impossible = false;

  constructor(options: WebSocketVeilOptions) {
    this.#options = options;
  }

  async push(bytes: Buffer): Promise<Buffer[]> {
    const frames: Buffer[] = [];
    for (const piece of this.#parser.push(bytes)) {
      const { opcode, payload } = piece;
      if (isControl(opcode)) {
        frames.push(writeFrame({ opcode, fin: true, isMasked: false, payload: [payload] }));
        continue;
      }
      if (piece.isFirst && opcode !== OPCODE.continuation) this.#message = await this.#openMessage(opcode);
      const frame = this.#take(piece, this.#message as Message);
      if (frame !== null) frames.push(frame);
    }
    return frames;
  }

  veils(): VeilRecord[] {
    return recordsOf(this.#counts);
  }

  impossible(): boolean {
    return this.#impossible;
  }

  async #openMessage(opcode: number): Promise<Message> {
    const veil = await this.#options.currentVeil();
    if (veil === null) return { opcode, scanner: null, isBegun: false };
    if (veil.unopened.length > 0) this.#impossible = true;
    return { opcode, scanner: new VeilScanner(veil, { sameLength: false, counts: this.#counts }), isBegun: false };
  }

  #take(piece: FramePiece, message: Message): Buffer | null {
    const { scanner } = message;
    const fin = piece.fin && piece.isLast;
    const payload = scanner === null ? piece.payload : scanner.push(piece.payload, fin ? 0 : undefined);
    // A fragment without a byte says nothing; that bytes are held back depends on lengths alone.
    if (!fin && payload.length === 0) return null;
    const opcode = message.isBegun ? OPCODE.continuation : message.opcode;
    message.isBegun = true;
    return writeFrame({ opcode, fin, isMasked: false, payload: [payload] });
  }
}
