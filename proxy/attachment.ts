// What belongs to a connection, kept at the connection itself.

/**
 * One value for each of some objects, as in a WeakMap, and gone together with its object. V8 takes every value in a
 * WeakMap that has grown old for reachable until its next full collection. A value that refers to its key keeps that one
 * reachable too, so every connection that had closed was copied into the old generation.
 */
export class Attachment<Owner extends object, Value> {
  readonly #key: symbol;

  /** @param name - What a debugger shows at the object. */
  constructor(name: string) {
    this.#key = Symbol(name);
  }

  get(owner: Owner): Value | undefined {
    return (owner as Record<symbol, Value | undefined>)[this.#key];
  }

  set(owner: Owner, value: Value): void {
    (owner as Record<symbol, Value | undefined>)[this.#key] = value;
  }

  delete(owner: Owner): void {
    (owner as Record<symbol, Value | undefined>)[this.#key] = undefined;
  }
}
