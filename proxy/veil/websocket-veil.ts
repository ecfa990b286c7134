// Veils the messages that a server sends over a WebSocket, also when they are fragmented, and its control frames.
import type { VeilRecord } from '../../model/audit.ts';
import { isVeilableLength } from '../../model/veil-budget.ts';
import { FrameParser, isControl, OPCODE, writeFrame, type FramePiece } from '../swap/websocket-frames.ts';
import { type HitCounts, recordsOf, VeilScanner } from './scanner.ts';
import type { Veil } from './veil.ts';

export interface WebSocketVeilOptions {
  /** Asked at the start of each message, and for control frames: those to look with, one after the other; none for messages that pass as they are. */
  currentVeils(): Promise<readonly Veil[]>;
}

export interface WebSocketVeil {
  /**
   * Takes bytes from the server (and changes them) and gives those for the client. One call at a time: wait for one
   * before the next. Rejects with a `WebSocketFault`, or with what `currentVeils` throws: then the connection must be closed.
   */
  push(bytes: Buffer): Promise<Buffer[]>;
  /** What was veiled on the whole connection so far. */
  veils(): VeilRecord[];
  /** Whether a value could not be opened. */
  impossible(): boolean;
}

const CLOSE_CODE_BYTES = 2;

interface Message {
  readonly opcode: number;
  readonly scanners: readonly VeilScanner[];
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
        frames.push(await this.#takeControl(opcode, payload));
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

  /** What is found is overwritten: a control frame has 125 bytes at most (RFC 6455 section 5.5). A close keeps its code. */
  async #takeControl(opcode: number, payload: Buffer): Promise<Buffer> {
    const from = opcode === OPCODE.close ? CLOSE_CODE_BYTES : 0;
    const text = payload.subarray(from);
    const scanners = isVeilableLength(text.length) ? await this.#openScanners(true) : [];
    const veiled = scanners.reduce((bytes, scanner) => scanner.whole(bytes), text);
    return writeFrame({ opcode, fin: true, isMasked: false, payload: [payload.subarray(0, from), veiled] });
  }

  async #openMessage(opcode: number): Promise<Message> {
    return { opcode, scanners: await this.#openScanners(false), isBegun: false };
  }

  async #openScanners(sameLength: boolean): Promise<readonly VeilScanner[]> {
    const veils = await this.#options.currentVeils();
    if (veils.some((veil) => veil.unopened.length > 0)) this.#impossible = true;
    return veils.map((veil) => new VeilScanner(veil, { sameLength, counts: this.#counts }));
  }

  #take(piece: FramePiece, message: Message): Buffer | null {
    const fin = piece.fin && piece.isLast;
    const held = fin ? 0 : undefined;
    const payload = message.scanners.reduce((bytes, scanner) => scanner.push(bytes, held), piece.payload);
    // A fragment without a byte says nothing; that bytes are held back depends on lengths alone.
    if (!fin && payload.length === 0) return null;
    const opcode = message.isBegun ? OPCODE.continuation : message.opcode;
    message.isBegun = true;
    return writeFrame({ opcode, fin, isMasked: false, payload: [payload] });
  }
}
