// Reads the line that gives a chunk's size (RFC 9112 section 7.1), byte by byte, since it can come in pieces.
import { CHUNK_EXTENSION_BYTES_MAX } from '../../model/limits.ts';
import { ResponseSyntaxError } from './http1-head.ts';

const SIZE = 0;
const EXTENSION = 1;
const LINE_FEED = 2;

const CR = 13;
const LF = 10;
const TAB = 9;
const DELETE = 127;
const SEMICOLON = 59;
const DIGITS_MAX = 13; // 52 bits: within what a number holds exactly

const HEX_VALUES = new Int8Array(256).fill(-1);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  HEX_VALUES[digit.charCodeAt(0)] = value;
  HEX_VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}

/** One such line after another. */
export class ChunkLine {
  /** The size that the last complete line gave, in bytes. */
  size = 0;
  #state = SIZE;
  #value = 0;
  #digitCount = 0;
  #extensionBytes = 0;

  /** Returns the offset after the line, or -1 when the line goes on. Throws ResponseSyntaxError. */
  read(chunk: Buffer, offset: number): number {
    for (let index = offset; index < chunk.length; index += 1) {
      const byte = chunk[index] as number;
      if (this.#state === SIZE) this.#readSize(byte);
      else if (this.#state === EXTENSION) this.#readExtension(byte);
      else {
        if (byte !== LF) throw new ResponseSyntaxError('the line of a chunk size has a CR without LF');
        this.#finish();
        return index + 1;
      }
    }
    return -1;
  }

  #readSize(byte: number): void {
    const value = HEX_VALUES[byte] as number;
    if (value >= 0) {
      this.#digitCount += 1;
      if (this.#digitCount > DIGITS_MAX) throw new ResponseSyntaxError('a chunk size is too large');
      this.#value = this.#value * 16 + value;
      return;
    }
    if (this.#digitCount === 0) throw new ResponseSyntaxError('a chunk has no size');
    if (byte === CR) this.#state = LINE_FEED;
    else if (byte === SEMICOLON) this.#state = EXTENSION;
    else throw new ResponseSyntaxError('a chunk size holds something else than hexadecimal digits');
  }

  /** Extensions are skipped (RFC 9112 section 7.1.1). */
  #readExtension(byte: number): void {
    if (byte === CR) {
      this.#state = LINE_FEED;
      return;
    }
    this.#extensionBytes += 1;
    if (this.#extensionBytes > CHUNK_EXTENSION_BYTES_MAX)
      throw new ResponseSyntaxError('a chunk extension is too long');
    if ((byte < 32 && byte !== TAB) || byte === DELETE)
      throw new ResponseSyntaxError('a chunk extension holds a control character');
  }

  #finish(): void {
    this.size = this.#value;
    this.#state = SIZE;
    this.#value = 0;
    this.#digitCount = 0;
    this.#extensionBytes = 0;
  }
}
