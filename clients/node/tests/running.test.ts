// Tests of the client with the program itself.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";

import { BadCall, Client, LockLost, politeFetch, TimedOut, Unavailable } from "../src/index.js";
import type { Json } from "../src/wire.js";
import { folder, serve, town } from "./program.js";

const FREE = ["--profile", "api", "--law", "fixed", "--rate", "1000", "--burst", "1000"];
const quiet = { client: "w1", log: () => undefined };

async function inFlight(url: string, key: string): Promise<number> {
  const answer = await fetch(`${url}/api/v1/keys/${encodeURIComponent(key)}`);
  return ((await answer.json()) as Json).in_flight ?? 0;
}

test("a permit is granted, renewed, reported, or given back", async (t) => {
  const { url } = await serve(t, ...FREE, "--in-flight", "1");
  await using client = new Client({ url: url.replace("http://", ""), ...quiet });
  const permit = await client.acquire("http://a.example/x");
  await permit.renew();
  assert.equal((await permit.report({ status: 200 })).what, "done");
  {
    await using unused = await client.acquire("http://a.example/x");
    assert.equal(await inFlight(url, unused.key), 1);
  }
  assert.equal(await inFlight(url, permit.key), 0);
  const said = await client.permit("http://a.example/x", async (held) => held.report(new Response("page")));
  assert.equal(said.what, "done");
  await assert.rejects(client.acquire("http://a.example/x", { slots: -1 }), BadCall);
});

test("calls that are given up around their grant leave no slot taken", async (t) => {
  const { url } = await serve(t, ...FREE, "--in-flight", "1");
  await using client = new Client({ url, ...quiet });
  await Promise.all(
    Array.from({ length: 40 }, async (_, i) => {
      const signal = AbortSignal.timeout(20 + (i % 20));
      const permit = await client.acquire("custom/one", { signal }).catch(() => undefined);
      await permit?.report({ status: 200 });
    }),
  );
  await (await client.acquire("custom/one", { waitMs: 9_000 })).cancel();
});

test("limits are set, and a wait is bounded", async (t) => {
  const { url } = await serve(t, ...FREE);
  await using client = new Client({ url, patienceMs: 50, ...quiet });
  await client.setLimits("custom/a", { inFlight: 1 });
  const permit = await client.acquire("custom/a");
  await assert.rejects(client.acquire("custom/a"), TimedOut);
  const [first] = await client.acquireAny(["custom/a", "custom/b"]);
  assert.equal(first?.key, "custom/b");
  const [[next], [again]] = await client.exchange([[permit, { status: 200 }]], ["custom/a"]);
  assert.deepEqual([next?.what, again?.key], ["done", "custom/a"]);
});

test("a lock has one holder, and its waiters are served or give up", async (t) => {
  const { url } = await serve(t);
  await using client = new Client({ url, ...quiet });
  const first = await client.lock("example.com");
  await assert.rejects(client.lock("example.com", { waitMs: 30 }), TimedOut);
  const given = client.lock("example.com", { signal: AbortSignal.timeout(30) });
  await assert.rejects(given, { name: "TimeoutError" });
  const waiting = client.lock("example.com");
  await first.release();
  await using second = await waiting;
  assert.ok(second.fencing > first.fencing);
  assert.equal(second.isLost, false);
});

test("a lost lock fires its signal", async (t) => {
  const { url, program } = await serve(t);
  await using client = new Client({ url, ...quiet });
  const lock = await client.lock("example.com", { ttlMs: 1_000 });
  await program.end("SIGKILL");
  await assert.rejects(setTimeout(9_000, undefined, { signal: lock.signal }));
  assert.ok(lock.signal.reason instanceof LockLost);
  await assert.rejects(lock.release(), LockLost);
});

test("a worker goes on when its coordinator returns, and the next of several is called", async (t) => {
  const state = folder(t);
  const first = await serve(t, "--state", state, ...FREE);
  const bind = first.url.replace("http://", "");
  await using client = new Client({ url: `127.0.0.1:1,${bind}`, ...quiet });
  await (await client.acquire("custom/a")).report({ status: 200 });
  await first.program.end("SIGKILL");
  await assert.rejects(client.acquire("custom/a", { waitMs: 100 }), Unavailable);
  const waiting = client.acquire("custom/a");
  await serve(t, "--state", state, ...FREE, "--bind", bind);
  assert.equal((await (await waiting).report({ status: 200 })).what, "done");
});

test("a token is sent, and an answer of another web server names the next step", async (t) => {
  const file = join(folder(t), "token");
  writeFileSync(file, "a-token-of-some-length\n", { mode: 0o600 });
  const { url } = await serve(t, "--token-file", file);
  await using right = new Client({ url, token: "a-token-of-some-length", ...quiet });
  await (await right.acquire("custom/a")).cancel();
  await assert.rejects(new Client({ url, token: "t2", ...quiet }).acquire("custom/a"), {
    name: "BadCall",
    status: 401,
  });
  const other = createServer((_, response) => response.writeHead(404).end("<html>")).listen(0, "127.0.0.1");
  t.after(() => other.close());
  await new Promise((resolve) => other.once("listening", resolve));
  const { port } = other.address() as { port: number };
  const lost = new Client({ url: `127.0.0.1:${port}`, ...quiet }).acquire("custom/a");
  await assert.rejects(lost, /this is no coordinator.*start `politely serve`/);
});

test("a polite fetch gets every page of limited hosts", async (t) => {
  const slow = { limit: { kind: "token_bucket", rate: 20, burst: 2 }, signals: { retry_after: "seconds" } };
  const slots = { limit: { kind: "concurrency_reject", slots: 4 }, service: { mean_ms: 20, cv: 0.3 } };
  const { urls, judge } = await town(t, { slow, slots });
  const { url } = await serve(t, "--profile", "api");
  await using client = new Client({ url, ...quiet });
  const fetch = politeFetch(client);
  const pages = urls.flatMap((host) => Array.from({ length: 15 }, (_, page) => `${host}/page/${page}`));
  const statuses = await Promise.all(
    pages.map(async (page) => {
      const response = await fetch(page);
      await response.text();
      return response.status;
    }),
  );
  assert.deepEqual(
    statuses,
    pages.map(() => 200),
  );
  for (const { pages: served, refused, arrivals } of await judge()) {
    assert.equal(served, 15);
    assert.ok(refused <= 0.2 * arrivals, `${refused} of ${arrivals} were refused`);
  }
});
