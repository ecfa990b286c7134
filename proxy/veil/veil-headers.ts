// Veils header and trailer fields, and the reason phrase of a response.
import type { RawHeaders } from '../exchange.ts';
import { type HitCounts, VeilScanner } from './scanner.ts';
import type { Veil } from './veil.ts';

/** Fields that say where a message ends and how its connection goes on; no value of theirs is an echo. */
const FRAMING_NAMES: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'keep-alive',
]);

/** All names and values are put here, so that one search serves them; large blocks get room of their own. */
const SCRATCH = Buffer.alloc(16 * 1024);
const SEPARATOR = '\n';

/** The part of a head that can hold a value. */
export interface VeilableHead {
  readonly reason: string;
  readonly headers: RawHeaders;
}

/** Whether any name or value, or the text beside them, holds one. All are searched together: most heads hold nothing. */
function isHit(veil: Veil, headers: RawHeaders, beside: string): boolean {
  let all = beside;
  for (let index = 0; index < headers.length; index += 1) all += SEPARATOR + (headers[index] as string);
  const room = all.length <= SCRATCH.length ? SCRATCH : Buffer.alloc(all.length);
  const length = room.write(all, 'latin1');
  const found = veil.find(room.subarray(0, length)) !== null;
  if (found) room.fill(0, 0, length);
  return found;
}

/**
 * The fields with all occurrences in their values veiled, and without those whose names hold one; the same list when
 * there was none.
 */
export function veilHeaders(veil: Veil, headers: RawHeaders, counts: HitCounts): RawHeaders {
  return isHit(veil, headers, '') ? veilEach(veil, headers, counts) : headers;
}

/** The head with its fields and its reason phrase veiled; the same object when nothing was found. */
export function veilHead<T extends VeilableHead>(veil: Veil, head: T, counts: HitCounts): T {
  if (!isHit(veil, head.headers, head.reason)) return head;
  const headers = veilHeaders(veil, head.headers, counts);
  const [, reason] = veilHeaders(veil, ['', head.reason], counts) as [string, string];
  return { ...head, headers, reason };
}

function veilEach(veil: Veil, headers: RawHeaders, counts: HitCounts): RawHeaders {
  const scanner = new VeilScanner(veil, { sameLength: false, counts });
  const veiled: string[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const [name, value] = [headers[index] as string, headers[index + 1] as string];
    const isFraming = FRAMING_NAMES.has(name.toLowerCase());
    const before = scanner.hits;
    if (!isFraming) scanner.whole(Buffer.from(name, 'latin1'));
    // A name with a placeholder in it would be another field.
    if (scanner.hits > before) continue;
    veiled.push(name, isFraming ? value : scanner.whole(Buffer.from(value, 'latin1')).toString('latin1'));
  }
  return veiled;
}
