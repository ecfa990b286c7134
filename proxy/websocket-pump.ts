// One direction of a WebSocket on its way: a few frames at a time, with backpressure, and no more than its session's share.
import type { Duplex } from 'node:stream';
import { type Work, workInTurns } from './fair-turns.ts';
import type { FrameRewriter } from './swap/websocket-steps.ts';

export interface FramePumpOptions {
  readonly source: Duplex;
  readonly target: Duplex;
  /** Null passes bytes on as they are. */
  readonly rewriter: FrameRewriter | null;
  readonly sessionId: string;
}

/**
 * Resolves with the number of bytes that have come, once the source has ended in order and the target has been told, or the
 * target is gone. Rejects with the rewriter's error or the source's, and leaves both connections open.
 */
export function pumpFrames(options: FramePumpOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    new FramePump(options, { resolve, reject });
  });
}

interface Outcome {
  resolve(bytes: number): void;
  reject(error: unknown): void;
}

class FramePump implements Work {
  readonly #options: FramePumpOptions;
  readonly #outcome: Outcome;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** Something of what has come is under way, or waits for its turn or for the target. */
  #isBusy = false;
  #hasEnded = false;
  #isOver = false;
  readonly #onData = (chunk: Buffer): void => {
    this.#bytes += chunk.length;
    this.#chunks.push(chunk);
    if (!this.#isBusy) this.#goOn();
    if (this.#isBusy) this.#options.source.pause();
  };
  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    if (!this.#isBusy) this.#rest();
  };
  readonly #onError = (error: Error): void => this.#fail(error);
  readonly #onClose = (): void => {
    if (this.#hasEnded) return;
    this.#fail(Object.assign(new Error('The connection closed.'), { code: 'ERR_STREAM_PREMATURE_CLOSE' }));
  };
  readonly #onDrain = (): void => {
    this.#unblock();
    this.#goOn();
  };

  constructor(options: FramePumpOptions, outcome: Outcome) {
    this.#options = options;
    this.#outcome = outcome;
    const { source } = options;
    source.on('data', this.#onData);
    source.on('end', this.#onEnd);
    source.on('error', this.#onError);
    source.on('close', this.#onClose);
    if (source.destroyed) this.#onClose();
    else source.resume();
  }

  work(): boolean {
    if (this.#isOver) return false;
    try {
      const frames = this.#step();
      if (frames instanceof Promise) {
        frames.then(
          (late) => {
            if (this.#write(late)) this.#goOn();
          },
          (error: unknown) => this.#fail(error),
        );
        return false;
      }
      if (!this.#write(frames)) return false;
    } catch (error) {
      this.#fail(error);
      return false;
    }
    if (this.#hasWork) return true;
    this.#rest();
    return false;
  }

  get #hasWork(): boolean {
    return this.#chunks.length > 0 || this.#options.rewriter?.isDone === false;
  }

  #goOn(): void {
    if (this.#isOver) return;
    if (!this.#hasWork) return this.#rest();
    this.#isBusy = true;
    workInTurns(this.#options.sessionId, this);
  }

  #step(): Buffer[] | Promise<Buffer[]> {
    const { rewriter } = this.#options;
    if (rewriter === null) return this.#chunks.splice(0);
    if (rewriter.isDone) rewriter.take(this.#chunks.shift() as Buffer);
    return rewriter.step();
  }

  /** False when nothing more can be written now. */
  #write(frames: readonly Buffer[]): boolean {
    if (this.#isOver) return false;
    if (frames.length === 0) return true;
    const { target } = this.#options;
    if (target.destroyed) {
      this.#finish();
      return false;
    }
    // Small frames leave together: each write of its own would be a record of TLS.
    if (target.write(frames.length === 1 ? (frames[0] as Buffer) : Buffer.concat(frames))) return true;
    target.on('drain', this.#onDrain);
    target.on('close', this.#onDrain);
    return false;
  }

  #unblock(): void {
    const { target } = this.#options;
    target.off('drain', this.#onDrain);
    target.off('close', this.#onDrain);
  }

  /** All that has come is done. */
  #rest(): void {
    this.#isBusy = false;
    const { source, target } = this.#options;
    if (this.#hasEnded) {
      target.end();
      this.#finish();
    } else if (source.isPaused()) source.resume();
  }

  #leave(): void {
    this.#isOver = true;
    this.#unblock();
    const { source } = this.#options;
    source.off('data', this.#onData);
    source.off('end', this.#onEnd);
    source.off('error', this.#onError);
    source.off('close', this.#onClose);
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#leave();
    this.#outcome.resolve(this.#bytes);
  }

  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#leave();
    this.#outcome.reject(error);
  }
}
