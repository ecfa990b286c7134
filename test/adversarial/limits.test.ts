// Attacks by names that change, and by wearing the data plane out.
import { runAttacks } from '../support/adversary.ts';
import { openPlaneScene } from '../support/adversary-plane.ts';
import { DNS } from './attacks/dns.ts';
import { EXHAUSTION, SLOWNESS } from './attacks/exhaustion.ts';

runAttacks(
  DNS,
  () => openPlaneScene(),
  async (t, scene) => {
    t.equal(scene.inwardCount(), 0, 'nobody came to the inner address');
  },
);
runAttacks(EXHAUSTION, () => openPlaneScene());
runAttacks(SLOWNESS, () => openPlaneScene(2000));
