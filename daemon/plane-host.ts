// Where the data plane runs: in this process, or in worker processes that share its port.
import type { AddressInfo } from 'node:net';
import type { MetricsSnapshot } from './metrics.ts';

/** The data plane as the rest of the daemon sees it. */
export interface PlaneHost {
  /** Binds the proxy port; rejects with a StartError. */
  listen(): Promise<AddressInfo>;
  /** Refuses new tunnels and requests. */
  drain(): void;
  /** Resolves when no request is under way. */
  idle(): Promise<void>;
  /** Metrics of other processes. */
  peers(): Promise<readonly MetricsSnapshot[]>;
  /** The CA's roots have changed. */
  caChanged(): void;
  close(): Promise<void>;
}
