// The end of a turn of the event loop: requests that have arrived in it are begun together, and what was written in it
// leaves together.

/** Something that holds back what it has written. */
export interface Holder {
  /** Lets it go. */
  release(): void;
}

const works: (() => void)[] = [];
const holders: Holder[] = [];
let isDue = false;

function schedule(): void {
  if (isDue) return;
  isDue = true;
  // The check phase comes right after all that was ready to be read.
  setImmediate(endTurn);
}

/** Runs at the end of the turn; must not throw. */
export function atTurnEnd(work: () => void): void {
  works.push(work);
  schedule();
}

/**
 * Releases a holder at the end of the turn, after the work that is due then. A peer that reads many of our connections is
 * so woken once, not once for each: with small requests the waking is a good part of the cost. Where one request is under
 * way there is nothing to wait for.
 */
export function holdUntilTurnEnds(holder: Holder): void {
  holders.push(holder);
  schedule();
}

function endTurn(): void {
  // Both lists may grow meanwhile: what a work writes leaves in this turn too.
  for (let index = 0; index < works.length; index += 1) works[index]?.();
  works.length = 0;
  for (let index = 0; index < holders.length; index += 1) holders[index]?.release();
  holders.length = 0;
  isDue = false;
}
