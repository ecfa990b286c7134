// What is there now, of things that come and go: as a Set, but nothing of what has left stays reachable.

/** Where an item stands; gives it up. */
export interface Seat<Item> {
  readonly item: Item;
  /** Position in the list; -1 once it has been given up. */
  index: number;
}

/**
 * Items in no particular order. The tables of a Set that items come to and go from are replaced again and again. V8 keeps
 * a replaced one that has grown old until its next full collection, and with it all later ones and what they held. A list
 * that is overwritten holds nothing back.
 */
export class Roster<Item> {
  readonly #seats: Seat<Item>[] = [];

  get size(): number {
    return this.#seats.length;
  }

  add(item: Item): Seat<Item> {
    const seat = { item, index: this.#seats.length };
    this.#seats.push(seat);
    return seat;
  }

  /** False when the seat was given up before. */
  remove(seat: Seat<Item>): boolean {
    const { index } = seat;
    if (index < 0) return false;
    seat.index = -1;
    const last = this.#seats.pop() as Seat<Item>;
    if (last === seat) return true;
    this.#seats[index] = last;
    last.index = index;
    return true;
  }

  /** A copy, so that items may leave while it is gone through. */
  items(): Item[] {
    return this.#seats.map(({ item }) => item);
  }
}
