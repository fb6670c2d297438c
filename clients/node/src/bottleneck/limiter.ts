import type { Client } from "../client.js";
import { type Clock, systemClock } from "./clock.js";
import { BottleneckError, redisAdvice } from "./error.js";
import { type Emitter, Events } from "./events.js";
import {
  type EventInfo,
  type EventInfoDropped,
  type EventInfoQueued,
  type EventInfoRetryable,
  Job,
  type Task,
} from "./job.js";
import { Lifecycle } from "./lifecycle.js";
import { Limits, type Start } from "./limits.js";
import { PRIORITIES, PriorityQueue } from "./queue.js";
import {
  type JobOptions,
  jobSettings,
  NO_ID,
  type Settings,
  type SettingsOptions,
  strategy,
} from "./settings.js";
import { SharedTurns } from "./shared.js";
import { type End, LocalTurns, type Turns } from "./turns.js";

export type Status = "RECEIVED" | "QUEUED" | "RUNNING" | "EXECUTING" | "DONE";
export type Counts = Record<Exclude<Status, "DONE">, number> & { DONE?: number };

/** Options of a limiter: its limits, and where they are kept. */
export interface ConstructorOptions extends SettingsOptions {
  /** The limiter's name. With a coordinator, limiters with the same name share their limits. */
  id?: string | null | undefined;
  /** Whether the promise of a dropped job fails. Default: true; otherwise it stays open. */
  rejectOnDrop?: boolean | null | undefined;
  /** Whether jobs that are done are counted and keep their ids. Default: false. */
  trackDoneStatus?: boolean | null | undefined;
  /** The class of the promises of `schedule`. Default: the built-in one. */
  Promise?: unknown;
  /** Milliseconds without a job after which a group forgets its limiter. */
  timeout?: number | null | undefined;
  /** `local`, or `politely` for limits at a coordinator. Default: `local`. */
  datastore?: string | null | undefined;
  /** The client of the coordinator. Default: one of `POLITELY_COORDINATOR`. */
  client?: Client | undefined;
  /** Replaces time and timers in tests. */
  clock?: Clock | undefined;
  [name: string]: unknown;
}

/** Options of `stop`. */
export interface StopOptions {
  /** Whether jobs that do not execute yet are dropped. Default: true. */
  dropWaitingJobs?: boolean | null | undefined;
  /** The error of dropped jobs. */
  dropErrorMessage?: string | null | undefined;
  /** The error of jobs that come later. */
  enqueueErrorMessage?: string | null | undefined;
}

export type Callback<Result> = (error: any, result: Result) => void;

export interface LimiterEvents {
  error: (error: any) => void;
  empty: () => void;
  idle: () => void;
  depleted: (empty: boolean) => void;
  message: (message: string) => void;
  debug: (message: string, data: any) => void;
  dropped: (dropped: EventInfoDropped) => void;
  received: (info: EventInfo) => void;
  queued: (info: EventInfoQueued) => void;
  scheduled: (info: EventInfo) => void;
  executing: (info: EventInfoRetryable) => void;
  /** Returns the milliseconds until the job is repeated, or nothing. */
  failed: (error: any, info: EventInfoRetryable) => Promise<number | void | null> | number | void | null;
  retry: (message: string, info: EventInfoRetryable) => void;
  done: (info: EventInfoRetryable) => void;
}

const STATUSES: Exclude<Status, "DONE">[] = ["RECEIVED", "QUEUED", "RUNNING", "EXECUTING"];

export interface Bottleneck extends Emitter<LimiterEvents> {}

/** Queues jobs and starts them as its limits allow. The interface is that of Bottleneck 2. */
export class Bottleneck {
  id = NO_ID;
  /** Where the limits are kept. */
  readonly datastore: string;
  /** Milliseconds without a job after which a group forgets this limiter. */
  readonly timeout: number | null;

  readonly #events: Events;
  readonly #clock: Clock;
  readonly #limits: Limits;
  readonly #turns: Turns;
  readonly #queue = new PriorityQueue<Job>();
  readonly #lifecycle: Lifecycle<Status>;
  /** Jobs that do not execute yet: those that `stop` drops. */
  readonly #waiting = new Set<Job>();
  #rejectOnDrop = true;
  #Promise: PromiseConstructor = Promise;
  #next: Bottleneck | null = null;
  /** The error of new jobs, after `stop`. */
  #refusal: string | null = null;
  /** When the last job ended. */
  #idleFrom: number;
  #onEnd = () => {};

  constructor(options: ConstructorOptions = {}, ...others: never[]) {
    if (options === null || typeof options !== "object" || others.length > 0) {
      throw new BottleneckError(
        "Bottleneck v2 takes a single object argument. Refer to " +
          "https://github.com/SGrondin/bottleneck#upgrading-to-v2 if you're upgrading from Bottleneck v1.",
      );
    }
    this.#events = new Events(this);
    this.#clock = options.clock ?? systemClock;
    this.timeout = options.timeout ?? null;
    this.#lifecycle = new Lifecycle(options.trackDoneStatus ? [...STATUSES, "DONE"] : STATUSES);
    this.#limits = new Limits(options, this.#clock.now());
    this.#idleFrom = this.#clock.now();
    this.#adopt(options);
    this.datastore = options.datastore ?? "local";
    this.#turns = this.#turnsOf(options);
  }

  /** The limits in force. */
  get settings(): Readonly<Settings> {
    return this.#limits.settings;
  }

  /** Waits until the limiter can start jobs. */
  ready(): Promise<void> {
    return this.#turns.ready();
  }

  /** Queues a task and returns the promise of its result. */
  schedule<Args extends unknown[], Result>(
    task: (...args: Args) => PromiseLike<Result> | Result,
    ...args: Args
  ): Promise<Result>;
  schedule<Args extends unknown[], Result>(
    options: JobOptions,
    task: (...args: Args) => PromiseLike<Result> | Result,
    ...args: Args
  ): Promise<Result>;
  schedule(...call: unknown[]): Promise<unknown> {
    const { options, task, args } = parts(call);
    const job = new Job(jobSettings(options), task, args, this.#Promise);
    void this.#receive(job);
    return job.promise;
  }

  /**
   * Queues a task that ends with a call of its last argument, `(error, ...results)`, and passes
   * that on to `callback`, which may be null. The promise tells that the job is queued or dropped.
   */
  submit<Args extends unknown[], Result>(
    task: (...args: [...Args, Callback<Result>]) => void,
    ...argsAndCallback: [...Args, Callback<Result> | null]
  ): Promise<void>;
  submit<Args extends unknown[], Result>(
    options: JobOptions,
    task: (...args: [...Args, Callback<Result>]) => void,
    ...argsAndCallback: [...Args, Callback<Result> | null]
  ): Promise<void>;
  submit(...call: unknown[]): Promise<void> {
    const { options, task, args } = parts(call);
    const callback = args.pop() as ((...results: unknown[]) => void) | null | undefined;
    let failed: unknown[] = [];
    const promised = (...values: unknown[]) =>
      new Promise<unknown[]>((resolve, reject) => {
        let isOver = false;
        (task as (...values: unknown[]) => void)(...values, (...answer: unknown[]) => {
          if (isOver) return;
          isOver = true;
          if (answer[0] === null || answer[0] === undefined) return resolve(answer);
          failed = answer;
          reject(answer[0]);
        });
      });
    const job = new Job(jobSettings(options), promised, args, this.#Promise);
    job.promise.then(
      (answer) => callback?.(...(answer as unknown[])),
      (error: unknown) => callback?.(...(error === failed[0] ? failed : [error])),
    );
    return this.#receive(job);
  }

  /** Returns a function that runs `task` as a job. Its `withOptions` takes the options first. */
  wrap<Args extends unknown[], Result>(
    task: (...args: Args) => PromiseLike<Result> | Result,
  ): ((...args: Args) => Promise<Result>) & {
    withOptions: (options: JobOptions, ...args: Args) => Promise<Result>;
  } {
    const limiter = this;
    const wrapped = function (this: unknown, ...args: Args) {
      return limiter.schedule(task.bind(this) as typeof task, ...args);
    };
    const withOptions = (options: JobOptions, ...args: Args) => limiter.schedule(options, task, ...args);
    return Object.assign(wrapped, { withOptions });
  }

  /** Returns the number of queued jobs, in all or of a priority. */
  queued(priority?: number): number {
    return this.#queue.length(priority);
  }

  /** Returns the number of queued jobs of this process. */
  async clusterQueued(): Promise<number> {
    return this.queued();
  }

  /** Returns whether no job is received or queued. */
  empty(): boolean {
    return this.queued() + this.#lifecycle.count("RECEIVED") === 0;
  }

  /** Returns the weight of the jobs that have started and not ended. */
  running(): Promise<number> {
    return this.#turns.running();
  }

  /** Returns the weight of the jobs that have ended. */
  done(): Promise<number> {
    return this.#turns.done();
  }

  /** Returns whether a job of this weight would execute at once. */
  check(weight = 1): Promise<boolean> {
    return this.#turns.check(weight);
  }

  /** Returns the number of jobs in each status. */
  counts(): Counts {
    return this.#lifecycle.statusCounts();
  }

  /** Returns the status of a job, or null if there is none with this id. */
  jobStatus(id: string): Status | null {
    return this.#lifecycle.jobStatus(String(id));
  }

  /** Returns the ids of the jobs in a status, or of all. */
  jobs(status?: Status): string[] {
    return this.#lifecycle.statusJobs(status);
  }

  /** Changes the limits. Jobs that have started keep their time. */
  async updateSettings(options: ConstructorOptions = {}): Promise<this> {
    this.#adopt(options);
    await this.#turns.update(options);
    return this;
  }

  /** Adds to the reservoir and returns it. */
  incrementReservoir(amount = 0): Promise<number> {
    return this.#turns.incrementReservoir(amount);
  }

  /** Returns the reservoir, or null without one. */
  currentReservoir(): Promise<number | null> {
    return this.#turns.reservoir();
  }

  /** Executes the jobs of this limiter as jobs of another one, too. Null ends that. */
  chain(next: Bottleneck | null = null): this {
    this.#next = next;
    return this;
  }

  /** Refuses new jobs, drops or finishes the waiting ones, and waits until none executes. */
  async stop(options: StopOptions = {}): Promise<void> {
    if (this.#refusal !== null) throw new BottleneckError("stop() has already been called");
    this.#refusal = options.enqueueErrorMessage ?? "This limiter has been stopped and cannot accept new jobs.";
    if (options.dropWaitingJobs ?? true) {
      const error = new BottleneckError(options.dropErrorMessage ?? "This limiter has been stopped.");
      this.#queue.remove(() => true);
      for (const job of [...this.#waiting]) this.#drop(job, error);
      return this.#finished();
    }
    await this.#finished();
    // Bottleneck waits in a job of its own, which counts as done.
    const { id } = jobSettings({});
    this.#lifecycle.start(id);
    for (const _ of STATUSES) this.#lifecycle.next(id);
  }

  /** Ends the timers and the calls of the limiter. Queued jobs do not start any more. */
  disconnect(_flush?: boolean): Promise<void> {
    return this.#turns.close();
  }

  /** Sends a text to the `message` listeners of this limiter. */
  async publish(message: string): Promise<void> {
    await this.#events.trigger("message", message);
  }

  /** Returns no client, as without Redis in Bottleneck. */
  clients(): { client?: unknown; subscriber?: unknown } {
    return {};
  }

  /** Returns the name under which Bottleneck would publish messages. */
  channel(): string {
    return `b_${this.id}`;
  }

  /** Returns since when no job holds or waits for anything: milliseconds, or null while one does. */
  idleSince(): number | null {
    const active = STATUSES.some((status) => this.#lifecycle.count(status) > 0);
    return active ? null : Math.max(this.#idleFrom, this.#limits.quietFrom);
  }

  #turnsOf({ client, connection }: ConstructorOptions): Turns {
    const uses = {
      launch: (job: Job, start: Start) => this.#launch(job, start),
      fail: (job: Job | undefined, error: unknown) => {
        this.#trigger("error", error);
        if (job) this.#drop(job, error);
      },
    };
    if (this.datastore === "local" && !connection) return new LocalTurns(this.#limits, this.#clock, this.#queue, uses);
    if (this.datastore !== "politely") throw new BottleneckError(redisAdvice(connection ? "connection" : "datastore"));
    if (this.id === NO_ID) throw new BottleneckError('datastore "politely" needs an id, which names the shared limits');
    return new SharedTurns(this.id, client, this.#limits, this.#clock, this.#queue, uses);
  }

  #adopt(options: ConstructorOptions): void {
    if (options.id !== undefined) this.id = options.id ?? NO_ID;
    if (options.rejectOnDrop !== undefined) this.#rejectOnDrop = options.rejectOnDrop ?? true;
    if (options.Promise) this.#Promise = options.Promise as PromiseConstructor;
  }

  async #receive(job: Job): Promise<void> {
    if (this.#refusal !== null) return job.reject(new BottleneckError(this.#refusal));
    if (this.#lifecycle.jobStatus(job.key) !== null) {
      return job.reject(new BottleneckError(`A job with the same id already exists (id=${job.key})`));
    }
    this.#lifecycle.start(job.key);
    this.#waiting.add(job);
    this.#trigger("received", job.info);
    await undefined; // The caller sees the job as received before it is queued.
    if (this.#waiting.has(job)) this.#offer(job);
  }

  /** Makes room for a job as the strategy says, and puts it into the queue or drops it. */
  #offer(job: Job): void {
    const { priority, weight } = job.options;
    let offer;
    try {
      offer = this.#turns.offer(weight);
    } catch (error) {
      return this.#drop(job, error);
    }
    if (offer.blocked) {
      for (const queued of this.#queue.remove(() => true)) this.#drop(queued);
      return this.#drop(job);
    }
    if (offer.reachedHighWater) {
      const from = { [strategy.LEAK]: priority, [strategy.OVERFLOW_PRIORITY]: priority + 1 } as Record<number, number>;
      const shed = this.#queue.shed(from[this.settings.strategy] ?? PRIORITIES);
      if (shed === undefined) return this.#drop(job);
      this.#drop(shed);
    }
    this.#enqueue(job, offer.reachedHighWater);
  }

  #enqueue(job: Job, reachedHWM = false): void {
    this.#lifecycle.next(job.key);
    this.#queue.push(job, job.options.priority);
    this.#trigger("queued", { ...job.info, reachedHWM, blocked: false });
    this.#turns.drain();
  }

  #drop(job: Job, error: unknown = new BottleneckError("This job has been dropped by Bottleneck")): void {
    if (this.#lifecycle.jobStatus(job.key) === "RUNNING") this.#turns.release(job, "dropped");
    job.cancelStart?.();
    this.#lifecycle.remove(job.key);
    this.#waiting.delete(job);
    if (this.#rejectOnDrop) job.reject(error);
    this.#trigger("dropped", { ...job.info, task: job.task, promise: job.promise });
  }

  /** A job has left the queue: it executes after `start.wait` milliseconds. */
  #launch(job: Job, start: Start): void {
    const empty = this.empty();
    this.#lifecycle.next(job.key);
    this.#trigger("scheduled", job.info);
    job.cancelStart = this.#clock.after(start.wait, () => {
      this.#waiting.delete(job);
      this.#lifecycle.next(job.key);
      void this.#execute(job);
    });
    if (empty) this.#trigger("empty");
    if (start.reservoir === 0) this.#trigger("depleted", empty);
  }

  async #execute(job: Job): Promise<void> {
    this.#trigger("executing", job.attempt);
    let end: End = "resolved";
    let settle;
    try {
      const value = await this.#expiring(job);
      settle = () => job.resolve(value);
    } catch (error) {
      const delay = await this.#events.trigger("failed", error, job.attempt);
      if (typeof delay === "number") {
        this.#trigger("retry", `Retrying ${job.key} after ${delay} ms`, job.attempt);
        job.retryCount += 1;
        this.#clock.after(delay, () => void this.#execute(job));
        return;
      }
      end = "rejected";
      settle = () => job.reject(error);
    }
    this.#idleFrom = this.#clock.now();
    this.#lifecycle.next(job.key);
    this.#trigger("done", job.attempt);
    this.#turns.release(job, end);
    if (this.empty() && (await this.#turns.running()) === 0) this.#trigger("idle");
    settle();
    this.#onEnd();
    this.#turns.drain();
  }

  /** Runs the task. It fails when its expiration is over; its own end then comes too late. */
  async #expiring(job: Job): Promise<unknown> {
    const { expiration } = job.options;
    const run = async () =>
      this.#next === null
        ? (job.task as (...args: unknown[]) => unknown)(...job.args)
        : this.#next.schedule(job.options, job.task as (...args: unknown[]) => unknown, ...job.args);
    if (expiration === null) return run();
    return new Promise((resolve, reject) => {
      const error = new BottleneckError(`This job timed out after ${expiration} ms.`);
      const cancel = this.#clock.after(expiration, () => reject(error));
      void run().then(resolve, reject).finally(cancel);
    });
  }

  /** Waits until no job executes or waits for that. */
  #finished(): Promise<void> {
    return new Promise((resolve) => {
      this.#onEnd = () => {
        if (this.#waiting.size + this.#lifecycle.count("EXECUTING") === 0) resolve();
      };
      this.#onEnd();
    });
  }

  #trigger(name: keyof LimiterEvents, ...args: unknown[]): void {
    void this.#events.trigger(name, ...args);
  }
}

/** Splits the arguments of a call, of which the options may be left out. */
function parts(call: unknown[]): { options: JobOptions; task: Task; args: unknown[] } {
  const [first, ...rest] = call;
  if (typeof first === "function") return { options: {}, task: first as Task, args: rest };
  const [task, ...args] = rest;
  if (typeof task !== "function") throw new BottleneckError("a job needs a function: schedule([options], task)");
  return { options: first ?? {}, task: task as Task, args };
}
