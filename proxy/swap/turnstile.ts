// Lets a bounded number of jobs run at once; the others wait in line.

export interface Turnstile {
  /** Calls `start` at once when there is room, else when it is its turn. */
  enter(start: () => void): void;
  /** Gives a place back; once for each `start` that was called. */
  leave(): void;
  isWaitedFor(): boolean;
}

export function createTurnstile(jobsMax: number): Turnstile {
  const waiting: (() => void)[] = [];
  let jobs = 0;
  return {
    enter(start) {
      if (jobs >= jobsMax) {
        waiting.push(start);
        return;
      }
      jobs += 1;
      start();
    },
    leave() {
      const next = waiting.shift();
      if (next === undefined) jobs -= 1;
      else next();
    },
    isWaitedFor: () => waiting.length > 0,
  };
}
