// Tests of the user's own coordinator, with the program itself.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { BadCall, Client } from "../src/index.js";
import { folder, PROGRAM } from "./program.js";

const quiet = { client: "w1", log: () => undefined };

/** Names the program and a cache folder of its own, and ends the coordinator with the test. */
function home(t: TestContext): () => number {
  const cache = folder(t);
  const before = { ...process.env };
  Object.assign(process.env, { POLITELY_PROGRAM: PROGRAM, XDG_CACHE_HOME: cache });
  delete process.env.POLITELY_COORDINATOR;
  const pid = () => {
    const ready = join(cache, "politely", `local-${version}`, "ready.json");
    return (JSON.parse(readFileSync(ready, "utf8")) as { pid: number }).pid;
  };
  t.after(() => {
    try {
      process.kill(pid(), "SIGKILL");
    } catch {
      // It did not start.
    }
    for (const name of ["POLITELY_PROGRAM", "XDG_CACHE_HOME", "POLITELY_COORDINATOR"]) {
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  });
  return pid;
}

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

test("clients without an address share one coordinator, and go on after it was killed", async (t) => {
  const pid = home(t);
  await using one = new Client(quiet);
  await using other = new Client({ ...quiet, client: "w2" });
  await one.setLimits("custom/a", { inFlight: 1, law: "fixed" });
  const [permit] = await Promise.all([one.acquire("custom/a"), other.acquire("custom/b")]);
  await assert.rejects(other.acquire("custom/a", { waitMs: 50 }), { name: "TimedOut" });
  process.kill(pid(), "SIGKILL");
  assert.equal((await permit.report({ status: 200 })).what, "done");
  await (await other.acquire("custom/a", { waitMs: 20_000 })).cancel();
});

test("a client that refuses the local one, or has no program, says what to name", async (t) => {
  home(t);
  assert.throws(() => new Client({ ...quiet, local: false }), /POLITELY_COORDINATOR/);
  process.env.POLITELY_PROGRAM = join(folder(t), "missing");
  await using client = new Client(quiet);
  await assert.rejects(client.acquire("custom/a"), (why: BadCall) => {
    assert.match(why.message, /set POLITELY_PROGRAM, or name a coordinator/);
    return why instanceof BadCall && why.status === 0;
  });
});

test("a program that fails is named", async (t) => {
  home(t);
  process.env.POLITELY_PROGRAM = "/bin/false";
  await using client = new Client(quiet);
  await assert.rejects(client.acquire("custom/a"), /\/bin\/false local/);
});
