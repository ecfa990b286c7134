// Veils the messages that a server sends over a WebSocket, also when they are fragmented, and its control frames.
import type { VeilRecord } from '../../model/audit.ts';
import { isVeilableLength } from '../../model/veil-budget.ts';
import { isControl, OPCODE, writeFrame, type FramePiece } from '../swap/websocket-frames.ts';
import { type FrameRewriter, FrameSteps } from '../swap/websocket-steps.ts';
import { type HitCounts, recordsOf, VeilScanner } from './scanner.ts';
import type { Veil } from './veil.ts';

export interface WebSocketVeilOptions {
  /**
   * Those to look with, one after the other; none for messages that pass as they are. Asked after bytes have come: what they
   * hold can't be younger than the values of these. The same list says that nothing has changed.
   */
  currentVeils(): readonly Veil[] | Promise<readonly Veil[]>;
}

/** Takes a server's bytes and gives those for the client. */
export interface WebSocketVeil extends FrameRewriter {
  /** What was veiled on the whole connection so far. */
  veils(): VeilRecord[];
  /** Whether a value could not be opened. */
  impossible(): boolean;
}

const CLOSE_CODE_BYTES = 2;
const NO_VEILS: readonly Veil[] = [];

interface Message {
  readonly opcode: number;
  /** In the order in which what comes goes through them. */
  readonly scanners: VeilScanner[];
  /** What the scanners look with. */
  readonly looked: Set<Veil>;
  /** Those that were current when it was last looked at. */
  veils: readonly Veil[];
  /** A frame of it has been sent, so that the next one continues it. */
  isBegun: boolean;
}

/** What a control frame says, without the code of a close. */
function controlText({ opcode, payload }: FramePiece): Buffer {
  return opcode === OPCODE.close ? payload.subarray(CLOSE_CODE_BYTES) : payload;
}

/** The veil of one connection, from the server to the client. */
export function createWebSocketVeil(options: WebSocketVeilOptions): WebSocketVeil {
  return new MessageVeil(options);
}

/**
 * A message that comes at once leaves as one frame. Another leaves as it comes, in fragments of our own (RFC 6455
 * section 5.4), less what is held back until its end; control frames in between keep their place.
 */
class MessageVeil extends FrameSteps<readonly Veil[]> implements WebSocketVeil {
  readonly #options: WebSocketVeilOptions;
  readonly #counts: HitCounts = new Map();
  #message: Message | null = null;
  #impossible = false;

  constructor(options: WebSocketVeilOptions) {
    super(false);
    this.#options = options;
  }

  veils(): VeilRecord[] {
    return recordsOf(this.#counts);
  }

  impossible(): boolean {
    return this.#impossible;
  }

  protected override currentRules(): readonly Veil[] | Promise<readonly Veil[]> {
    return this.#options.currentVeils();
  }

  protected override needsRules(piece: FramePiece): boolean {
    return !isControl(piece.opcode) || isVeilableLength(controlText(piece).length);
  }

  protected override rewrite(piece: FramePiece, current: readonly Veil[] | null): Buffer | null {
    const veils = current ?? NO_VEILS;
    return isControl(piece.opcode) ? this.#rewriteControl(piece, veils) : this.#rewriteData(piece, veils);
  }

  /** What is found is overwritten: a control frame has 125 bytes at most (RFC 6455 section 5.5). A close keeps its code. */
  #rewriteControl(piece: FramePiece, veils: readonly Veil[]): Buffer {
    const text = controlText(piece);
    const code = piece.payload.subarray(0, piece.payload.length - text.length);
    const scanners = isVeilableLength(text.length) ? this.#openScanners(veils, true) : [];
    const veiled = scanners.reduce((bytes, scanner) => scanner.whole(bytes), text);
    return writeFrame({ opcode: piece.opcode, fin: true, isMasked: false, payload: [code, veiled] });
  }

  #rewriteData(piece: FramePiece, veils: readonly Veil[]): Buffer | null {
    if (piece.isFirst && piece.opcode !== OPCODE.continuation) {
      this.#message = { opcode: piece.opcode, scanners: [], looked: new Set(), veils: [], isBegun: false };
      if (piece.fin && piece.isLast && !isVeilableLength(piece.payload.length)) return this.#take(piece, this.#message);
    }
    const message = this.#message as Message;
    if (message.veils !== veils) this.#lookWith(veils, message);
    return this.#take(piece, message);
  }

  /** A value that came into force in the middle of a message is looked for in the rest of it. */
  #lookWith(veils: readonly Veil[], message: Message): void {
    message.veils = veils;
    const fresh = veils.filter((veil) => !message.looked.has(veil));
    for (const veil of fresh) message.looked.add(veil);
    message.scanners.push(...this.#openScanners(fresh, false));
  }

  #openScanners(veils: readonly Veil[], sameLength: boolean): readonly VeilScanner[] {
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
