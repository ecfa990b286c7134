// SealedItems in memory, as the store behaves: it copies bytes and hands out new objects.
import type { SealedItems } from '../../model/ports.ts';
import { Secret } from '../../model/secret.ts';

export interface MemorySealedItems extends SealedItems {
  /** The bytes themselves, for tests that look at them or damage them. */
  readonly bytes: Map<string, Buffer>;
}

export function createMemorySealedItems(): MemorySealedItems {
  const bytes = new Map<string, Buffer>();
  return {
    bytes,
    get: async (name) => {
      const stored = bytes.get(name);
      return stored === undefined ? null : Secret.fromBytes(Buffer.from(stored));
    },
    put: async (name, value) => {
      bytes.set(name, Buffer.from(value.reveal()));
    },
    delete: async (name) => {
      bytes.delete(name);
    },
    list: async (prefix) => [...bytes.keys()].filter((name) => name.startsWith(prefix)).sort(),
  };
}
