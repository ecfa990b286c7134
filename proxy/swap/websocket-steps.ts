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

export abstract class FrameSteps<Rules> implements FrameRewriter {
  readonly #parser: FrameParser;
  #pieces: Generator<FramePiece, void> | null = null;
  #rules: { readonly current: Rules } | null = null;

  /** `isMasked` tells a client's frames. */
  constructor(isMasked: boolean) {
    this.#parser = new FrameParser({ isMasked });
  }

  /** Asked once in each step, after the bytes have come, and only when a frame needs it. */
  protected abstract currentRules(): Rules | Promise<Rules>;
  protected abstract needsRules(piece: FramePiece): boolean;
  /** The frame that takes its place, if any; `rules` is null for a piece that needs none. */
  protected abstract rewrite(piece: FramePiece, rules: Rules | null): Buffer | null;

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
    for (let count = done; count < WEBSOCKET_STEP_FRAMES && this.#pieces !== null; count += 1) {
      const { value: piece } = this.#pieces.next();
      if (piece === undefined) this.#pieces = null;
      else {
        if (this.#rules === null && this.needsRules(piece)) {
          const current = this.currentRules();
          if (current instanceof Promise) {
            return current.then((late) => {
              this.#rules = { current: late };
              this.#add(piece, frames);
              return this.#goOn(frames, count + 1);
            });
          }
          this.#rules = { current };
        }
        this.#add(piece, frames);
      }
    }
    return frames;
  }

  #add(piece: FramePiece, frames: Buffer[]): void {
    const frame = this.rewrite(piece, this.#rules === null ? null : this.#rules.current);
    if (frame !== null) frames.push(frame);
  }
}
