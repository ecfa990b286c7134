// What the primary process and its workers say to each other. Nothing of it is a secret but the keys at the start.
import type { AddressInfo } from 'node:net';
import type { MetricsSnapshot } from './metrics.ts';

/** From a worker to the primary. */
export type WorkerMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'listening'; readonly address: AddressInfo }
  | { readonly kind: 'failed'; readonly message: string; readonly isStartError: boolean }
  | { readonly kind: 'metrics'; readonly id: number; readonly snapshot: MetricsSnapshot }
  | { readonly kind: 'idle' }
  | { readonly kind: 'enter'; readonly id: number; readonly sessionId: string }
  | { readonly kind: 'leave'; readonly sessionId: string }
  | { readonly kind: 'denied'; readonly sessionId: string }
  | { readonly kind: 'served'; readonly sessionId: string };

/** From the primary to a worker. */
export type PrimaryMessage =
  | {
      readonly kind: 'start';
      readonly adminAddress: AddressInfo;
      /** Shared, so that a client can resume its TLS session at another worker. */
      readonly ticketKeys: Buffer;
      /** As they were configured, bytes; the environment of a worker has none. */
      readonly masterKey: Buffer | null;
      readonly masterKeysPrevious: readonly Buffer[] | null;
    }
  | { readonly kind: 'metrics'; readonly id: number }
  | { readonly kind: 'ca-changed' }
  | { readonly kind: 'drain' }
  | { readonly kind: 'stop' }
  | { readonly kind: 'entered'; readonly id: number; readonly isAdmitted: boolean };
