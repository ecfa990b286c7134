// What the runtime is told at the start: functions are bound as before, and without what makes them dear.
import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { Socket } from 'node:net';
import { getHeapSpaceStatistics } from 'node:v8';
import t from 'tap';
import { bindWithoutResource, copySocketOptionsPlainly } from '../../daemon/runtime-costs.ts';

type Bind = (this: AsyncResource, fn: typeof describeThis, thisArg: unknown) => typeof describeThis;

function describeThis(this: unknown, ...args: number[]): unknown {
  return [this, ...args];
}

/** What can be observed of a bound function, by the documentation of `AsyncResource`. */
function observe(): unknown {
  const storage = new AsyncLocalStorage<string>();
  const resource = storage.run('outer', () => new AsyncResource('test'));
  const holder = { bound: resource.bind(describeThis) };
  const inner = (read: () => unknown): unknown => storage.run('inner', read);
  return {
    context: inner(resource.bind(() => storage.getStore())),
    contextAfterwards: inner(() => {
      resource.bind(() => undefined)();
      return storage.getStore();
    }),
    ofStatic: inner(storage.run('outer', () => AsyncResource.bind(() => storage.getStore()))),
    ofSnapshot: inner(() => storage.run('third', () => AsyncLocalStorage.snapshot())(() => storage.getStore())),
    thisOfCaller: holder.bound.call('caller', 1, 2),
    thisArgument: (resource.bind as Bind).call(resource, describeThis, 'given')(3, 4),
    thrown: throwsOf(
      resource.bind(() => {
        throw new Error('from within');
      }),
    ),
    notAFunction: throwsOf(() => resource.bind(1 as never)),
  };
}

function throwsOf(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return (error as Error).message;
  }
}

void t.test('a bound function does as before', (t) => {
  const before = observe();
  t.match(before, { context: 'outer', contextAfterwards: 'inner', ofStatic: 'outer', ofSnapshot: 'third' });
  bindWithoutResource();
  t.strictSame(observe(), before);
  t.end();
});

void t.test('it has no property that costs a hidden class each', (t) => {
  const bound = new AsyncResource('test').bind(() => undefined);
  t.notOk(Object.hasOwn(bound, 'asyncResource'));
  const before = Object.getOwnPropertyDescriptor(AsyncResource.prototype, 'bind');
  bindWithoutResource();
  t.strictSame(
    Object.getOwnPropertyDescriptor(AsyncResource.prototype, 'bind'),
    before,
    'and a second call changes nothing',
  );
  t.end();
});

const SOCKETS = 500;

/** Bytes of the old generation, where hidden classes are, for each socket with options; the least, for others go there too. */
function oldBytesPerSocket(): number {
  const oldBytes = (): number =>
    getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? Number.NaN;
  const rounds = Array.from({ length: 10 }, () => {
    const before = oldBytes();
    for (let index = 0; index < SOCKETS; index += 1) void new Socket({ allowHalfOpen: index % 2 === 0 });
    return (oldBytes() - before) / SOCKETS;
  });
  return Math.min(...rounds.filter((bytes) => bytes >= 0));
}

void t.test('a socket leaves no hidden classes behind', (t) => {
  const before = oldBytesPerSocket();
  t.ok(before > 200 || !process.version.startsWith('v20.'), `${before} bytes in this runtime as it is`);
  copySocketOptionsPlainly();
  const after = oldBytesPerSocket();
  t.ok(after < 100, `${after} bytes with it`);
  const socket = new Socket({ allowHalfOpen: true });
  t.equal(socket.allowHalfOpen, true, 'and its options are its own');
  t.end();
});
