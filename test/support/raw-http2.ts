// Frames of HTTP/2 by hand (RFC 9113 section 4), for clients and servers that misbehave.
import type { Socket } from 'node:net';

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
export const END_STREAM = 1;
export const END_HEADERS = 4;
export const ACK = 1;
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const HEAD_BYTES = 9;

/** `:status: 200` in HPACK's static table. */
export const STATUS_200 = Buffer.of(0x88);

// RFC 7541 section 5.1, with a prefix of seven bits.
function lengthPrefix(length: number): Buffer {
  if (length < 127) return Buffer.of(length);
  const bytes = [127];
  let rest = length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}

/** A literal field without indexing (RFC 7541 section 6.2.2). */
export function literalField(name: string, value: string): Buffer {
  const text = (part: string): Buffer => {
    const bytes = Buffer.from(part, 'latin1');
    return Buffer.concat([lengthPrefix(bytes.length), bytes]);
  };
  return Buffer.concat([Buffer.of(0), text(name), text(value)]);
}

/** A block of literal fields. */
export function literalFields(list: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(list.map(([name, value]) => literalField(name, value)));
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
  const head = Buffer.alloc(HEAD_BYTES);
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
export const windowUpdateFrame = (streamId: number, bytes: number): Buffer =>
  frame(FRAME.windowUpdate, streamId, { payload: uint32(bytes) });

/** A frame that was received. */
export interface ReceivedFrame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

/** Takes bytes in pieces and calls back with each whole frame. */
function createFrameReader(onFrame: (frame: ReceivedFrame) => void): (chunk: Buffer) => void {
  let held = Buffer.alloc(0) as Buffer;
  return (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let at = 0;
    while (held.length - at >= HEAD_BYTES && held.length - at - HEAD_BYTES >= held.readUIntBE(at, 3)) {
      const end = at + HEAD_BYTES + held.readUIntBE(at, 3);
      onFrame({
        type: held[at + 3] as number,
        flags: held[at + 4] as number,
        streamId: held.readUInt32BE(at + 5) % 2 ** 31,
        payload: held.subarray(at + HEAD_BYTES, end),
      });
      at = end;
    }
    held = held.subarray(at);
  };
}

/** Sends SETTINGS, calls back with the stream's id for each HEADERS frame that comes, and closes after a GOAWAY. */
export function serveFrames(
  socket: Socket,
  onRequest: (streamId: number) => void,
  { staysOpen = false }: { readonly staysOpen?: boolean } = {},
): void {
  let prefaceLeft = PREFACE.length;
  const read = createFrameReader(({ type, streamId }) => {
    if (type === FRAME.headers) onRequest(streamId);
    if (type === FRAME.goaway && !staysOpen) socket.end();
  });
  socket.on('error', () => socket.destroy());
  socket.write(frame(FRAME.settings, 0));
  socket.on('data', (chunk) => {
    const skipped = Math.min(prefaceLeft, chunk.length);
    prefaceLeft -= skipped;
    read(chunk.subarray(skipped));
  });
}

/** A client that sends what a test wants, and keeps every frame that comes. */
export class RawHttp2Client {
  readonly frames: ReceivedFrame[] = [];
  readonly socket: Socket;
  /** Resolves when the connection is closed, however. */
  readonly closed: Promise<void>;
  #isClosed = false;
  #wake = (): void => undefined;

  /** Takes a socket on which HTTP/2 was agreed, and sends the preface with empty SETTINGS. */
  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('error', () => socket.destroy());
    socket.on(
      'data',
      createFrameReader((received) => {
        this.frames.push({ ...received, payload: Buffer.from(received.payload) });
        this.#wake();
      }),
    );
    this.closed = new Promise((resolve) =>
      socket.once('close', () => {
        this.#isClosed = true;
        this.#wake();
        resolve();
      }),
    );
    this.send(PREFACE, frame(FRAME.settings, 0));
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  send(...frames: readonly Buffer[]): void {
    if (!this.socket.destroyed) this.socket.write(Buffer.concat(frames));
  }

  /** Sends pieces as fast as the other side takes them, until it closes or there are no more. Resolves with their number. */
  async flood(pieces: Iterable<Buffer>): Promise<number> {
    let count = 0;
    for (const piece of pieces) {
      if (this.#isClosed || this.socket.destroyed) break;
      count += 1;
      if (!this.socket.write(piece)) {
        await Promise.race([new Promise<void>((resolve) => this.socket.once('drain', resolve)), this.closed]);
      }
    }
    return count;
  }

  /** The first frame, of those that came and those that come, that is wanted; null when it is closed before. */
  find(isWanted: (frame: ReceivedFrame) => boolean): Promise<ReceivedFrame | null> {
    return this.findNth(1, isWanted);
  }

  /** The same for the `number`th of them, counted from 1. */
  async findNth(number: number, isWanted: (frame: ReceivedFrame) => boolean): Promise<ReceivedFrame | null> {
    let left = number;
    for (let seen = 0; ;) {
      for (; seen < this.frames.length; seen += 1) {
        const candidate = this.frames[seen] as ReceivedFrame;
        if (isWanted(candidate)) left -= 1;
        if (left === 0) return candidate;
      }
      if (this.#isClosed) return null;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Error code of the GOAWAY that ends the connection; null when it is closed without. */
  async goaway(): Promise<number | null> {
    return (await this.find(({ type }) => type === FRAME.goaway))?.payload.readUInt32BE(4) ?? null;
  }

  /** Error code with which a stream is reset; null when the connection is closed before. */
  async reset(streamId: number): Promise<number | null> {
    const found = await this.find((one) => one.type === FRAME.reset && one.streamId === streamId);
    return found?.payload.readUInt32BE(0) ?? null;
  }
}

/** The fields of an ordinary request. */
export function requestFields(
  authority: string,
  more: readonly (readonly [string, string])[] = [],
  method = 'GET',
): Buffer {
  const pseudo = [
    [':method', method],
    [':scheme', 'https'],
    [':authority', authority],
    [':path', '/'],
  ] as const;
  return literalFields([...pseudo, ...more]);
}

/** HEADERS of an ordinary request that has no body. */
export function requestFrame(
  streamId: number,
  authority: string,
  more: readonly (readonly [string, string])[] = [],
): Buffer {
  return frame(FRAME.headers, streamId, {
    flags: END_STREAM | END_HEADERS,
    payload: requestFields(authority, more),
  });
}
