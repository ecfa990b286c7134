// Counts failed logins per address, so that tokens can't be guessed at speed.
import { isIPv6 } from 'node:net';
import { ADMIN_FAILED_LOGINS_PER_MINUTE_MAX } from '../model/limits.ts';
import type { Clock } from '../model/ports.ts';

const WINDOW_MS = 60_000;
const ADDRESSES_MAX = 10_000;

interface Failures {
  count: number;
  readonly windowEndsAt: number;
}

/** Failed logins of the last minute by address; bounded, the oldest address is forgotten first. */
export interface LoginLimiter {
  /** Notes a failed login; returns 0 while the address is below the limit, else the seconds until it is heard again. */
  noteFailure(address: string): number;
}

// One IPv6 customer owns a whole /64.
function groupOf(address: string): string {
  if (!isIPv6(address) || address.startsWith('::ffff:')) return address;
  const [left = '', right = ''] = address.split('::');
  const head = left === '' ? [] : left.split(':');
  const tail = right === '' ? [] : right.split(':');
  const zeros = address.includes('::') ? Array.from({ length: 8 - head.length - tail.length }, () => '0') : [];
  return [...head, ...zeros, ...tail].slice(0, 4).join(':');
}

export function createLoginLimiter(clock: Clock): LoginLimiter {
  const failures = new Map<string, Failures>();
  return {
    noteFailure(address) {
      const now = clock.now();
      const group = groupOf(address);
      let entry = failures.get(group);
      // A window that has not begun is one of a clock that was set back since.
      const isOpen = entry !== undefined && now < entry.windowEndsAt && now >= entry.windowEndsAt - WINDOW_MS;
      if (entry === undefined || !isOpen) {
        failures.delete(group);
        entry = { count: 0, windowEndsAt: now + WINDOW_MS };
        failures.set(group, entry);
        const [oldest] = failures.keys();
        if (failures.size > ADDRESSES_MAX && oldest !== undefined) failures.delete(oldest);
      }
      entry.count += 1;
      if (entry.count <= ADMIN_FAILED_LOGINS_PER_MINUTE_MAX) return 0;
      return Math.ceil((entry.windowEndsAt - now) / 1000);
    },
  };
}
