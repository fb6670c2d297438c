import { type Cancel, type Clock, systemClock } from "./clock.js";
import { type Emitter, Events } from "./events.js";

export interface BatcherOptions {
  /** The most milliseconds for which data waits. Default: null, until the batch is full. */
  maxTime?: number | null | undefined;
  /** The most data of a batch. Default: null, unlimited. */
  maxSize?: number | null | undefined;
  /** Replaces time and timers in tests. */
  clock?: Clock | undefined;
}

export interface BatcherEvents {
  error: (error: any) => void;
  batch: (batch: any[]) => void;
}

export interface Batcher extends Emitter<BatcherEvents> {}

/** Collects data and passes it on in batches, as the event `batch`. */
export class Batcher {
  readonly #events: Events;
  readonly #options: BatcherOptions;
  readonly #clock: Clock;
  #batch: { data: unknown; resolve: () => void }[] = [];
  #cancelFlush: Cancel = () => {};

  constructor(options: BatcherOptions = {}) {
    this.#events = new Events(this);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Adds data. The promise resolves when its batch was passed on. */
  add(data: unknown): Promise<void> {
    const { maxTime, maxSize } = this.#options;
    return new Promise((resolve) => {
      const size = this.#batch.push({ data, resolve });
      if (size === maxSize) this.#flush();
      else if (size === 1 && typeof maxTime === "number") {
        this.#cancelFlush = this.#clock.after(maxTime, () => this.#flush());
      }
    });
  }

  #flush(): void {
    this.#cancelFlush();
    const batch = this.#batch;
    this.#batch = [];
    for (const { resolve } of batch) resolve();
    void this.#events.trigger("batch", batch.map(({ data }) => data));
  }
}
