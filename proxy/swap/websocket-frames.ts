// Reads and writes WebSocket frames (RFC 6455 section 5), strictly, for both directions.
import { randomFillSync } from 'node:crypto';

export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Why a connection must be closed: 1002 for a protocol error, 1009 for what is too big (RFC 6455 section 7.4.1). */
export class WebSocketFault extends Error {
  override readonly name = 'WebSocketFault';
  readonly closeCode: 1002 | 1009;

  constructor(closeCode: 1002 | 1009, message: string) {
    super(message);
    this.closeCode = closeCode;
  }
}

/** A part of a frame, as far as it has come. A control frame always comes whole. */
export interface FramePiece {
  readonly opcode: number;
  readonly fin: boolean;
  /** Payload bytes of the whole frame. */
  readonly frameBytes: number;
  /** It begins its frame. */
  readonly isFirst: boolean;
  /** It ends its frame. */
  readonly isLast: boolean;
  /** Without mask. */
  readonly payload: Buffer;
}

export function isControl(opcode: number): boolean {
  return opcode >= OPCODE.close;
}

const FIN = 0x80;
const RESERVED_BITS = 0x70;
const OPCODE_BITS = 0x0f;
const MASKED = 0x80;
const LENGTH_BITS = 0x7f;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MASK_BYTES = 4;
const CONTROL_BYTES_MAX = 125;
const OPCODES: ReadonlySet<number> = new Set(Object.values(OPCODE));
const EMPTY = Buffer.alloc(0);

interface Frame {
  readonly opcode: number;
  readonly fin: boolean;
  readonly bytes: number;
  readonly mask: Buffer | null;
  /** Payload bytes that have come. */
  seen: number;
}

function malformed(message: string): WebSocketFault {
  return new WebSocketFault(1002, `The WebSocket frame is malformed: ${message}.`);
}

/** XORs in place; `offset` is the place of the first byte in its frame's payload (RFC 6455 section 5.3). */
function applyMask(bytes: Buffer, mask: Buffer, offset: number): void {
  for (let index = 0; index < bytes.length; index += 1) {
    bytes[index] = (bytes[index] as number) ^ (mask[(offset + index) & 3] as number);
  }
}

/** Payload length, and where the field ends; null when more bytes are needed. */
function readLength(bytes: Buffer, start: number): { readonly length: number; readonly end: number } | null {
  const short = (bytes[start + 1] as number) & LENGTH_BITS;
  const end = start + 2;
  if (short < LENGTH_16) return { length: short, end };
  if (short === LENGTH_16) {
    if (bytes.length < end + 2) return null;
    const length = bytes.readUInt16BE(end);
    if (length < LENGTH_16) throw malformed('its length is not written in the shortest way');
    return { length, end: end + 2 };
  }
  if (bytes.length < end + 8) return null;
  const length = bytes.readBigUInt64BE(end);
  if (length <= 0xffffn) throw malformed('its length is not written in the shortest way');
  if (length >> 63n === 1n) throw malformed('its length is negative');
  if (length > BigInt(Number.MAX_SAFE_INTEGER)) throw new WebSocketFault(1009, 'The WebSocket frame is too long.');
  return { length: Number(length), end: end + 8 };
}

/** Reads one direction of a connection. Which frames are masked is laid down: a client's all, a server's none. */
export class FrameParser {
  readonly #isMasked: boolean;
  /** The start of a header, or of a control frame, that is not complete. */
  #rest: Buffer = EMPTY;
  #frame: Frame | null = null;
  #isInMessage = false;
  #isClosed = false;

  constructor(options: { readonly isMasked: boolean }) {
    this.#isMasked = options.isMasked;
  }

  /**
   * Takes bytes as they come, and changes them in place. The pieces must all be asked for before the next call. Throws
   * `WebSocketFault`; what came before the bad frame has been given by then.
   */
  *push(chunk: Buffer): Generator<FramePiece, void> {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = EMPTY;
    let position = 0;
    while (position < bytes.length) {
      const isFirst = this.#frame === null;
      if (this.#frame === null) {
        const header = this.#readHeader(bytes, position);
        if (header === null || (isControl(header.frame.opcode) && bytes.length < header.end + header.frame.bytes)) {
          this.#rest = Buffer.from(bytes.subarray(position));
          return;
        }
        this.#begin(header.frame);
        position = header.end;
      }
      const piece = this.#takePayload(this.#frame as Frame, bytes.subarray(position), isFirst);
      position += piece.payload.length;
      yield piece;
    }
  }

  #readHeader(bytes: Buffer, start: number): { readonly frame: Frame; readonly end: number } | null {
    if (bytes.length < start + 2) return null;
    const first = bytes[start] as number;
    const opcode = first & OPCODE_BITS;
    const fin = (first & FIN) !== 0;
    const isMasked = ((bytes[start + 1] as number) & MASKED) !== 0;
    if ((first & RESERVED_BITS) !== 0) throw malformed('a reserved bit is set');
    if (!OPCODES.has(opcode)) throw malformed('its opcode is unknown');
    if (isMasked !== this.#isMasked) throw malformed(isMasked ? 'it is masked' : 'it is not masked');
    if (isControl(opcode) && (!fin || ((bytes[start + 1] as number) & LENGTH_BITS) > CONTROL_BYTES_MAX)) {
      throw malformed('a control frame is fragmented or too long');
    }
    const length = readLength(bytes, start);
    if (length === null) return null;
    const end = length.end + (isMasked ? MASK_BYTES : 0);
    if (bytes.length < end) return null;
    const mask = isMasked ? Buffer.from(bytes.subarray(length.end, end)) : null;
    return { frame: { opcode, fin, bytes: length.length, mask, seen: 0 }, end };
  }

  /** RFC 6455 section 5.4: fragments of messages don't mix, and nothing follows a close. */
  #begin(frame: Frame): void {
    if (this.#isClosed) throw malformed('it follows a close');
    if (frame.opcode === OPCODE.close) {
      if (frame.bytes === 1) throw malformed('a close holds half a code');
      this.#isClosed = true;
    } else if (frame.opcode === OPCODE.continuation) {
      if (!this.#isInMessage) throw malformed('it continues no message');
      this.#isInMessage = !frame.fin;
    } else if (!isControl(frame.opcode)) {
      if (this.#isInMessage) throw malformed('it begins a message within another');
      this.#isInMessage = !frame.fin;
    }
    this.#frame = frame;
  }

  #takePayload(frame: Frame, available: Buffer, isFirst: boolean): FramePiece {
    const payload = available.subarray(0, frame.bytes - frame.seen);
    if (frame.mask !== null) applyMask(payload, frame.mask, frame.seen);
    frame.seen += payload.length;
    const isLast = frame.seen === frame.bytes;
    if (isLast) this.#frame = null;
    const { opcode, fin, bytes } = frame;
    return { opcode, fin, frameBytes: bytes, isFirst, isLast, payload };
  }
}

// Masks must not be foreseeable (RFC 6455 section 5.3); a draw of four bytes each would cost more than the rest.
const maskPool = Buffer.alloc(1024 * MASK_BYTES);
let maskPosition = maskPool.length;

function drawMask(): Buffer {
  if (maskPosition === maskPool.length) {
    randomFillSync(maskPool);
    maskPosition = 0;
  }
  maskPosition += MASK_BYTES;
  return maskPool.subarray(maskPosition - MASK_BYTES, maskPosition);
}

export interface FrameToWrite {
  readonly opcode: number;
  readonly fin: boolean;
  /** For a client's frames: with a fresh mask. */
  readonly isMasked: boolean;
  /** Not changed. */
  readonly payload: readonly Buffer[];
}

/** A whole frame. */
export function writeFrame({ opcode, fin, isMasked, payload }: FrameToWrite): Buffer {
  let length = 0;
  for (const piece of payload) length += piece.length;
  const lengthBytes = length < LENGTH_16 ? 0 : length <= 0xffff ? 2 : 8;
  const headerBytes = 2 + lengthBytes + (isMasked ? MASK_BYTES : 0);
  const frame = Buffer.allocUnsafe(headerBytes + length);
  frame[0] = (fin ? FIN : 0) | opcode;
  const short = lengthBytes === 0 ? length : lengthBytes === 2 ? LENGTH_16 : LENGTH_64;
  frame[1] = (isMasked ? MASKED : 0) | short;
  if (lengthBytes === 2) frame.writeUInt16BE(length, 2);
  else if (lengthBytes === 8) frame.writeBigUInt64BE(BigInt(length), 2);
  let position = headerBytes;
  for (const piece of payload) position += piece.copy(frame, position);
  if (isMasked) {
    const mask = drawMask();
    mask.copy(frame, headerBytes - MASK_BYTES);
    applyMask(frame.subarray(headerBytes), mask, 0);
  }
  return frame;
}
