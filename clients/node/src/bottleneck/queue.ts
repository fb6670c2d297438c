/** Priorities are 0 to 9. Jobs with a smaller number leave first. */
export const PRIORITIES = 10;

/** A queue for each priority. Of one priority, items leave in the order of their arrival. */
export class PriorityQueue<Item> {
  readonly #lists = Array.from({ length: PRIORITIES }, () => new List<Item>());

  /** Returns the number of items, in all or of one priority. */
  length(priority?: number): number {
    if (priority !== undefined) return this.#lists[priority]?.length ?? 0;
    return this.#lists.reduce((sum, list) => sum + list.length, 0);
  }

  push(item: Item, priority: number): void {
    this.#lists[priority]!.push(item);
  }

  first(): Item | undefined {
    return this.at(0);
  }

  /** Returns the item before which `index` others leave. */
  at(index: number): Item | undefined {
    let before = 0;
    for (const list of this.#lists) {
      if (index < before + list.length) return list.at(index - before);
      before += list.length;
    }
    return undefined;
  }

  /** Removes and returns the first item that is true for `test`. */
  shift(test?: (item: Item) => boolean): Item | undefined {
    for (const list of this.#lists) {
      const item = list.length > 0 ? list.shift(test) : undefined;
      if (item !== undefined) return item;
    }
    return undefined;
  }

  /** Removes and returns the oldest item of the last priority, if that is `from` or a later one. */
  shed(from: number): Item | undefined {
    const last = this.#lists.findLastIndex((list) => list.length > 0);
    return last >= from ? this.#lists[last]!.shift() : undefined;
  }

  /** Removes the items that are true for `test`, and returns them in their order. */
  remove(test: (item: Item) => boolean): Item[] {
    return this.#lists.flatMap((list) => list.remove(test));
  }
}

/** A first-in, first-out list. `Array.shift` takes time in proportion to the length. */
class List<Item> {
  #items: Item[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  push(item: Item): void {
    this.#items.push(item);
  }

  at(index: number): Item | undefined {
    return this.#items[this.#head + index];
  }

  shift(test?: (item: Item) => boolean): Item | undefined {
    const item = this.at(0);
    if (test && item !== undefined && !test(item)) {
      const index = this.#items.findIndex((other, place) => place > this.#head && test(other));
      return index < 0 ? undefined : this.#items.splice(index, 1)[0];
    }
    this.#head += 1;
    if (this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  remove(test: (item: Item) => boolean): Item[] {
    const items = this.#items.slice(this.#head);
    this.#items = items.filter((item) => !test(item));
    this.#head = 0;
    return items.filter(test);
  }
}
