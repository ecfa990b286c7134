// How the process is run: settings of V8 and of Node's streams that a proxy's way of working needs.
import { setDefaultHighWaterMark } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { STREAM_BUFFER_BYTES } from '../model/limits.ts';

/**
 * Keeps new objects in the young generation. V8 remembers which places in the code make objects that live long, and then
 * puts all of theirs into the old generation. Whenever requests are slow compared with the young generation's turnover,
 * every object of a request looks like that, and from then on each one that has died keeps its neighbours alive until
 * the next full collection: half of the time went into the collector. To be called before anything is served.
 */
export function keepObjectsYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/**
 * Node.js 20 asks a source to pause after 16 KiB, which one TLS record fills: each of a long body's costs two turns of
 * the event loop and a change of what it waits for. Later versions have the same number as here. To be called before
 * any socket is made.
 */
export function widenStreams(): void {
  setDefaultHighWaterMark(false, STREAM_BUFFER_BYTES);
}
