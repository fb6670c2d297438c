import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import Bottleneck from "../../src/bottleneck/index.js";
import { FakeClock } from "./fake_clock.js";

type Options = Bottleneck.ConstructorOptions;

/** A limiter whose jobs take `ms` milliseconds, and the times and names of their starts. */
function started(options: Options) {
  const clock = new FakeClock();
  const begin = clock.now();
  const limiter = new Bottleneck({ ...options, clock });
  const log: string[] = [];
  const job = (name: string, ms = 0, settings: Bottleneck.JobOptions = {}) =>
    limiter.schedule(settings, () => {
      log.push(`${name}@${clock.now() - begin}`);
      return new Promise<string>((resolve) => clock.after(ms, () => resolve(name)));
    });
  return { clock, limiter, log, job };
}

function silent(promise: Promise<unknown>): void {
  promise.catch(() => {});
}

test("jobs start minTime apart while maxConcurrent allows", async () => {
  const { clock, log, job } = started({ maxConcurrent: 2, minTime: 10 });
  for (const name of ["a", "b", "c", "d"]) void job(name, 50);
  await clock.pass(200);
  assert.deepEqual(log, ["a@0", "b@10", "c@50", "d@60"]);
});

test("jobs of an earlier priority leave first, and those of one in their order", async () => {
  const { clock, limiter, log, job } = started({ maxConcurrent: 1 });
  const names = { a: 5, b: 5, c: 9, d: 0, e: 5, f: 42, g: -1, h: 1.5 };
  for (const [name, priority] of Object.entries(names)) void job(name, 1, { priority });
  await clock.pass(0);
  assert.deepEqual([limiter.queued(), limiter.queued(9), limiter.queued(0)], [7, 2, 2]);
  await clock.pass(20);
  assert.equal(log.map((line) => line[0]).join(""), "adgbehcf");
});

for (const [name, strategy, left] of [
  ["LEAK", Bottleneck.strategy.LEAK, "aed"],
  ["OVERFLOW", Bottleneck.strategy.OVERFLOW, "abc"],
  ["OVERFLOW_PRIORITY", Bottleneck.strategy.OVERFLOW_PRIORITY, "aec"],
  ["BLOCK", Bottleneck.strategy.BLOCK, "a"],
] as const) {
  test(`${name} leaves the jobs ${left} of a full queue`, async () => {
    const { clock, limiter, log, job } = started({ maxConcurrent: 1, highWater: 2, strategy });
    const dropped: unknown[] = [];
    limiter.on("dropped", ({ options }) => dropped.push(options.id));
    const priorities = { a: 5, b: 5, c: 5, d: 5, e: 4, f: 9 };
    for (const [id, priority] of Object.entries(priorities)) silent(job(id, 1, { id, priority }));
    await clock.pass(100);
    assert.equal(log.map((line) => line[0]).join(""), left);
    assert.equal(dropped.length, 6 - left.length);
  });
}

test("a dropped job fails with BottleneckError, or stays open without rejectOnDrop", async () => {
  for (const rejectOnDrop of [true, false]) {
    const { clock, job } = started({ maxConcurrent: 1, highWater: 0, rejectOnDrop });
    void job("a", 10);
    let error: unknown;
    job("b").catch((reason: unknown) => (error = reason));
    await clock.pass(20);
    assert.equal(error instanceof Bottleneck.BottleneckError, rejectOnDrop);
  }
});

test("an expired job fails, and its slot goes to the next one", async () => {
  const { clock, limiter, log, job } = started({ maxConcurrent: 1 });
  const slow = assert.rejects(job("slow", 1000, { expiration: 30 }), { message: "This job timed out after 30 ms." });
  const next = job("next");
  await clock.pass(30);
  await slow;
  assert.equal(await next, "next");
  assert.deepEqual(log, ["slow@0", "next@30"]);
  assert.deepEqual([await limiter.running(), await limiter.done()], [0, 2]);
});

test("a job is repeated after the time that a failed listener returns", async () => {
  const { clock, limiter } = started({ maxConcurrent: 1 });
  const begin = clock.now();
  const times: number[] = [];
  limiter.on("failed", (_, { retryCount }) => (retryCount < 2 ? 25 : null));
  const job = limiter.schedule(async () => {
    times.push(clock.now() - begin);
    throw new Error("boom");
  });
  silent(job);
  await clock.pass(100);
  await assert.rejects(job, { message: "boom" });
  assert.deepEqual(times, [0, 25, 50]);
});

test("an error of a listener is an error event, and the job goes on", async () => {
  const { clock, limiter, job } = started({});
  const errors: string[] = [];
  limiter.on("error", (error) => errors.push(error.message));
  limiter.on("executing", () => assert.fail("at once"));
  limiter.on("done", async () => assert.fail("later"));
  const done = job("a");
  await clock.pass(1);
  assert.equal(await done, "a");
  assert.deepEqual(errors, ["at once", "later"]);
});

test("a job reports each step of its life", async () => {
  const { clock, limiter, job } = started({ trackDoneStatus: true });
  const seen: string[] = [];
  for (const name of ["received", "queued", "scheduled", "executing", "done", "empty", "idle"] as const) {
    limiter.on(name, () => seen.push(`${name} ${limiter.jobStatus("j") ?? ""}`));
  }
  void job("j", 1, { id: "j" });
  await clock.pass(5);
  assert.deepEqual(seen, [
    "received RECEIVED", "queued QUEUED", "scheduled RUNNING", "empty RUNNING", "executing EXECUTING",
    "done DONE", "idle DONE",
  ]);
  assert.deepEqual(limiter.counts(), { RECEIVED: 0, QUEUED: 0, RUNNING: 0, EXECUTING: 0, DONE: 1 });
  await assert.rejects(job("again", 0, { id: "j" }), { message: "A job with the same id already exists (id=j)" });
});

test("a limiter without jobs has no timer, whatever its reservoir", async () => {
  const { clock, limiter, job } = started({ reservoir: 1, reservoirRefreshAmount: 1, reservoirRefreshInterval: 100 });
  assert.equal(clock.pending, 0);
  void job("a");
  await clock.pass(1);
  assert.equal(clock.pending, 0);
  void job("b");
  await clock.pass(1);
  assert.equal(clock.pending, 1);
  await limiter.disconnect();
  assert.equal(clock.pending, 0);
});

test("waiting jobs start when the reservoir is filled, by time or by hand", async () => {
  const refresh = { reservoirRefreshAmount: 1, reservoirRefreshInterval: 100 };
  const { clock, limiter, log, job } = started({ reservoir: 0, ...refresh });
  const depleted: boolean[] = [];
  limiter.on("depleted", (empty) => depleted.push(empty));
  for (const name of ["a", "b", "c"]) void job(name);
  await clock.pass(150);
  assert.equal(await limiter.incrementReservoir(1), 1);
  await clock.pass(20);
  await limiter.updateSettings({ reservoir: null });
  await clock.pass(20);
  assert.deepEqual(log, ["a@100", "b@150", "c@170"]);
  assert.deepEqual(depleted, [false, false]);
});

test("stop drops the jobs that do not execute, and waits for the others", async () => {
  const { clock, limiter, log, job } = started({ maxConcurrent: 2, minTime: 50 });
  const first = job("a", 100);
  const dropped = ["b", "c"].map((name) => assert.rejects(job(name), { message: "gone" }));
  await clock.pass(10);
  const received = assert.rejects(job("d"), { message: "gone" });
  let stopped = false;
  const stop = limiter.stop({ dropErrorMessage: "gone", enqueueErrorMessage: "closed" }).then(() => (stopped = true));
  await Promise.all([...dropped, received]);
  await assert.rejects(job("e"), { message: "closed" });
  assert.deepEqual([stopped, await limiter.running()], [false, 1]);
  await clock.pass(100);
  await Promise.all([first, stop]);
  await assert.rejects(limiter.stop(), { message: "stop() has already been called" });
  assert.deepEqual(log, ["a@0"]);
});

test("stop can wait until the queue is empty", async () => {
  const full = { highWater: 2, strategy: Bottleneck.strategy.OVERFLOW };
  const { clock, limiter, log, job } = started({ maxConcurrent: 1, ...full });
  for (const name of ["a", "b", "c"]) void job(name, 10);
  await clock.pass(0);
  const stop = limiter.stop({ dropWaitingJobs: false });
  await clock.pass(100);
  await stop;
  assert.deepEqual(log, ["a@0", "b@10", "c@20"]);
});

test("a chained limiter holds the jobs of both", async () => {
  const clock = new FakeClock();
  const common = new Bottleneck({ maxConcurrent: 1, clock });
  const [a, b] = [new Bottleneck({ clock }).chain(common), new Bottleneck({ clock }).chain(common)];
  const begin = clock.now();
  const times: number[] = [];
  const task = () => {
    times.push(clock.now() - begin);
    return new Promise<void>((resolve) => clock.after(10, resolve));
  };
  const all = [a.schedule(task), b.schedule(task), a.schedule(task)];
  await clock.pass(100);
  await Promise.all(all);
  assert.deepEqual(times, [0, 10, 20]);
  a.chain(null);
  void Promise.all([a.schedule(task), b.schedule(task)]);
  await clock.pass(100);
  assert.deepEqual(times.slice(3), [100, 100]);
});

test("submit passes the results of its job on, and each error", async () => {
  const { clock, limiter } = started({ maxConcurrent: 1 });
  const heard: unknown[][] = [];
  const hear = (...results: unknown[]) => heard.push(results);
  const echo = (error: unknown, a: number, done: (...answer: any[]) => void) => {
    done(error, a, "more");
    done("a second call is ignored");
  };
  void limiter.submit(echo, null, 1, hear);
  void limiter.submit({ priority: 9 }, echo, "wrong", 2, hear);
  void limiter.submit((_done) => assert.fail("thrown"), hear);
  void limiter.submit(echo, null, 4, null);
  await clock.pass(10);
  assert.deepEqual(heard.slice(0, 1), [[null, 1, "more"]]);
  assert.equal((heard[1]![0] as Error).message, "thrown");
  assert.deepEqual(heard.slice(2), [["wrong", 2, "more"]]);
});

test("a wrapped function keeps its types and its this", async () => {
  const { clock, limiter } = started({});
  const counter = { step: 2, next: limiter.wrap(function (this: any, n: number) { return n + this.step; }) };
  const sum: Promise<number> = counter.next(3);
  const other = limiter.wrap(async (n: number) => n * 2).withOptions({ priority: 1 }, 21);
  await clock.pass(1);
  assert.deepEqual([await sum, await other], [5, 42]);
});

test("Redis is an error that says what to write instead", () => {
  const advice = { name: "BottleneckError", message: /write datastore: "politely", and set POLITELY_COORDINATOR/ };
  assert.throws(() => new Bottleneck({ datastore: "redis" }), advice);
  assert.throws(() => new Bottleneck({ datastore: "ioredis", id: "a" }), advice);
  assert.throws(() => new Bottleneck.IORedisConnection(), advice);
  assert.throws(() => new Bottleneck({ connection: {} }), advice);
});

test("require returns the class itself", () => {
  const required = createRequire(import.meta.url)("../../src/bottleneck/index.js");
  assert.equal(required, Bottleneck);
  assert.ok(new required() instanceof Bottleneck);
});
