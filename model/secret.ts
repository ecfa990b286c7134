// A value that must never be printed: every way of turning it into text gives `[secret]`.
import { inspect } from 'node:util';

const HIDDEN = '[secret]';

/** Holds secret bytes. Only the swap and the veil (and the sealing of a new value) call `reveal()`. */
export class Secret {
  readonly #bytes: Buffer;

  private constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Takes ownership of the buffer: the caller must not use it afterwards. */
  static fromBytes(bytes: Buffer): Secret {
    return new Secret(bytes);
  }

  /** Encodes the text as UTF-8. */
  static fromText(text: string): Secret {
    return new Secret(Buffer.from(text, 'utf8'));
  }

  /** Length in bytes. */
  get byteLength(): number {
    return this.#bytes.length;
  }

  /** The bytes themselves, not a copy; the caller must not change or keep them. */
  reveal(): Buffer {
    return this.#bytes;
  }

  /** Overwrites the bytes where the runtime lets us; the secret is all zero afterwards. */
  wipe(): void {
    this.#bytes.fill(0);
  }

  toString(): string {
    return HIDDEN;
  }

  toJSON(): string {
    return HIDDEN;
  }

  [inspect.custom](): string {
    return HIDDEN;
  }
}
