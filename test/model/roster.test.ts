// What is there now: every item once, whatever left in between and in whatever order.
import t from 'tap';
import { Roster, type Seat } from '../../model/roster.ts';

void t.test('items come and go in any order', (t) => {
  const roster = new Roster<number>();
  const seats = new Map<number, Seat<number>>();
  let state = 7;
  for (let step = 0; step < 2000; step += 1) {
    state = (state * 48_271) % 2_147_483_647;
    const [leaving] = [...seats.keys()].slice(state % (seats.size + 1));
    if (leaving !== undefined && state % 2 === 0) {
      t.equal(roster.remove(seats.get(leaving) as Seat<number>), true);
      seats.delete(leaving);
    } else seats.set(step, roster.add(step));
    if (roster.size !== seats.size) t.fail(`${roster.size} for ${seats.size} at ${step}`);
  }
  t.strictSame(
    roster.items().sort((a, b) => a - b),
    [...seats.keys()].sort((a, b) => a - b),
  );
  t.ok(seats.size > 10, 'there was something to compare');
  for (const seat of seats.values()) roster.remove(seat);
  t.strictSame([roster.size, roster.items()], [0, []]);
  t.end();
});

void t.test('a seat is given up once', (t) => {
  const roster = new Roster<string>();
  const [first, second] = [roster.add('first'), roster.add('second')];
  t.strictSame([roster.remove(first), roster.remove(first)], [true, false]);
  t.strictSame(roster.items(), ['second'], 'and takes nobody else with it');
  t.strictSame([roster.remove(second), roster.remove(second)], [true, false]);
  t.end();
});
