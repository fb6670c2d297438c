import { PRIORITIES } from "./queue.js";

/** Drops jobs while `highWater` jobs are queued. The numbers are those of Bottleneck. */
export const strategy = {
  /** Drops the oldest job of the last priority, if the new job has the same or an earlier one. */
  LEAK: 1,
  /** Drops the new job. */
  OVERFLOW: 2,
  /** Drops all queued jobs, and new ones until none came for `penalty` milliseconds. */
  BLOCK: 3,
  /** Drops the oldest job of the last priority, if the new job has an earlier one. */
  OVERFLOW_PRIORITY: 4,
} as const;

export type Strategy = (typeof strategy)[keyof typeof strategy];

/** The limits of a limiter's jobs. Times are in milliseconds; null is no limit. */
export interface Settings {
  /** The largest weight of jobs that run at once. Default: null. */
  maxConcurrent: number | null;
  /** The time between the starts of two jobs. Default: 0. */
  minTime: number;
  /** The most queued jobs. Default: null. */
  highWater: number | null;
  /** The fate of a job above `highWater`. Default: `LEAK`. */
  strategy: Strategy;
  /** The time for which `BLOCK` refuses jobs. Default: 15 times `minTime`, or 5000 if that is 0. */
  penalty: number | null;
  /** The weight of jobs that may still start. Default: null. */
  reservoir: number | null;
  /** After each such time, `reservoir` becomes `reservoirRefreshAmount`. Default: null. */
  reservoirRefreshInterval: number | null;
  reservoirRefreshAmount: number | null;
  /** After each such time, `reservoir` grows by `reservoirIncreaseAmount`. Default: null. */
  reservoirIncreaseInterval: number | null;
  reservoirIncreaseAmount: number | null;
  /** `reservoirIncreaseAmount` does not raise the reservoir above this. Default: null. */
  reservoirIncreaseMaximum: number | null;
}

export type SettingsOptions = { [Name in keyof Settings]?: Settings[Name] | null | undefined };

export const DEFAULT_SETTINGS: Readonly<Settings> = {
  maxConcurrent: null,
  minTime: 0,
  highWater: null,
  strategy: strategy.LEAK,
  penalty: null,
  reservoir: null,
  reservoirRefreshInterval: null,
  reservoirRefreshAmount: null,
  reservoirIncreaseInterval: null,
  reservoirIncreaseAmount: null,
  reservoirIncreaseMaximum: null,
};

/** Options of one job. */
export interface JobOptions {
  /** 0 to 9; jobs with a smaller number leave the queue first. Default: 5. */
  priority?: number | null | undefined;
  /** The share of the job in `maxConcurrent` and `reservoir`, a whole number from 0. Default: 1. */
  weight?: number | null | undefined;
  /** The milliseconds after which an executing job fails. Default: null, never. */
  expiration?: number | null | undefined;
  /** The job's name, which no other job of the limiter may have. Default: a generated one. */
  id?: string | null | undefined;
}

/** The options of a job, complete. */
export interface JobSettings {
  priority: number;
  weight: number;
  expiration: number | null;
  id: string;
}

/** The id of jobs and limiters that were given none. */
export const NO_ID = "<no-id>";

const DEFAULT_PRIORITY = 5;

let unnamed = 0;

/** Returns complete options. A wrong priority becomes the nearest that exists, or the default. */
export function jobSettings({ priority, weight, expiration, id }: JobOptions): JobSettings {
  const asked = Number.isInteger(priority) ? (priority as number) : DEFAULT_PRIORITY;
  return {
    priority: Math.min(Math.max(asked, 0), PRIORITIES - 1),
    weight: weight ?? 1,
    expiration: expiration ?? null,
    id: (id ?? NO_ID) === NO_ID ? `${NO_ID}-${(unnamed += 1)}` : id!,
  };
}

/** Returns `settings` with the changes of `options`, in which null means the default. */
export function changed(settings: Readonly<Settings>, options: SettingsOptions): Settings {
  const names = Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[];
  const changes = names
    .filter((name) => options[name] !== undefined)
    .map((name) => [name, options[name] ?? DEFAULT_SETTINGS[name]]);
  return { ...settings, ...Object.fromEntries(changes) };
}
