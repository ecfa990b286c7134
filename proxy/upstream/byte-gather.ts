// Collects a block of header lines that comes in pieces, without going through what it has already seen again.
const FIRST_BYTES = 1024;
const CR = 13;
const LF = 10;

/** Bytes up to and with an empty line. */
export class ByteGather {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES);
  /** Number of bytes held. */
  length = 0;
  /** A CR without LF, or an LF without CR, was seen: no such block is valid. */
  hasBrokenLine = false;
  #lineLength = 0;

  /**
   * Takes bytes of a chunk, up to the end of the block if that is in it. Returns the offset in the chunk after the
   * empty line, or -1 when the block goes on. Stops at a broken line.
   */
  appendBlock(chunk: Buffer, offset: number): number {
    let end = -1;
    let previous = this.length === 0 ? 0 : (this.#bytes[this.length - 1] as number);
    for (let index = offset; index < chunk.length && end < 0; index += 1) {
      const byte = chunk[index] as number;
      if ((byte === LF) !== (previous === CR)) {
        this.hasBrokenLine = true;
        return -1;
      }
      if (byte !== LF) this.#lineLength += 1;
      else {
        if (this.#lineLength === 1) end = index + 1;
        this.#lineLength = 0;
      }
      previous = byte;
    }
    this.#append(chunk, offset, end < 0 ? chunk.length : end);
    return end;
  }

  /** The lines, each with its CRLF, in Latin-1 and without the empty one. */
  text(): string {
    return this.#bytes.toString('latin1', 0, this.length - 2);
  }

  #append(chunk: Buffer, from: number, to: number): void {
    const needed = this.length + to - from;
    if (needed > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(needed, 2 * this.#bytes.length));
      this.#bytes.copy(larger, 0, 0, this.length);
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.length, from, to);
    this.length = needed;
  }
}
