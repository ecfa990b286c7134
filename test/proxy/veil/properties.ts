// What must hold for every echo; the tests try some, the fuzzer as many as there is time for.
import fc from 'fast-check';
import { FrameParser, isControl, OPCODE, writeFrame } from '../../../proxy/swap/websocket-frames.ts';
import { type HitCounts, recordsOf, VeilScanner } from '../../../proxy/veil/scanner.ts';
import type { Veil } from '../../../proxy/veil/veil.ts';
import type { FrameRewriter } from '../../../proxy/swap/websocket-steps.ts';
import { rewriteFrames } from '../../support/frames.ts';
import { createWebSocketVeil } from '../../../proxy/veil/websocket-veil.ts';
import { echoCase } from './arbitraries.ts';
import { credentialsOf, cut, veilOf } from './echoes.ts';
import { referenceVeil } from './reference.ts';
import { ENCODERS, fixture, headOf, send } from './response-fixture.ts';

/** What a stream becomes. */
export function scan(veil: Veil, chunks: readonly Buffer[], sameLength = false): { bytes: Buffer; counts: HitCounts } {
  const counts: HitCounts = new Map();
  const scanner = new VeilScanner(veil, { sameLength, counts });
  const pieces = chunks.map((chunk) => scanner.push(Buffer.from(chunk)));
  return { bytes: Buffer.concat([...pieces, scanner.release()]), counts };
}

/** The streaming scanner gives what the plain reference gives, and counts alike. */
export const scannerProperty = fc.property(echoCase, fc.boolean(), ({ values, body, chunks }, sameLength) => {
  const wanted = referenceVeil(body, credentialsOf(...values), { sameLength });
  const { bytes, counts } = scan(veilOf(...values), chunks, sameLength);
  if (!bytes.equals(wanted.bytes)) throw new Error(`${bytes.toString()} is not ${wanted.bytes.toString()}`);
  const count = recordsOf(counts).reduce((sum, record) => sum + record.count, 0);
  if (count !== wanted.count) throw new Error(`${count} hits are not ${wanted.count}`);
});

/** So does a whole response, in whatever coding and framing; and a length that was promised holds. */
export const responseProperty = fc.asyncProperty(
  echoCase,
  fc.constantFrom('identity' as const, 'gzip' as const, 'deflate' as const, 'br' as const),
  fc.constantFrom(0, 100, 100_000),
  async (echo, coding, bufferBytes) => {
    const run = fixture(veilOf(...echo.values), { bufferBytes });
    const coded = coding === 'identity' ? echo.body : ENCODERS[coding](echo.body);
    const chunks = coding === 'identity' ? echo.chunks : cut(coded, Math.floor(coded.length / 2));
    const isKnown = bufferBytes !== 100;
    const framing = isKnown ? ({ kind: 'length', bytes: coded.length } as const) : ({ kind: 'stream' } as const);
    await send(run, headOf(['content-encoding', coding], framing), { chunks });
    const sameLength = coding === 'identity' && isKnown && coded.length > bufferBytes;
    const { bytes } = referenceVeil(echo.body, credentialsOf(...echo.values), { sameLength });
    if (!Buffer.concat(run.client.chunks).equals(bytes))
      throw new Error(`${run.client.body} is not ${bytes.toString()}`);
    const told = run.client.received?.body;
    if (told?.kind === 'length' && told.bytes !== bytes.length) throw new Error(`${told.bytes} bytes were promised`);
  },
);

export function frame(opcode: number, text: string | Buffer, fin = true): Buffer {
  return writeFrame({ opcode, fin, isMasked: false, payload: [Buffer.from(text)] });
}

/** Messages and control frames as a client takes them, in order. */
export function readMessages(bytes: Buffer): string[] {
  const parser = new FrameParser({ isMasked: false });
  const result: string[] = [];
  let message = '';
  for (const piece of parser.push(Buffer.from(bytes))) {
    if (isControl(piece.opcode)) result.push(`${piece.opcode}:${piece.payload.toString('latin1')}`);
    else {
      if (piece.isFirst && piece.opcode !== OPCODE.continuation) message = `${piece.opcode}:`;
      message += piece.payload.toString('latin1');
      if (piece.fin && piece.isLast) result.push(Buffer.from(message, 'latin1').toString());
    }
  }
  return result;
}

export async function pushAll(veil: FrameRewriter, chunks: readonly Buffer[]): Promise<Buffer> {
  const out: Buffer[] = [];
  for (const chunk of chunks) out.push(...(await rewriteFrames(veil, chunk)));
  return Buffer.concat(out);
}

/** So does a message, however it is fragmented. */
export const webSocketProperty = fc.asyncProperty(echoCase, async ({ values, body, chunks }) => {
  const current = veilOf(...values);
  const veil = createWebSocketVeil({ currentVeils: async () => [current] });
  const fragments = chunks.map((chunk, index) =>
    frame(index === 0 ? OPCODE.binary : OPCODE.continuation, chunk, index === chunks.length - 1),
  );
  const [message] = readMessages(await pushAll(veil, fragments));
  const wanted = referenceVeil(body, credentialsOf(...values)).bytes.toString();
  if (message !== `2:${wanted}`) throw new Error(`${String(message)} is not ${wanted}`);
});
