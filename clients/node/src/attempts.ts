import type { Next, Outcome } from "./wire.js";

/**
 * Counts how often a request was sent, and keeps the coordinator's decision on the next attempt.
 */
export class Attempts {
  /** The number of attempts, the one under way included. */
  number = 1;
  /** The number of earlier attempts that did not count: the host refused them, or was down. */
  free = 0;
  #next: Next | undefined;

  constructor(readonly method = "GET") {}

  /** Returns the fields of an outcome that describe the attempts. */
  fields(): Outcome {
    return { method: this.method, attempt: this.number, free: this.free };
  }

  /** Records the coordinator's decision on the attempt under way. */
  heard(next: Next): void {
    this.#next = next;
  }

  /** Returns the milliseconds until the next attempt and counts it. Undefined ends the request. */
  pauseMs(): number | undefined {
    const next = this.#next;
    this.#next = undefined;
    if (next?.what !== "retry") return undefined;
    this.number += 1;
    this.free += Number(next.free);
    return next.afterMs;
  }
}
