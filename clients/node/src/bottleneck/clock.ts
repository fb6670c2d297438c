/** The time and the timers of a limiter. Tests replace both. */
export interface Clock {
  /** Returns the time in milliseconds. */
  now(): number;
  /**
   * Calls `run` once `ms` milliseconds have passed, unless the returned function is called before.
   * A timer that is not `alive` lets the process end.
   */
  after(ms: number, run: () => void, alive?: boolean): Cancel;
}

export type Cancel = () => void;

/** A longer delay overflows in `setTimeout`, which then fires at once. */
const LONGEST_MS = 2 ** 31 - 1;

/** `setTimeout` may fire this much before `Date.now()` has reached its time. */
const EARLY_MS = 2;

/** The clock is `Date.now()`, because fake timers of tests replace it. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run, alive = true) {
    if (ms <= 0) {
      const immediate = setImmediate(run);
      return () => clearImmediate(immediate);
    }
    if (ms > LONGEST_MS) {
      let cancel = this.after(LONGEST_MS, () => (cancel = this.after(ms - LONGEST_MS, run, alive)), alive);
      return () => cancel();
    }
    const due = Date.now() + ms;
    let timer = setTimeout(() => {
      const left = due - Date.now();
      if (left > 0 && left <= EARLY_MS) timer = setTimeout(run, left);
      else run();
    }, ms);
    if (!alive) timer.unref();
    return () => clearTimeout(timer);
  },
};
