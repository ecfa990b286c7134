// The share of the body memory that one response takes while it is read whole.
import type { BodyResources, Lease } from './swap/body-resources.ts';
import type { MemoryReservation } from './veil/response-veil.ts';

/** Reserves from the budget of a session. What was reserved is released in any order, each with its own size. */
export function createResponseMemory(bodies: BodyResources, sessionId: string): MemoryReservation {
  let held: { bytes: number; lease: Lease }[] | null = null;
  return {
    reserve(bytes) {
      const lease = bodies.reserveMemory(sessionId, bytes);
      if (lease !== null) (held ??= []).push({ bytes, lease });
      return lease !== null;
    },
    release(bytes) {
      const index = held?.findIndex((share) => share.bytes === bytes) ?? -1;
      if (index >= 0) held?.splice(index, 1)[0]?.lease.release();
    },
  };
}
