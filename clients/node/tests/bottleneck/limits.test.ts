import assert from "node:assert/strict";
import { test } from "node:test";

import { Limits } from "../../src/bottleneck/limits.js";
import { strategy } from "../../src/bottleneck/settings.js";

test("jobs start minTime apart, however early they ask", () => {
  const limits = new Limits({ minTime: 100 }, 0);
  const starts = [0, 0, 30, 500].map((now) => now + limits.start(1, now)!.wait);
  assert.deepEqual(starts, [0, 100, 200, 500]);
});

test("a job above maxConcurrent waits until enough weight has ended", () => {
  const limits = new Limits({ maxConcurrent: 3 }, 0);
  assert.ok(limits.start(2, 0));
  assert.equal(limits.start(2, 0), null);
  assert.ok(limits.start(1, 0));
  limits.finish(2, true);
  assert.ok(limits.start(2, 0));
  assert.deepEqual([limits.running, limits.done], [3, 2]);
});

test("a job heavier than maxConcurrent, or of no weight, is refused at once", () => {
  const limits = new Limits({ maxConcurrent: 2 }, 0);
  for (const weight of [-1, NaN]) assert.throws(() => limits.offer(0, weight, true, 0), /a number from 0/);
  assert.throws(() => limits.offer(0, 3, false, 0), { name: "BottleneckError", message: /weight of 3/ });
});

test("a refresh sets the reservoir at multiples of its interval", () => {
  const refresh = { reservoir: 2, reservoirRefreshAmount: 5, reservoirRefreshInterval: 100 };
  const limits = new Limits(refresh, 1000);
  assert.deepEqual([1000, 1099, 1100].map((now) => limits.reservoir(now)), [2, 2, 5]);
  limits.start(4, 1150);
  assert.equal(limits.nextRefill(4, 1150), 1200);
  assert.deepEqual([1199, 1350, 1399].map((now) => limits.reservoir(now)), [1, 5, 5]);
});

test("an increase adds for each interval, up to its maximum", () => {
  const increase = {
    reservoir: 0,
    reservoirIncreaseAmount: 2,
    reservoirIncreaseInterval: 100,
    reservoirIncreaseMaximum: 5,
  };
  const limits = new Limits(increase, 0);
  assert.deepEqual([99, 100, 250, 300].map((now) => limits.reservoir(now)), [0, 2, 4, 5]);
});

test("an increase takes nothing away from a reservoir above its maximum", () => {
  const increase = { reservoirIncreaseAmount: 2, reservoirIncreaseInterval: 100, reservoirIncreaseMaximum: 5 };
  const limits = new Limits({ reservoir: 40, ...increase }, 0);
  assert.equal(limits.reservoir(1000), 40);
});

test("an interval that is set later counts from then", () => {
  const limits = new Limits({ reservoir: 0 }, 0);
  assert.equal(limits.nextRefill(1, 950), null);
  limits.update({ reservoirRefreshAmount: 1, reservoirRefreshInterval: 100 }, 950);
  assert.equal(limits.nextRefill(1, 960), 1050);
});

test("a setting of null is the default, and an absent one stays", () => {
  const limits = new Limits({ maxConcurrent: 1, minTime: 50, highWater: 3 }, 0);
  limits.update({ maxConcurrent: null, minTime: null }, 0);
  assert.deepEqual([limits.settings.maxConcurrent, limits.settings.minTime, limits.settings.highWater], [null, 0, 3]);
});

test("BLOCK refuses jobs until none came for the penalty", () => {
  const limits = new Limits({ highWater: 1, strategy: strategy.BLOCK, penalty: 100 }, 0);
  const blocked = (queued: number, now: number) => limits.offer(queued, 1, false, now).blocked;
  assert.deepEqual([blocked(0, 0), blocked(1, 0), blocked(0, 99), blocked(0, 198), blocked(0, 298)], [
    false, true, true, true, false,
  ]);
});

test("the penalty of BLOCK is 15 times minTime, or five seconds", () => {
  for (const [minTime, penalty] of [[10, 150], [0, 5000]] as const) {
    const limits = new Limits({ highWater: 0, strategy: strategy.BLOCK, minTime }, 0);
    limits.offer(0, 1, false, 0);
    assert.equal(limits.quietFrom, penalty);
  }
});

test("a clock that was set back does not lengthen a wait", () => {
  const limits = new Limits({ minTime: 100, reservoirRefreshAmount: 1, reservoirRefreshInterval: 1000 }, 3_600_000);
  limits.start(1, 3_600_000);
  assert.equal(limits.start(1, 40)!.wait, 100);
  assert.equal(limits.reservoir(1040), 1);
});

test("no order of calls exceeds a limit", () => {
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  for (let round = 0; round < 200; round += 1) {
    const amount = 1 + random(10);
    const settings = { maxConcurrent: 1 + random(5), minTime: random(50) };
    const limits = new Limits(
      { ...settings, reservoir: amount, reservoirRefreshAmount: amount, reservoirRefreshInterval: 100 },
      0,
    );
    let now = 0;
    let running: number[] = [];
    const starts: number[] = [];
    const spent = new Map<number, number>();
    for (let step = 0; step < 200; step += 1) {
      now += random(20);
      const weight = random(settings.maxConcurrent + 1);
      const start = limits.start(weight, now);
      if (start) {
        running.push(weight);
        starts.push(now + start.wait);
        const period = Math.floor(now / 100);
        spent.set(period, (spent.get(period) ?? 0) + weight);
      } else if (running.length > 0) {
        limits.finish(running.shift()!, true);
      }
      assert.ok(running.reduce((sum, each) => sum + each, 0) <= settings.maxConcurrent);
    }
    assert.ok(starts.every((at, i) => i === 0 || at - starts[i - 1]! >= settings.minTime));
    assert.ok([...spent.values()].every((sum) => sum <= amount));
  }
});
