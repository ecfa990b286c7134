// Tunnels of all workers: limits, workers that die, and messages that are read in any order around a death.
import fc from 'fast-check';
import { test } from 'tap';
import { TunnelCounts } from '../../daemon/tunnel-counts.ts';
import { holds } from '../support/property.ts';

test('limits hold for all workers together, and what is left or forgotten is given back', (t) => {
  const counts = new TunnelCounts({ tunnelsMax: 3, tunnelsPerSessionMax: 2 });
  counts.join(1);
  counts.join(2);
  t.ok(counts.enter(1, 'a') && counts.enter(2, 'a'));
  t.notOk(counts.enter(1, 'a'), "the session's limit");
  t.ok(counts.enter(1, 'b'));
  t.notOk(counts.enter(2, 'c'), "the daemon's limit");
  counts.leave(2, 'b');
  t.equal(counts.count, 3, 'a worker gives back what it has, and nothing else');
  counts.leave(1, 'b');
  t.ok(counts.enter(2, 'c'));
  counts.forget(2);
  t.equal(counts.count, 1);
  t.ok(counts.enter(1, 'a'), 'what the other worker had is free');
  t.end();
});

test('what a dead worker asked for is not counted, however late it is read', (t) => {
  const counts = new TunnelCounts({ tunnelsMax: 10, tunnelsPerSessionMax: 1 });
  counts.join(1);
  counts.forget(1);
  t.notOk(counts.enter(1, 'a'));
  counts.leave(1, 'a');
  t.equal(counts.count, 0);
  counts.join(2);
  t.ok(counts.enter(2, 'a'), 'the session has its whole limit');
  t.end();
});

test('once every worker has died nothing is counted, whatever came before and after', (t) => {
  const worker = fc.integer({ min: 1, max: 3 });
  const step = fc.record({
    kind: fc.constantFrom('enter' as const, 'leave' as const, 'forget' as const),
    worker,
    session: fc.constantFrom('a', 'b'),
  });
  const property = fc.property(
    fc.array(step, { maxLength: 60 }),
    fc.array(step, { maxLength: 20 }),
    (before, after) => {
      const limits = { tunnelsMax: 8, tunnelsPerSessionMax: 5 };
      const counts = new TunnelCounts(limits);
      const play = (steps: typeof before): void => {
        for (const { kind, worker, session } of steps) {
          if (kind === 'forget') counts.forget(worker);
          else counts[kind](worker, session);
        }
      };
      for (const each of [1, 2, 3]) counts.join(each);
      play(before);
      const isWithin = counts.count >= 0 && counts.count <= limits.tunnelsMax;
      for (const each of [1, 2, 3]) counts.forget(each);
      play(after);
      const isEmpty = counts.count === 0;
      counts.join(4);
      const free = Array.from({ length: 6 }, () => counts.enter(4, 'a')).filter(Boolean).length;
      return isWithin && isEmpty && free === limits.tunnelsPerSessionMax;
    },
  );
  holds(t, property);
  t.end();
});
