import assert from "node:assert/strict";
import { test } from "node:test";

import Bottleneck from "../../src/bottleneck/index.js";
import { FakeClock } from "./fake_clock.js";

test("a group makes one limiter per key, and tells of it before it is used", () => {
  const group = new Bottleneck.Group({ maxConcurrent: 1, id: "hosts" });
  const created: string[] = [];
  group.on("created", (limiter, key) => created.push(`${key} ${limiter.id}`));
  assert.equal(group.key("a"), group.key("a"));
  assert.equal(group.key("__proto__").id, "hosts-__proto__");
  assert.deepEqual(created, ["a hosts-a", "__proto__ hosts-__proto__"]);
  assert.deepEqual(group.keys(), ["a", "__proto__"]);
});

test("a group's new settings count for limiters to come", () => {
  const group = new Bottleneck.Group({ maxConcurrent: 1, minTime: 5 });
  const minTime = (key: string) => group.key(key).settings.minTime;
  minTime("old");
  group.updateSettings({ minTime: 7 });
  assert.deepEqual([minTime("old"), minTime("new"), group.key("new").settings.maxConcurrent], [5, 7, 1]);
});

test("a group forgets a limiter after its timeout without jobs", async () => {
  const clock = new FakeClock();
  const group = new Bottleneck.Group({ timeout: 1000, clock });
  const job = group.key("busy").schedule(() => new Promise<void>((resolve) => clock.after(5000, resolve)));
  void group.key("short").schedule(async () => {});
  await clock.pass(4000);
  assert.deepEqual(group.keys(), ["busy"]);
  await clock.pass(1900);
  await job;
  assert.deepEqual(group.keys(), ["busy"]);
  await clock.pass(1000);
  assert.deepEqual([group.keys(), clock.pending], [[], 0]);
});

test("a deleted key gets a new limiter", async () => {
  const group = new Bottleneck.Group();
  const limiter = group.key("a");
  assert.deepEqual([await group.deleteKey("a"), await group.deleteKey("a")], [true, false]);
  assert.notEqual(group.key("a"), limiter);
});

test("a batcher passes on what came within maxTime, or maxSize of it", async () => {
  const clock = new FakeClock();
  const batcher = new Bottleneck.Batcher({ maxTime: 50, maxSize: 3, clock });
  const batches: unknown[] = [];
  batcher.on("batch", (batch) => batches.push(batch));
  const begin = clock.now();
  const times: number[] = [];
  const add = (data: number) => void batcher.add(data).then(() => times.push(clock.now() - begin));
  [1, 2, 3, 4].forEach(add);
  await clock.pass(30);
  add(5);
  await clock.pass(100);
  add(6);
  await clock.pass(100);
  assert.deepEqual(batches, [[1, 2, 3], [4, 5], [6]]);
  assert.deepEqual(times, [0, 0, 0, 50, 50, 180]);
  assert.equal(clock.pending, 0);
});
