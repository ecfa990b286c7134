// A request body that is ready to be sent.
import { Readable } from 'node:stream';
import type { MissRecord, SwapRecord } from '../../model/audit.ts';
import type { BodyFraming, RawHeaders } from '../exchange.ts';
import type { SwapPlan } from './plan.ts';
import type { SwapTally } from './tally.ts';

export interface PreparedBody {
  /**
   * `Content-Length`, `Content-Encoding` and digests agree with `body`. For a body of unknown length there is no
   * `Content-Length`; `framing` says so, and whoever sends it adds what its HTTP version needs.
   */
  readonly headers: RawHeaders;
  readonly framing: BodyFraming;
  /** A stream fails with the error for which the request must be aborted: it must not look complete. */
  readonly body: Buffer | Readable;
  /** What was swapped so far; complete once the body has been read. */
  swaps(): readonly SwapRecord[];
  misses(): readonly MissRecord[];
  /** Gives back memory and disk; once the body has been sent, or won't be. Can be called again. */
  dispose(): void;
}

interface Parts {
  readonly headers: RawHeaders;
  readonly framing: BodyFraming;
  readonly body: Buffer | Readable;
  readonly tally: { swaps(): readonly SwapRecord[]; misses(): readonly MissRecord[] };
  /** The stream was made here, so that it ends here too; the client's own stream does not. */
  readonly ownsStream?: boolean;
  readonly onDispose?: () => void;
}

export function preparedBody(parts: Parts): PreparedBody {
  const { headers, framing, body, tally, ownsStream = true, onDispose } = parts;
  return {
    headers,
    framing,
    body,
    swaps: () => tally.swaps(),
    misses: () => tally.misses(),
    dispose() {
      if (ownsStream && body instanceof Readable) body.destroy();
      onDispose?.();
    },
  };
}

/** No placeholder can be seen in a body that can't be decoded: every one that would have been swapped may be missed. */
export function recordUnsupported(plan: SwapPlan, tally: SwapTally): void {
  for (const entry of plan.entries) if (entry.body === 'swap') tally.missed(entry, 'body', 'unsupported_encoding');
}
