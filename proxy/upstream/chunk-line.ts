// Reads the line that gives a chunk's size (RFC 9112 section 7.1), byte by byte, since it can come in pieces.
import { CHUNK_EXTENSION_BYTES_MAX } from '../../model/limits.ts';
import { ResponseSyntaxError } from './http1-head.ts';

const SIZE = 0;
const LINE_FEED = 1;
const EXTENSION_NAME = 2;
const EXTENSION_VALUE = 3;
const QUOTED = 4;
const QUOTED_PAIR = 5;
const AFTER_QUOTED = 6;

const CR = 13;
const LF = 10;
const TAB = 9;
const DELETE = 127;
const SEMICOLON = 59;
const EQUALS = 61;
const QUOTE = 34;
const BACKSLASH = 92;
const DIGITS_MAX = 13; // 52 bits: within what a number holds exactly

const HEX_VALUES = new Int8Array(256).fill(-1);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  HEX_VALUES[digit.charCodeAt(0)] = value;
  HEX_VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}

const IS_TOKEN = new Uint8Array(256);
for (const character of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
  IS_TOKEN[character.charCodeAt(0)] = 1;
}

function malformedExtension(): ResponseSyntaxError {
  return new ResponseSyntaxError('a chunk extension is malformed');
}

/** One such line after another. */
export class ChunkLine {
  /** The size that the last complete line gave, in bytes. */
  size = 0;
  #state = SIZE;
  #value = 0;
  #digitCount = 0;
  #extensionBytes = 0;
  /** Whether the name or value that is being read has a character. */
  #hasText = false;

  /** Returns the offset after the line, or -1 when the line goes on. Throws ResponseSyntaxError. */
  read(chunk: Buffer, offset: number): number {
    for (let index = offset; index < chunk.length; index += 1) {
      const byte = chunk[index] as number;
      if (this.#state === SIZE) this.#readSize(byte);
      else if (this.#state !== LINE_FEED) this.#readExtension(byte);
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
    else if (byte === SEMICOLON) this.#begin(EXTENSION_NAME);
    else throw new ResponseSyntaxError('a chunk size holds something else than hexadecimal digits');
  }

  /** Extensions are skipped, but must be what RFC 9112 section 7.1.1 says (without white space). */
  #readExtension(byte: number): void {
    this.#extensionBytes += 1;
    if (this.#extensionBytes > CHUNK_EXTENSION_BYTES_MAX)
      throw new ResponseSyntaxError('a chunk extension is too long');
    switch (this.#state) {
      case QUOTED:
        this.#readQuoted(byte);
        return;
      case QUOTED_PAIR:
        if (!isQuotable(byte)) throw malformedExtension();
        this.#state = QUOTED;
        return;
      case AFTER_QUOTED:
        this.#endPart(byte);
        return;
      default:
        this.#readPart(byte);
    }
  }

  #readPart(byte: number): void {
    if (IS_TOKEN[byte] === 1) {
      this.#hasText = true;
      return;
    }
    if (byte === QUOTE && this.#state === EXTENSION_VALUE && !this.#hasText) {
      this.#state = QUOTED;
      return;
    }
    if (!this.#hasText) throw malformedExtension();
    if (byte === EQUALS && this.#state === EXTENSION_NAME) this.#begin(EXTENSION_VALUE);
    else this.#endPart(byte);
  }

  #readQuoted(byte: number): void {
    if (byte === QUOTE) this.#state = AFTER_QUOTED;
    else if (byte === BACKSLASH) this.#state = QUOTED_PAIR;
    else if (!isQuotable(byte)) throw malformedExtension();
  }

  #endPart(byte: number): void {
    if (byte === CR) this.#state = LINE_FEED;
    else if (byte === SEMICOLON) this.#begin(EXTENSION_NAME);
    else throw malformedExtension();
  }

  #begin(state: number): void {
    this.#state = state;
    this.#hasText = false;
  }

  #finish(): void {
    this.size = this.#value;
    this.#state = SIZE;
    this.#value = 0;
    this.#digitCount = 0;
    this.#extensionBytes = 0;
  }
}

function isQuotable(byte: number): boolean {
  return byte === TAB || (byte >= 32 && byte !== DELETE);
}
