import { BottleneckError } from "./error.js";
import { changed, DEFAULT_SETTINGS, type Settings, type SettingsOptions, strategy } from "./settings.js";

/** Whether a new job may enter the queue. */
export interface Offer {
  /** The queue is full, and the job cannot start at once. */
  reachedHighWater: boolean;
  /** The strategy `BLOCK` drops the job and the queue. */
  blocked: boolean;
}

/** The start of a job. */
export interface Start {
  /** Milliseconds until the job may execute. */
  wait: number;
  /** The rest of the reservoir. */
  reservoir: number | null;
}

/**
 * The limits of one limiter: a state machine that is told the time (`now`, in milliseconds).
 *
 * The reservoir is filled when a call looks at it, so a limiter without waiting jobs has no timer.
 */
export class Limits {
  #settings: Settings;
  #running = 0;
  #done = 0;
  #now: number;
  #nextStart: number;
  #unblocked: number;
  #refreshed: number;
  #increased: number;

  constructor(options: SettingsOptions, now: number) {
    this.#settings = changed(DEFAULT_SETTINGS, options);
    this.#now = now;
    this.#nextStart = now;
    this.#unblocked = now;
    this.#refreshed = now;
    this.#increased = now;
  }

  get settings(): Readonly<Settings> {
    return this.#settings;
  }

  /** The weight of the jobs that have started and not ended. */
  get running(): number {
    return this.#running;
  }

  /** The weight of the jobs that have ended. */
  get done(): number {
    return this.#done;
  }

  /** The time from which the limits hold nothing back, if no job runs. */
  get quietFrom(): number {
    return Math.max(this.#nextStart, this.#unblocked);
  }

  /** Returns the settings that `update` would set. */
  changed(options: SettingsOptions): Settings {
    return changed(this.#settings, options);
  }

  /** Changes settings. An interval that begins counts from now. */
  update(options: SettingsOptions, now: number): void {
    this.#advance(now);
    const before = this.#settings;
    this.#settings = this.changed(options);
    if (before.reservoirRefreshInterval === null) this.#refreshed = now;
    if (before.reservoirIncreaseInterval === null) this.#increased = now;
  }

  /** Returns the reservoir, or null without one. */
  reservoir(now: number): number | null {
    this.#advance(now);
    return this.#settings.reservoir;
  }

  /** Adds to the reservoir and returns it. Without one, it begins at 0. */
  incrementReservoir(amount: number, now: number): number {
    this.#advance(now);
    return (this.#settings.reservoir = (this.#settings.reservoir ?? 0) + amount);
  }

  /** Returns whether a job of this weight would execute at once. */
  wouldStart(weight: number, now: number): boolean {
    this.#advance(now);
    return weight <= this.#capacity() && now >= this.quietFrom;
  }

  /**
   * Says whether a job may enter the queue, which has `queued` jobs, or starts at once.
   * Throws `BottleneckError` if the job can never start.
   */
  offer(queued: number, weight: number, startsNow: boolean, now: number): Offer {
    this.#advance(now);
    const { maxConcurrent, highWater, minTime, penalty } = this.#settings;
    if (!(weight >= 0)) throw new BottleneckError(`the weight of a job is a number from 0, not ${weight}`);
    if (maxConcurrent !== null && weight > maxConcurrent) {
      throw new BottleneckError(
        `Impossible to add a job having a weight of ${weight} ` +
          `to a limiter having a maxConcurrent setting of ${maxConcurrent}`,
      );
    }
    const reachedHighWater = highWater !== null && queued >= highWater && !startsNow;
    const blocks = this.#settings.strategy === strategy.BLOCK;
    const blocked = blocks && (reachedHighWater || now < this.#unblocked);
    if (blocked) this.#unblocked = now + (penalty ?? (15 * minTime || 5000));
    return { reachedHighWater, blocked };
  }

  /** Takes what a job needs, or returns null if it has to wait in the queue. */
  start(weight: number, now: number): Start | null {
    this.#advance(now);
    if (weight > this.#capacity()) return null;
    const wait = Math.max(this.#nextStart, this.#unblocked, now) - now;
    this.#running += weight;
    if (this.#settings.reservoir !== null) this.#settings.reservoir -= weight;
    this.#nextStart = now + wait + this.#settings.minTime;
    return { wait, reservoir: this.#settings.reservoir };
  }

  /** Gives back what an ended job held. A job that did not execute is not counted as done. */
  finish(weight: number, executed: boolean): void {
    this.#running -= weight;
    if (executed) this.#done += weight;
  }

  /** Returns when the reservoir may have room for a job that waits, or null if no time brings it. */
  nextRefill(weight: number, now: number): number | null {
    this.#advance(now);
    const { reservoir } = this.#settings;
    if (reservoir === null || weight <= reservoir) return null;
    const { refresh, increase } = this.#intervals();
    const refill = Math.min(this.#refreshed + refresh, this.#increased + increase);
    return refill === Infinity ? null : refill;
  }

  #capacity(): number {
    const { maxConcurrent, reservoir } = this.#settings;
    return Math.min((maxConcurrent ?? Infinity) - this.#running, reservoir ?? Infinity);
  }

  /** Applies the intervals that have passed. A clock that was set back keeps the waits as they are. */
  #advance(now: number): void {
    const back = Math.max(this.#now - now, 0);
    this.#now = now;
    this.#nextStart -= back;
    this.#unblocked -= back;
    this.#refreshed -= back;
    this.#increased -= back;

    const settings = this.#settings;
    const { refresh, increase } = this.#intervals();
    const refreshes = Math.floor((now - this.#refreshed) / refresh);
    if (refreshes > 0) {
      this.#refreshed += refresh * refreshes;
      settings.reservoir = settings.reservoirRefreshAmount;
    }
    const increases = Math.floor((now - this.#increased) / increase);
    if (increases > 0) {
      this.#increased += increase * increases;
      const before = settings.reservoir ?? 0;
      const sum = before + increases * (settings.reservoirIncreaseAmount ?? 0);
      // An operator may have set more than the maximum: an increase never takes that away.
      const maximum = Math.max(settings.reservoirIncreaseMaximum ?? Infinity, before);
      settings.reservoir = Math.min(sum, maximum);
    }
  }

  /** The milliseconds between refreshes and between increases, infinite if there are none. */
  #intervals(): { refresh: number; increase: number } {
    const settings = this.#settings;
    const interval = (ms: number | null, amount: number | null) => (amount === null ? Infinity : ms || Infinity);
    return {
      refresh: interval(settings.reservoirRefreshInterval, settings.reservoirRefreshAmount),
      increase: interval(settings.reservoirIncreaseInterval, settings.reservoirIncreaseAmount),
    };
  }
}
