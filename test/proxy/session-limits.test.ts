import { test } from 'tap';
import type { KeyveilError } from '../../model/errors.ts';
import { SessionLimits } from '../../proxy/session-limits.ts';
import { createManualClock } from '../support/manual-clock.ts';

const IN_FLIGHT_MAX = 3;
/** Unused entries are swept out whenever there are so many. */
const SWEEP_EVERY = 1024;

function limitsOf(requestsPerSecondMax: number | null = null) {
  const clock = createManualClock(1_700_000_000_000);
  return { clock, limits: new SessionLimits({ clock, requestsInFlightMax: IN_FLIGHT_MAX, requestsPerSecondMax }) };
}

function tryToEnter(limits: SessionLimits, id: string): boolean {
  try {
    limits.enter(id);
    return true;
  } catch (error) {
    if ((error as KeyveilError).code !== 'too_many_requests') throw error;
    return false;
  }
}

/** How many of ten requests at once are let in; they have ended when this returns. */
function admittedOf(limits: SessionLimits, id: string): number {
  const admitted = Array.from({ length: 10 }, () => tryToEnter(limits, id)).filter(Boolean).length;
  for (let index = 0; index < admitted; index += 1) limits.leave(id);
  return admitted;
}

test('the limit holds for each session, however many have come and gone before', (t) => {
  const { limits } = limitsOf();
  const wrong: string[] = [];
  for (let index = 0; index < 3 * SWEEP_EVERY; index += 1) {
    for (let again = 0; again < 2; again += 1) {
      const admitted = admittedOf(limits, `session ${index}`);
      if (admitted !== IN_FLIGHT_MAX) wrong.push(`session ${index}: ${admitted}`);
    }
  }
  t.same(wrong, []);
  t.end();
});

test('the limit holds for each session while others have requests under way', (t) => {
  for (const others of [SWEEP_EVERY - 2, SWEEP_EVERY - 1, SWEEP_EVERY, 2 * SWEEP_EVERY - 1]) {
    const { limits } = limitsOf();
    for (let index = 0; index < others; index += 1) limits.enter(`other ${index}`);
    const ids = ['first', 'second', 'third'];
    t.same(
      ids.map((id) => [admittedOf(limits, id), admittedOf(limits, id)]),
      ids.map(() => [IN_FLIGHT_MAX, IN_FLIGHT_MAX]),
      `${others} others`,
    );
    t.equal(admittedOf(limits, 'other 0'), IN_FLIGHT_MAX - 1, 'what was under way still counts');
  }
  t.end();
});

test('a rate is kept while others come and go, and refills with time', (t) => {
  const { limits, clock } = limitsOf(5);
  const once = (id: string): boolean => {
    const isIn = tryToEnter(limits, id);
    if (isIn) limits.leave(id);
    return isIn;
  };
  const burst = (): number => Array.from({ length: 8 }, () => once('watched')).filter(Boolean).length;
  t.equal(burst(), 5);
  for (let index = 0; index < 2 * SWEEP_EVERY; index += 1) once(`other ${index}`);
  t.equal(burst(), 0, 'it is not forgotten within the second');
  clock.advance(400);
  t.equal(burst(), 2);
  clock.advance(60_000);
  t.equal(burst(), 5);
  t.end();
});
