/** Bottleneck's interface, with limits in this process. */
import * as batcher from "./batcher.js";
import { BottleneckError as BottleneckErrorClass, redisAdvice } from "./error.js";
import { Events } from "./events.js";
import * as group from "./group.js";
import * as job from "./job.js";
import * as limiter from "./limiter.js";
import * as settings from "./settings.js";

class NoConnection {
  constructor() {
    throw new BottleneckErrorClass(redisAdvice("connection"));
  }
}

const Bottleneck = Object.assign(limiter.Bottleneck, {
  strategy: settings.strategy,
  BottleneckError: BottleneckErrorClass,
  Events,
  Group: group.Group,
  Batcher: batcher.Batcher,
  default: limiter.Bottleneck,
  RedisConnection: NoConnection,
  IORedisConnection: NoConnection,
});
type Bottleneck = limiter.Bottleneck;

declare namespace Bottleneck {
  type ConstructorOptions = limiter.ConstructorOptions;
  type JobOptions = settings.JobOptions;
  type StopOptions = limiter.StopOptions;
  type Callback<Result> = limiter.Callback<Result>;
  type Strategy = settings.Strategy;
  type Status = limiter.Status;
  type Counts = limiter.Counts;
  type EventInfo = job.EventInfo;
  type EventInfoDropped = job.EventInfoDropped;
  type EventInfoQueued = job.EventInfoQueued;
  type EventInfoRetryable = job.EventInfoRetryable;
  type Group = group.Group;
  type Batcher = batcher.Batcher;
  type BatcherOptions = batcher.BatcherOptions;
  type BottleneckError = BottleneckErrorClass;
  type GroupLimiterPair = { key: string; limiter: Bottleneck };
}

export default Bottleneck;
// `require("politely/bottleneck")` returns the class itself.
export { Bottleneck as "module.exports" };
