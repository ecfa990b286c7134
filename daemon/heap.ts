// How the heap of the process is run: one setting of V8 that a proxy's way of allocating needs.
import { setFlagsFromString } from 'node:v8';

/**
 * Keeps new objects in the young generation. V8 remembers which places in the code make objects that live long, and then
 * puts all of theirs into the old generation. Whenever requests are slow compared with the young generation's turnover,
 * every object of a request looks like that, and from then on each one that has died keeps its neighbours alive until
 * the next full collection: half of the time went into the collector. To be called before anything is served.
 */
export function keepObjectsYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}
