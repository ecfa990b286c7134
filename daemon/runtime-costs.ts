// What the runtime is told before anything is served, because a proxy's way of working makes its defaults dear.
import { AsyncResource } from 'node:async_hooks';
import { Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';

/** V8 gathers what it learns of a place in the code only after some calls. */
const CALLS_UNTIL_LEARNT = 100;
/** It forgets that of code that rests for some full collections. */
const TAUGHT_EVERY_MS = 10_000;

type AnyFunction = (this: unknown, ...args: never[]) => unknown;
type Bind = (this: AsyncResource, fn: AnyFunction, thisArg?: unknown) => AnyFunction;

/**
 * Keeps new objects in the young generation. V8 remembers which places in the code make objects that live long, and then
 * puts all of theirs into the old generation. Whenever requests are slow compared with the young generation's turnover,
 * every object of a request looks like that, and from then on each one that has died keeps its neighbours alive until
 * the next full collection: half of the time went into the collector.
 */
function keepObjectsYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/**
 * Has the options of a new socket copied property by property. Node.js copies them by object spread and adds some to the
 * copy. The V8 of Node.js 20 makes hidden classes for each single copy that it then adds to: a socket costs 11 µs in
 * place of 1, every look at its options misses the inline caches, and the classes stay, with what refers to them, until
 * the next full collection. Options with a getter can't be copied in that way, and where V8 has met some, it does not try
 * again. Where copies are made in another way, this changes nothing. No socket that is made here has a handle.
 */
export function copySocketOptionsPlainly(): void {
  const teach = (): void => {
    void new Socket({
      get allowHalfOpen() {
        return false;
      },
    });
  };
  for (let call = 0; call < CALLS_UNTIL_LEARNT; call += 1) teach();
  setInterval(teach, TAUGHT_EVERY_MS).unref();
}

/**
 * Has functions bound to their asynchronous context without the property `asyncResource`, which Node.js deprecates
 * (DEP0172) and still adds to each in version 20. It takes two closures with a prototype of their own, of which V8 makes
 * hidden classes that outlive the request. The runtime's HTTP/2 client binds a function for each request, and that
 * alone was half of what a request costs there. Does nothing where the property isn't added. All that is documented of
 * `AsyncResource.bind` stays but the bound function's `length`.
 */
export function bindWithoutResource(): void {
  if (!('asyncResource' in new AsyncResource('probe').bind(() => undefined))) return;
  const prototype = AsyncResource.prototype as { bind: Bind };
  const { bind } = prototype;
  prototype.bind = function bindPlainly(this: AsyncResource, fn, thisArg) {
    // The runtime knows best how to refuse it.
    if (typeof fn !== 'function') return bind.call(this, fn, thisArg);
    const runInAsyncScope = this.runInAsyncScope.bind(this) as (...args: unknown[]) => unknown;
    if (thisArg !== undefined) return (...args) => runInAsyncScope(fn, thisArg, ...args);
    return function bound(this: unknown, ...args) {
      return runInAsyncScope(fn, this, ...args);
    };
  };
}

/** All of it. To be called before anything is served. */
export function tuneRuntime(): void {
  keepObjectsYoung();
  copySocketOptionsPlainly();
  bindWithoutResource();
}
