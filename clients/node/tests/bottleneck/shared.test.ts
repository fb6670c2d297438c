import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import Bottleneck from "../../src/bottleneck/index.js";
import { declared } from "../../src/bottleneck/shared.js";
import { changed, DEFAULT_SETTINGS } from "../../src/bottleneck/settings.js";
import { Client } from "../../src/client.js";
import { serve } from "../program.js";

/** Two workers' limiters with the same limits, and the coordinator's view of their key. */
async function pair(t: TestContext, options: Bottleneck.ConstructorOptions) {
  const { url, program } = await serve(t);
  const lines: string[] = [];
  const open = (name: string) => {
    const client = new Client({ url, client: name, log: (line) => lines.push(line) });
    const limiter = new Bottleneck({ datastore: "politely", id: "app", client, ...options });
    closed.push(() => limiter.disconnect().then(() => client.close()));
    return limiter;
  };
  const closed: (() => Promise<void>)[] = [];
  const close = async () => void (await Promise.all(closed.map((end) => end())));
  const key = async () => (await fetch(`${url}/api/v1/keys/custom%2Fapp`)).json() as Promise<any>;
  return { one: open("one"), two: open("two"), key, program, lines, [Symbol.asyncDispose]: close };
}

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 5));
}

test("limiters with one id share maxConcurrent", async (t) => {
  await using both = await pair(t, { maxConcurrent: 2 });
  const { one, two, key } = both;
  let running = 0;
  let most = 0;
  const job = async () => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setTimeout(resolve, 10));
    running -= 1;
  };
  await Promise.all([one, two].flatMap((limiter) => Array.from({ length: 10 }, () => limiter.schedule(job))));
  assert.equal(most, 2);
  assert.equal((await key()).granted, 20);
});

test("limiters with one id share minTime", async (t) => {
  await using both = await pair(t, { minTime: 20 });
  const { one, two } = both;
  const begin = performance.now();
  await Promise.all([one, two].flatMap((limiter) => Array.from({ length: 6 }, () => limiter.schedule(async () => {}))));
  assert.ok(performance.now() - begin >= 11 * 20 - 1, "the twelve jobs were too fast");
});

test("a reservoir is a window of the coordinator that counts weights", async (t) => {
  const window = { reservoir: 10, reservoirRefreshAmount: 10, reservoirRefreshInterval: 60_000 };
  await using both = await pair(t, window);
  const { one, two, key } = both;
  await Promise.all([one.schedule({ weight: 4 }, async () => {}), two.schedule({ weight: 4 }, async () => {})]);
  assert.equal((await key()).budgets[0].remaining, 2);
  assert.deepEqual([await one.check(3), await one.check(2)], [false, true]);
  assert.equal((await key()).budgets[0].remaining, 2);
});

test("jobs wait without a warning while the coordinator is lost", async (t) => {
  const warnings: Error[] = [];
  const warn = (warning: Error) => warnings.push(warning);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  await using both = await pair(t, { maxConcurrent: 4 });
  const { one, two, program, lines } = both;
  await Promise.all([one.ready(), two.ready()]);
  await program.end("SIGKILL");
  for (let i = 0; i < 40; i += 1) void one.schedule(async () => assert.fail("it has no permit"));
  await until(async () => lines.some((line) => line.includes("unavailable")));
  // Each call is repeated some times meanwhile. A shorter time would only find less.
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.deepEqual([one.queued(), warnings], [40, []]);
});

test("a permit goes to the job that is first when it comes", async (t) => {
  await using both = await pair(t, { maxConcurrent: 1 });
  const { one } = both;
  const order: string[] = [];
  let end!: () => void;
  const executing = new Promise<unknown>((resolve) => one.once("executing", resolve));
  const first = one.schedule(() => new Promise<void>((resolve) => (end = resolve)));
  await executing;
  const later = one.schedule(async () => void order.push("later"));
  const urgent = one.schedule({ priority: 0 }, async () => void order.push("urgent"));
  end();
  await Promise.all([first, later, urgent]);
  assert.deepEqual(order, ["urgent", "later"]);
  assert.deepEqual([await one.running(), await one.done()], [0, 3]);
});

test("stop waits for the jobs of a coordinator", async (t) => {
  await using both = await pair(t, { maxConcurrent: 1 });
  const { one } = both;
  let ended = 0;
  for (let i = 0; i < 5; i += 1) void one.schedule(async () => void (ended += 1));
  await one.stop({ dropWaitingJobs: false });
  assert.equal(ended, 5);
});

test("changed settings reach the coordinator", async (t) => {
  await using both = await pair(t, { maxConcurrent: 1, minTime: 100 });
  const { one, two, key } = both;
  await Promise.all([one.ready(), two.ready()]);
  await one.updateSettings({ minTime: 50, maxConcurrent: 3 });
  const { limits } = await key();
  assert.deepEqual([limits.rate, limits.in_flight], [20, 3]);
});

test("a job that the coordinator refuses fails with its reason", async (t) => {
  await using both = await pair(t, { reservoirRefreshAmount: 3, reservoirRefreshInterval: 1000 });
  const { one } = both;
  const errors: unknown[] = [];
  one.on("error", (error) => errors.push(error));
  const refused = { name: "BadCall", message: /more than the whole limit 3 points/ };
  await assert.rejects(one.schedule({ weight: 4 }, async () => {}), refused);
  assert.equal(await one.schedule({ weight: 3 }, async () => "fits"), "fits");
  assert.equal(errors.length, 1);
});

test("a failed job gives its slot back and spends its weight", async (t) => {
  const window = { reservoirRefreshAmount: 5, reservoirRefreshInterval: 60_000 };
  await using both = await pair(t, { maxConcurrent: 1, ...window });
  const { one, key } = both;
  await assert.rejects(one.schedule(async () => assert.fail("job")), { message: "job" });
  await one.schedule(async () => {});
  assert.equal((await key()).budgets[0].remaining, 3);
});

test("a disconnected limiter leaves the coordinator's queue", async (t) => {
  await using both = await pair(t, { maxConcurrent: 1 });
  const { one, two, key } = both;
  let end!: () => void;
  const held = one.schedule(() => new Promise<void>((resolve) => (end = resolve)));
  await new Promise<unknown>((resolve) => one.once("executing", resolve));
  void two.schedule(async () => assert.fail("it was disconnected"));
  await until(async () => (await key()).waiting === 1);
  await two.disconnect();
  end();
  await held;
  await until(async () => (await key()).waiting + (await key()).in_flight === 0);
});

test("settings become limits of the coordinator, or an error with one line", () => {
  const of = (options: Bottleneck.ConstructorOptions) => {
    const { law, inFlight, ...limits } = declared(changed(DEFAULT_SETTINGS, options));
    return limits;
  };
  assert.deepEqual(of({ minTime: 250 }), { rate: 4, burst: 1, limits: [] });
  assert.deepEqual(of({ reservoirRefreshAmount: 100, reservoirRefreshInterval: 1500 }), {
    rate: 1e6, burst: 1e6, limits: ["100 points/2s"],
  });
  assert.deepEqual(of({ reservoirIncreaseAmount: 2, reservoirIncreaseInterval: 500, reservoirIncreaseMaximum: 40 }), {
    rate: 4, burst: 40, limits: [],
  });
  assert.throws(() => of({ reservoir: 5 }), { message: /needs reservoirRefreshInterval/ });
  assert.throws(() => of({ minTime: 5, reservoirIncreaseInterval: 5 }), { message: /cannot keep minTime/ });
  assert.throws(() => new Bottleneck({ datastore: "politely" }), { message: /needs an id/ });
});
