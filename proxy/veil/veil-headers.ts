// Veils the values of header and trailer fields, and the reason phrase of a response.
import type { RawHeaders, ResponseHead } from '../exchange.ts';
import { type HitCounts, VeilScanner } from './scanner.ts';
import type { Veil } from './veil.ts';

/** Fields that say where a message ends and how its connection goes on; no value of theirs is an echo. */
const FRAMING_NAMES: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'te',
  'trailer',
  'keep-alive',
]);

/** All values are put here, so that one search serves them; large blocks get room of their own. */
const SCRATCH = Buffer.alloc(16 * 1024);
const SEPARATOR = '\n';

/** The fields with all occurrences in their values veiled; the same list when there was none. */
export function veilHeaders(veil: Veil, headers: RawHeaders, counts: HitCounts): RawHeaders {
  let all = '';
  for (let index = 1; index < headers.length; index += 2) all += headers[index] + SEPARATOR;
  const room = all.length <= SCRATCH.length ? SCRATCH : Buffer.alloc(all.length);
  const length = room.write(all, 'latin1');
  const isHit = veil.find(room.subarray(0, length)) !== null;
  room.fill(0, 0, isHit ? length : 0);
  return isHit ? veilEach(veil, headers, counts) : headers;
}

/** The head with its fields and its reason phrase veiled; the same object when nothing was found. */
export function veilHead(veil: Veil, head: ResponseHead, counts: HitCounts): ResponseHead {
  const headers = veilHeaders(veil, head.headers, counts);
  const [, reason] = veilHeaders(veil, ['', head.reason], counts) as [string, string];
  return headers === head.headers && reason === head.reason ? head : { ...head, headers, reason };
}

function veilEach(veil: Veil, headers: RawHeaders, counts: HitCounts): RawHeaders {
  const scanner = new VeilScanner(veil, { sameLength: false, counts });
  return headers.map((text, index) => {
    if (index % 2 === 0 || FRAMING_NAMES.has((headers[index - 1] as string).toLowerCase())) return text;
    return scanner.whole(Buffer.from(text, 'latin1')).toString('latin1');
  });
}
