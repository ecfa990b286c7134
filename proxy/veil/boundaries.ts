// Knows after which bytes of a body nothing may be held back: ends of events, lines and messages.

/** Follows a body; one for each response. */
export interface BoundaryFinder {
  /** Number of bytes after the last end in this chunk; infinity when nothing ended in it. */
  sinceEnd(chunk: Buffer): number;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const NONE = Number.POSITIVE_INFINITY;

/** For types that have no such ends. */
export const NO_BOUNDARIES: BoundaryFinder = { sinceEnd: () => NONE };

/** Line ends of ndjson, json-seq and plain text. */
export const LINE_BOUNDARIES: BoundaryFinder = {
  sinceEnd(chunk) {
    const last = chunk.lastIndexOf(LINE_FEED);
    return last < 0 ? NONE : chunk.length - 1 - last;
  },
};

/** Empty lines of an event stream; its lines end in CR LF, LF or CR (WHATWG HTML, section 9.2.5). */
export class EventBoundaries implements BoundaryFinder {
  /** The two bytes before the chunk. */
  #before = 0;
  #beforeThat = 0;

  sinceEnd(chunk: Buffer): number {
    const at = (index: number): number =>
      index >= 0 ? (chunk[index] as number) : index === -1 ? this.#before : this.#beforeThat;
    let last = chunk.length - 1;
    while (last >= 0 && !endsEmptyLine(at(last), at(last - 1), at(last - 2))) last -= 1;
    const { length } = chunk;
    [this.#beforeThat, this.#before] = [at(length - 2), at(length - 1)];
    return last < 0 ? NONE : length - 1 - last;
  }
}

function isLineEnd(byte: number): boolean {
  return byte === LINE_FEED || byte === CARRIAGE_RETURN;
}

function endsEmptyLine(byte: number, before: number, beforeThat: number): boolean {
  if (byte === LINE_FEED) return before === LINE_FEED || (before === CARRIAGE_RETURN && isLineEnd(beforeThat));
  return byte === CARRIAGE_RETURN && isLineEnd(before);
}

const GRPC_PREFIX_BYTES = 5;

/** Ends of gRPC messages: each is a flag, a length of four bytes in network order, and so many bytes. */
export class GrpcBoundaries implements BoundaryFinder {
  /** Bytes of the current prefix that have come. */
  #prefix = 0;
  #flag = 0;
  /** Bytes of the current message that are still to come; while the prefix comes, its length so far. */
  #rest = 0;
  /** Whether a message was compressed, so that its content could not be seen. */
  sawCompressed = false;

  sinceEnd(chunk: Buffer): number {
    let end = -1;
    let index = 0;
    while (index < chunk.length) {
      if (this.#prefix < GRPC_PREFIX_BYTES) {
        this.#takePrefixByte(chunk[index] as number);
        index += 1;
      } else {
        const taken = Math.min(this.#rest, chunk.length - index);
        this.#rest -= taken;
        index += taken;
      }
      if (this.#prefix === GRPC_PREFIX_BYTES && this.#rest === 0) {
        this.#prefix = 0;
        end = index;
      }
    }
    return end < 0 ? NONE : chunk.length - end;
  }

  #takePrefixByte(byte: number): void {
    if (this.#prefix === 0) this.#flag = byte;
    // Not a shift: the length has 32 bits and no sign.
    else this.#rest = this.#rest * 256 + byte;
    this.#prefix += 1;
    if (this.#prefix === GRPC_PREFIX_BYTES && (this.#flag & 1) === 1) this.sawCompressed = true;
  }
}
