import type { Cancel, Clock } from "../../src/bottleneck/clock.js";

/** A clock that moves when a test says so. */
export class FakeClock implements Clock {
  #now = 1_000_000;
  #timers: { due: number; run: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): Cancel {
    const timer = { due: this.#now + ms, run };
    this.#timers.push(timer);
    return () => (this.#timers = this.#timers.filter((other) => other !== timer));
  }

  /** The number of timers that will fire. */
  get pending(): number {
    return this.#timers.length;
  }

  /** Lets `ms` milliseconds pass: fires the timers at their times, and what follows from each. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settled();
      const next = this.#timers.toSorted((a, b) => a.due - b.due)[0];
      if (next === undefined || next.due > end) break;
      this.#timers = this.#timers.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.due);
      next.run();
    }
    this.#now = end;
  }

  /** Sets the clock without firing timers. */
  set(now: number): void {
    this.#now = now;
  }
}

/** Waits until all promises that can go on have gone on. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
