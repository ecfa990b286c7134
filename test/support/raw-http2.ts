// Frames of HTTP/2 by hand (RFC 9113 section 4), for servers that misbehave.
import type { Socket } from 'node:net';

export const FRAME = { data: 0, headers: 1, reset: 3, settings: 4, goaway: 7 } as const;
export const END_STREAM = 1;
export const END_HEADERS = 4;

/** `:status: 200` in HPACK's static table. */
export const STATUS_200 = Buffer.of(0x88);

/** A literal field without indexing. */
export function literalField(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(0, name.length), Buffer.from(name), Buffer.of(value.length), Buffer.from(value)]);
}

export interface FrameOptions {
  readonly flags?: number;
  readonly payload?: Buffer;
}

export function frame(
  type: number,
  streamId: number,
  { flags = 0, payload = Buffer.alloc(0) }: FrameOptions = {},
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, payload]);
}

function uint32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [index, value] of values.entries()) bytes.writeUInt32BE(value, 4 * index);
  return bytes;
}

export const resetFrame = (streamId: number, code: number): Buffer =>
  frame(FRAME.reset, streamId, { payload: uint32(code) });
export const goawayFrame = (lastStreamId: number, code: number): Buffer =>
  frame(FRAME.goaway, 0, { payload: uint32(lastStreamId, code) });

/** Sends SETTINGS, and calls back with the stream's id for each HEADERS frame that comes. */
export function serveFrames(socket: Socket, onRequest: (streamId: number) => void): void {
  const prefaceLength = 24;
  let bytes = Buffer.alloc(0);
  let offset = prefaceLength;
  socket.on('error', () => socket.destroy());
  socket.write(frame(FRAME.settings, 0));
  socket.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= offset + 9 && bytes.length >= offset + 9 + bytes.readUIntBE(offset, 3)) {
      const at = offset;
      offset += 9 + bytes.readUIntBE(at, 3);
      if (bytes[at + 3] === FRAME.headers) onRequest(bytes.readUInt32BE(at + 5));
    }
  });
}
