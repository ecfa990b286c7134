// Who holds how many of something that is scarce: finds in constant time whoever holds most.

/** Items by their holder, the oldest first. */
export class Holders<Item> {
  readonly #items = new Map<string, Set<Item>>();
  readonly #holdersByCount = new Map<number, Set<string>>();
  /** The most that anybody holds. */
  #most = 0;

  /** Does nothing where the holder has that item. */
  add(holder: string, item: Item): void {
    const items = this.#items.get(holder) ?? new Set<Item>();
    if (items.has(item)) return;
    this.#items.set(holder, items.add(item));
    this.#move(holder, items.size - 1, items.size);
    this.#most = Math.max(this.#most, items.size);
  }

  /** Does nothing where the holder has no such item. */
  delete(holder: string, item: Item): void {
    const items = this.#items.get(holder);
    if (items?.delete(item) !== true) return;
    this.#move(holder, items.size + 1, items.size);
    if (items.size === 0) this.#items.delete(holder);
    // Whoever held most holds one less now, which is still the most.
    if (!this.#holdersByCount.has(this.#most)) this.#most -= 1;
  }

  /** The oldest item of whoever holds most; undefined where nobody holds more than one. */
  oldestOfMost(): Item | undefined {
    if (this.#most < 2) return undefined;
    // Somebody holds that many: the count would be lower else.
    const [holder] = this.#holdersByCount.get(this.#most) as ReadonlySet<string>;
    const [oldest] = this.#items.get(holder as string) as ReadonlySet<Item>;
    return oldest;
  }

  #move(holder: string, from: number, to: number): void {
    const before = this.#holdersByCount.get(from);
    before?.delete(holder);
    if (before?.size === 0) this.#holdersByCount.delete(from);
    if (to === 0) return;
    const after = this.#holdersByCount.get(to) ?? new Set<string>();
    this.#holdersByCount.set(to, after.add(holder));
  }
}
