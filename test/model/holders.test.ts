// Whoever holds most, found in constant time: the same as counting all of them.
import { test } from 'tap';
import { Holders } from '../../model/holders.ts';

test('the oldest item of whoever holds most is found, whatever was added and taken away', (t) => {
  const holders = new Holders<number>();
  const model = new Map<string, number[]>();
  let seed = 11;
  const next = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return (seed >> 8) % below;
  };
  for (let step = 0; step < 5000; step += 1) {
    const holder = `h${next(6)}`;
    const item = next(40);
    const items = model.get(holder) ?? [];
    if (next(5) < (step % 1000 < 500 ? 3 : 1)) {
      holders.add(holder, item);
      if (!items.includes(item)) items.push(item);
    } else {
      holders.delete(holder, item);
      if (items.includes(item)) items.splice(items.indexOf(item), 1);
    }
    model.set(holder, items);
    const most = Math.max(...[...model.values()].map(({ length }) => length));
    const expected = [...model.values()].filter(({ length }) => length === most).map(([oldest]) => oldest);
    const found = holders.oldestOfMost();
    if (most < 2 ? found !== undefined : !expected.includes(found)) {
      t.fail(`step ${step}: ${String(found)} of ${JSON.stringify([...model])}`);
      break;
    }
  }
  t.end();
});

test('nobody makes room while nobody holds more than one', (t) => {
  const holders = new Holders<string>();
  t.equal(holders.oldestOfMost(), undefined);
  for (const holder of ['a', 'b', 'c']) holders.add(holder, `of ${holder}`);
  t.equal(holders.oldestOfMost(), undefined);
  holders.add('b', 'second');
  t.equal(holders.oldestOfMost(), 'of b');
  holders.delete('nobody', 'nothing');
  holders.delete('b', 'of b');
  t.equal(holders.oldestOfMost(), undefined);
  t.end();
});
