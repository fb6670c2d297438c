import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import Bottleneck from "../../src/bottleneck/index.js";
import { declared } from "../../src/bottleneck/shared.js";
import { changed, DEFAULT_SETTINGS } from "../../src/bottleneck/settings.js";
import { Client } from "../../src/client.js";

const BINARY = process.env.POLITELY_BIN ?? fileURLToPath(new URL("../../../../../target/debug/politely", import.meta.url));

let server: ChildProcess;
let url: string;
const clients: Client[] = [];

before(async () => {
  server = spawn(BINARY, ["serve", "--memory", "--bind", "127.0.0.1:0"], { stdio: ["ignore", "ignore", "pipe"] });
  const lines = createInterface({ input: server.stderr! });
  url = await new Promise((resolve) => lines.on("line", (line) => resolve(/http:\S+/.exec(line)![0])));
});

after(async () => {
  await Promise.all(clients.map((client) => client.close()));
  server.kill();
});

/** Limiters of two workers with the same limits. */
function pair(id: string, options: Bottleneck.ConstructorOptions): Bottleneck[] {
  return ["one", "two"].map((name) => {
    const client = new Client({ url, client: name });
    clients.push(client);
    return new Bottleneck({ datastore: "politely", id, client, ...options });
  });
}

async function keyOf(id: string): Promise<any> {
  return (await fetch(`${url}/api/v1/keys/custom%2F${id}`)).json();
}

test("limiters with one id share maxConcurrent", async () => {
  const both = pair("shared-slots", { maxConcurrent: 2 });
  let running = 0;
  let most = 0;
  const job = async () => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setTimeout(resolve, 10));
    running -= 1;
  };
  await Promise.all(both.flatMap((limiter) => Array.from({ length: 10 }, () => limiter.schedule(job))));
  assert.equal(most, 2);
  const { granted, in_flight } = await keyOf("shared-slots");
  assert.equal(granted, 20);
  assert.ok(in_flight <= 2);
});

test("limiters with one id share minTime", async () => {
  const both = pair("shared-pace", { minTime: 20 });
  const begin = performance.now();
  await Promise.all(both.flatMap((limiter) => Array.from({ length: 6 }, () => limiter.schedule(async () => {}))));
  assert.ok(performance.now() - begin >= 11 * 20 - 1, "the twelve jobs were too fast");
});

test("a reservoir is a window of the coordinator that counts weights", async () => {
  const [one, two] = pair("shared-window", {
    reservoir: 10, reservoirRefreshAmount: 10, reservoirRefreshInterval: 60_000,
  }) as [Bottleneck, Bottleneck];
  await Promise.all([one.schedule({ weight: 4 }, async () => {}), two.schedule({ weight: 4 }, async () => {})]);
  assert.equal((await keyOf("shared-window")).budgets[0].remaining, 2);
  assert.deepEqual([await one.check(3), await one.check(2)], [false, true]);
  assert.equal((await keyOf("shared-window")).budgets[0].remaining, 2);
});

test("a permit goes to the job that is first when it comes", async () => {
  const [limiter] = pair("shared-order", { maxConcurrent: 1 }) as [Bottleneck];
  const order: string[] = [];
  let end!: () => void;
  const first = limiter.schedule(() => new Promise<void>((resolve) => (end = resolve)));
  await new Promise((resolve) => limiter.once("executing", resolve as () => void));
  const later = limiter.schedule({ id: "later" }, async () => void order.push("later"));
  const urgent = limiter.schedule({ id: "urgent", priority: 0 }, async () => void order.push("urgent"));
  end();
  await Promise.all([first, later, urgent]);
  assert.deepEqual(order, ["urgent", "later"]);
  assert.deepEqual([await limiter.running(), await limiter.done()], [0, 3]);
});

test("changed settings reach the coordinator", async () => {
  const [limiter] = pair("shared-change", { maxConcurrent: 1, minTime: 100 }) as [Bottleneck];
  await limiter.ready();
  await limiter.updateSettings({ minTime: 50, maxConcurrent: 3 });
  const { limits } = await keyOf("shared-change");
  assert.deepEqual([limits.rate, limits.in_flight], [20, 3]);
});

test("a job that the coordinator refuses fails with its reason", async () => {
  const [limiter] = pair("shared-refused", { reservoirRefreshAmount: 3, reservoirRefreshInterval: 1000 }) as [Bottleneck];
  const errors: unknown[] = [];
  limiter.on("error", (error) => errors.push(error));
  await assert.rejects(limiter.schedule({ weight: 4 }, async () => {}), { name: "BadCall", message: /more than the whole limit 3 points/ });
  assert.equal(await limiter.schedule({ weight: 3 }, async () => "fits"), "fits");
  assert.equal(errors.length, 1);
});

test("a failed job gives its slot back and spends its start", async () => {
  const [limiter] = pair("shared-failed", {
    maxConcurrent: 1, reservoirRefreshAmount: 5, reservoirRefreshInterval: 60_000,
  }) as [Bottleneck];
  await assert.rejects(limiter.schedule(async () => assert.fail("job")), { message: "job" });
  await limiter.schedule(async () => {});
  assert.equal((await keyOf("shared-failed")).budgets[0].remaining, 3);
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
