// Fair shares of the event loop: bytes that hold very many small messages or chunks are gone through over several turns, so
// that one session's floods leave time for the others.
import { TURN_SHARE_MIN_US, TURN_SHARE_US } from '../model/limits.ts';

const PIECE_BYTES_FIRST = 4096;
const PIECE_BYTES_MIN = 512;
const PIECE_BYTES_MAX = 64 * 1024;
const PIECE_MS_MAX = 0.5;

/** Something that is gone through in pieces. */
export interface Work {
  /** Does a small piece; true when more is left to do at once. Must not throw. */
  work(): boolean;
}

interface Share {
  /** Milliseconds of this turn that have been used. */
  usedMs: number;
  readonly waiting: Work[];
}

/** Sessions that have used a part of this turn, or have work for the next one. */
const shares = new Map<string, Share>();
/** What each of them may use. */
let shareMs = TURN_SHARE_US / 1000;
let isDue = false;

function shareOf(sessionId: string): Share {
  let share = shares.get(sessionId);
  if (share === undefined) {
    share = { usedMs: 0, waiting: [] };
    shares.set(sessionId, share);
  }
  if (!isDue) {
    isDue = true;
    setImmediate(nextTurn);
  }
  return share;
}

/** Whether a session's work may be done in this turn: it has time left, and nothing of it waits. */
export function hasTurn(sessionId: string): boolean {
  const share = shares.get(sessionId);
  return share === undefined || (share.waiting.length === 0 && share.usedMs < shareMs);
}

/** Counts time, of `performance.now()`, that a session's work has taken since a moment. */
export function chargeTurn(sessionId: string, sinceMs: number): void {
  shareOf(sessionId).usedMs += performance.now() - sinceMs;
}

/** Does the work piece by piece, from the next turn on, in line behind what else of its session waits. */
export function waitForTurn(sessionId: string, work: Work): void {
  shareOf(sessionId).waiting.push(work);
}

/** Does the work now while the session has time in this turn, and the rest of it later. */
export function workInTurns(sessionId: string, work: Work): void {
  while (hasTurn(sessionId)) {
    const startedAt = performance.now();
    const hasMore = work.work();
    chargeTurn(sessionId, startedAt);
    if (!hasMore) return;
  }
  waitForTurn(sessionId, work);
}

function nextTurn(): void {
  isDue = false;
  let waiting = 0;
  for (const [sessionId, share] of shares) {
    share.usedMs = 0;
    if (share.waiting.length === 0) shares.delete(sessionId);
    else waiting += 1;
  }
  // Many sessions that flood share what one would have.
  shareMs = Math.max(TURN_SHARE_MIN_US, TURN_SHARE_US / Math.max(1, waiting)) / 1000;
  for (const [sessionId, share] of shares) {
    const { waiting: works } = share;
    while (works.length > 0 && share.usedMs < shareMs) {
      const startedAt = performance.now();
      const work = works.shift() as Work;
      if (work.work()) works.push(work);
      chargeTurn(sessionId, startedAt);
    }
  }
  if (shares.size > 0 && !isDue) {
    isDue = true;
    setImmediate(nextTurn);
  }
}

/** How many bytes to go through at once, when nobody knows how many small parts they hold. */
export class PieceSize {
  bytes = PIECE_BYTES_FIRST;

  /** After a piece that took so long. */
  adapt(sinceMs: number): void {
    const elapsedMs = performance.now() - sinceMs;
    if (elapsedMs > PIECE_MS_MAX) this.bytes = Math.max(PIECE_BYTES_MIN, this.bytes / 2);
    else if (elapsedMs < PIECE_MS_MAX / 4) this.bytes = Math.min(PIECE_BYTES_MAX, this.bytes * 2);
  }
}
