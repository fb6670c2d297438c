import type { Cancel, Clock } from "./clock.js";
import type { Job } from "./job.js";
import type { Limits, Offer, Start } from "./limits.js";
import type { PriorityQueue } from "./queue.js";
import type { SettingsOptions } from "./settings.js";

/** The end of a job. A dropped one did not execute. */
export type End = "resolved" | "rejected" | "dropped";

/** The calls by which turns run jobs. */
export interface Uses {
  /** Executes a job that has left the queue. */
  launch(job: Job, start: Start): void;
  /** Tells of an error, and ends the job that left the queue for it. */
  fail(job: Job | undefined, error: unknown): void;
}

/** Takes jobs from the queue when the limits of this process, or of a coordinator, allow. */
export interface Turns {
  /** Waits until jobs can start. */
  ready(): Promise<void>;
  /** Says whether a job may enter the queue. Throws `BottleneckError` if it never can start. */
  offer(weight: number): Offer;
  /** Starts jobs as far as the limits allow, and again when they allow more. */
  drain(): void;
  /** Gives back what a job held. */
  release(job: Job, end: End): void;
  running(): Promise<number>;
  done(): Promise<number>;
  check(weight: number): Promise<boolean>;
  reservoir(): Promise<number | null>;
  incrementReservoir(amount: number): Promise<number>;
  update(options: SettingsOptions): Promise<void>;
  /** Ends the timers and the calls. Queued jobs do not start any more. */
  close(): Promise<void>;
}

/** The turns of a limiter whose limits are in this process. */
export class LocalTurns implements Turns {
  #cancelWake: Cancel = () => {};
  #closed = false;

  constructor(
    private readonly limits: Limits,
    private readonly clock: Clock,
    private readonly queue: PriorityQueue<Job>,
    private readonly uses: Uses,
  ) {}

  async ready(): Promise<void> {}

  offer(weight: number): Offer {
    const now = this.clock.now();
    return this.limits.offer(this.queue.length(), weight, this.limits.wouldStart(weight, now), now);
  }

  drain(): void {
    this.#cancelWake();
    for (let job = this.queue.first(); job !== undefined; job = this.queue.first()) {
      const now = this.clock.now();
      const start = this.limits.start(job.options.weight, now);
      if (start === null) return this.#wake(job.options.weight, now);
      this.queue.shift();
      this.uses.launch(job, start);
    }
  }

  release(job: Job, end: End): void {
    this.limits.finish(job.options.weight, end !== "dropped");
  }

  async running(): Promise<number> {
    return this.limits.running;
  }

  async done(): Promise<number> {
    return this.limits.done;
  }

  async check(weight: number): Promise<boolean> {
    return this.limits.wouldStart(weight, this.clock.now());
  }

  async reservoir(): Promise<number | null> {
    return this.limits.reservoir(this.clock.now());
  }

  async incrementReservoir(amount: number): Promise<number> {
    const reservoir = this.limits.incrementReservoir(amount, this.clock.now());
    this.drain();
    return reservoir;
  }

  async update(options: SettingsOptions): Promise<void> {
    this.limits.update(options, this.clock.now());
    this.drain();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelWake();
  }

  /** Drains again when the reservoir is refilled. */
  #wake(weight: number, now: number): void {
    const refill = this.limits.nextRefill(weight, now);
    if (refill === null || this.#closed) return;
    this.#cancelWake = this.clock.after(refill - now, () => this.drain());
  }
}
