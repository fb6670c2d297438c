import type { Cancel } from "./clock.js";
import type { JobSettings } from "./settings.js";

export type Task = (...args: never[]) => unknown;

/** A job in an event. */
export interface EventInfo {
  readonly args: unknown[];
  readonly options: Readonly<JobSettings>;
}

/** A job in `executing`, `failed`, `retry` and `done`. */
export interface EventInfoRetryable extends EventInfo {
  /** The number of repeats. */
  readonly retryCount: number;
}

/** A job in `queued`. */
export interface EventInfoQueued extends EventInfo {
  readonly reachedHWM: boolean;
  readonly blocked: boolean;
}

/** A job in `dropped`. */
export interface EventInfoDropped extends EventInfo {
  readonly task: Task;
  readonly promise: Promise<unknown>;
}

/** A task with its options and the promise of its result. */
export class Job {
  readonly promise: Promise<unknown>;
  resolve!: (value: unknown) => void;
  reject!: (error: unknown) => void;
  retryCount = 0;
  /** Ends the timer of a job that has started and does not execute yet. */
  cancelStart: Cancel | undefined;

  constructor(
    readonly options: Readonly<JobSettings>,
    readonly task: Task,
    readonly args: unknown[],
    PromiseClass: PromiseConstructor,
  ) {
    this.promise = new PromiseClass((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** The job's id as a text. Callers may give numbers. */
  get key(): string {
    return String(this.options.id);
  }

  get info(): EventInfo {
    return { args: this.args, options: this.options };
  }

  get attempt(): EventInfoRetryable {
    return { ...this.info, retryCount: this.retryCount };
  }
}
