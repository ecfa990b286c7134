// The attacks are many, each has a name of its own, and every class has some.
import { test } from 'tap';
import { ADMIN } from './attacks/admin.ts';
import { DESTINATION, PORTS } from './attacks/destination.ts';
import { DNS } from './attacks/dns.ts';
import { EXHAUSTION, SLOWNESS } from './attacks/exhaustion.ts';
import { FRAMING } from './attacks/framing.ts';
import { IDENTITY } from './attacks/identity.ts';
import { STORE } from './attacks/store.ts';
import { SWAP } from './attacks/swap.ts';
import { TLS } from './attacks/tls.ts';

const CLASSES = [IDENTITY, DESTINATION, PORTS, FRAMING, DNS, TLS, ADMIN, STORE, SWAP, EXHAUSTION, SLOWNESS];

test('there are at least 80 attacks, each named once in its class', (t) => {
  const counts = CLASSES.map(({ name, cases }) => ({ name, count: cases.length }));
  const total = counts.reduce((sum, { count }) => sum + count, 0);
  t.ok(
    total >= 80,
    `${String(total)} attacks: ${counts.map(({ name, count }) => `${name} ${String(count)}`).join(', ')}`,
  );
  for (const { name, cases } of CLASSES) {
    t.equal(new Set(cases.map((each) => each.name)).size, cases.length, name);
    t.ok(cases.length >= 4, name);
  }
  t.end();
});
