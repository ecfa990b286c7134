// One direction of a WebSocket, gone through a bounded number of frames at a time.
import { WEBSOCKET_STEP_FRAMES } from '../../model/limits.ts';
import { FrameParser, type FramePiece } from './websocket-frames.ts';

/** Rewrites one direction of a connection. */
export interface FrameRewriter {
  /** Takes bytes as they came, and changes them. What was taken before must be done. */
  take(bytes: Buffer): void;
  /**
   * Goes on with a few of the frames that were taken, and gives bytes to send on. One call at a time. Throws or rejects with
   * a `WebSocketFault`, or with what the rules throw: then the connection must be closed.
   */
  step(): Buffer[] | Promise<Buffer[]>;
  /** Whether nothing is left of what was taken. */
  readonly isDone: boolean;
}

export interface FrameStepsOptions<Rules> {
  /** Whether the frames are a client's. */
  readonly isMasked: boolean;
  /** Asked once in each step, after the bytes have come, and only when a frame needs it. */
  readonly currentRules: () => Rules | Promise<Rules>;
  readonly needsRules: (piece: FramePiece) => boolean;
  /** The frame that takes its place, if any; `rules` is null for a piece that needs none. */
  readonly rewrite: (piece: FramePiece, rules: Rules | null) => Buffer | null;
}

export class FrameSteps<Rules> implements FrameRewriter {
  readonly #options: FrameStepsOptions<Rules>;
  readonly #parser: FrameParser;
  #pieces: Generator<FramePiece, void> | null = null;
  #rules: { readonly current: Rules } | null = null;

  constructor(options: FrameStepsOptions<Rules>) {
    this.#options = options;
    this.#parser = new FrameParser({ isMasked: options.isMasked });
  }

  get isDone(): boolean {
    return this.#pieces === null;
  }

  take(bytes: Buffer): void {
    this.#pieces = this.#parser.push(bytes);
  }

  step(): Buffer[] | Promise<Buffer[]> {
    this.#rules = null;
    return this.#goOn([], 0);
  }

  #goOn(frames: Buffer[], done: number): Buffer[] | Promise<Buffer[]> {
    const { needsRules, currentRules } = this.#options;
    for (let count = done; count < WEBSOCKET_STEP_FRAMES && this.#pieces !== null; count += 1) {
      const { value: piece } = this.#pieces.next();
      if (piece === undefined) this.#pieces = null;
      else {
        if (this.#rules === null && needsRules(piece)) {
          const current = currentRules();
          if (current instanceof Promise) {
            return current.then((late) => {
              this.#rules = { current: late };
              this.#rewrite(piece, frames);
              return this.#goOn(frames, count + 1);
            });
          }
          this.#rules = { current };
        }
        this.#rewrite(piece, frames);
      }
    }
    return frames;
  }

  #rewrite(piece: FramePiece, frames: Buffer[]): void {
    const frame = this.#options.rewrite(piece, this.#rules === null ? null : this.#rules.current);
    if (frame !== null) frames.push(frame);
  }
}
