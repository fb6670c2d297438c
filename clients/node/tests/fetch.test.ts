import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test, type TestContext } from "node:test";
import { gzipSync } from "node:zlib";

import { Client, politeFetch, TimedOut, usage, type FetchOptions } from "../src/index.js";
import { Fake, granted, RETRY, whole } from "./fake.js";
import { breaks, host, says, type Handler } from "./host.js";

const GIVE_UP = { give_up: { reason: "status 403" } };
const next = (...nexts: unknown[]) =>
  nexts.map((next, i) => ({ body: { items: [whole({ permit: `p${i + 1}`, next })] } }));

async function polite(t: TestContext, fake: Fake, handlers: Handler[], options: FetchOptions = {}) {
  const client = new Client({ url: "http://fake", client: "w1", io: fake });
  return { ...(await host(t, ...handlers)), client, fetch: politeFetch(client, options) };
}

test("a page is paced, and reported at its head and at the end of its body", async (t) => {
  const fake = new Fake();
  const { fetch, url } = await polite(t, fake, [says(200, "page", { ratelimit: "r" })]);
  const response = await fetch(url);
  assert.equal(response.url, url);
  assert.deepEqual(fake.items()[0]?.url, url);
  assert.equal(await response.text(), "page");
  await fake.until(() => fake.reports().length === 2);
  const [head, end] = fake.reports();
  assert.deepEqual([head?.status, head?.body_coming, head?.headers.ratelimit], [200, true, "r"]);
  assert.deepEqual([end?.status, end?.body_coming, end?.bytes], [200, undefined, 4]);
  assert.deepEqual(fake.of("cancel"), []);
});

test("a refused request and a broken one are sent again", async (t) => {
  const fake = new Fake({ report: next(RETRY, RETRY) });
  const { fetch, url } = await polite(t, fake, [says(429, "slow"), breaks, says(204)]);
  assert.equal((await fetch(url)).status, 204);
  const [first, second, third] = fake.reports();
  assert.deepEqual([first?.body_start, second?.error], ["slow", "reset"]);
  assert.deepEqual([third?.attempt, third?.free, third?.resource], [3, 2, first?.resource]);
  assert.match(third?.resource, /^[0-9a-f]{16}$/);
  assert.deepEqual(
    fake.items().map(({ kind }) => kind),
    [undefined, "retry", "retry"],
  );
});

test("the last answer is the caller's, decoded", async (t) => {
  const page = gzipSync("<title>Just a moment...</title>");
  const zipped: Handler = (_, response) => response.writeHead(403, { "content-encoding": "gzip" }).end(page);
  const fake = new Fake({ report: next(GIVE_UP) });
  const { fetch, url } = await polite(t, fake, [zipped]);
  const response = await fetch(url);
  assert.equal(response.status, 403);
  assert.match(await response.text(), /Just a moment/);
  assert.match(fake.reports()[0]?.body_start, /Just a moment/);
});

test("the last error is the caller's", async (t) => {
  const fake = new Fake({ report: next(GIVE_UP) });
  const { fetch, url } = await polite(t, fake, [breaks]);
  await assert.rejects(fetch(url), TypeError);
  assert.equal(fake.reports()[0]?.error, "reset");
});

test("a stream is not sent again, and a text is", async (t) => {
  for (const [body, times] of [
    ["kept", 2],
    [Readable.toWeb(Readable.from(["once"])), 1],
  ] as const) {
    const fake = new Fake({ report: next(RETRY) });
    const { fetch, url, requests } = await polite(t, fake, [says(429), says(201)]);
    const init = { method: "PUT", body: body as string, duplex: "half" } as RequestInit;
    assert.equal((await fetch(url, init)).status, times === 2 ? 201 : 429);
    assert.deepEqual(
      requests.map((request) => request.body),
      Array(times).fill(times === 2 ? "kept" : "once"),
    );
    assert.deepEqual([fake.items()[0]?.method, fake.reports()[0]?.method], ["PUT", "PUT"]);
  }
});

test("a Request is sent with its method, headers and body", async (t) => {
  const fake = new Fake();
  const { fetch, url, requests } = await polite(t, fake, [says(200)]);
  await fetch(new Request(url, { method: "POST", body: "text", headers: { "x-team": "a" } }));
  assert.deepEqual(
    [requests[0]?.method, requests[0]?.body, requests[0]?.headers["x-team"]],
    ["POST", "text", "a"],
  );
});

test("each hop of a redirect has a permit, and waits as the redirect says", async (t) => {
  const fake = new Fake({ report: [{ body: { items: [whole({ permit: "p1", target_after_ms: 30 })] } }] });
  const { fetch, url, requests } = await polite(t, fake, [
    says(303, "", { location: "/new#part" }),
    says(200, "new"),
  ]);
  const response = await fetch(url, {
    method: "POST",
    body: "once",
    headers: { "content-type": "text/plain" },
  });
  assert.equal(await response.text(), "new");
  assert.deepEqual([response.redirected, response.url], [true, url.replace("/x", "/new")]);
  assert.deepEqual(
    requests.map(({ method, path, body }) => [method, path, body]),
    [
      ["POST", "/x", "once"],
      ["GET", "/new", ""],
    ],
  );
  assert.equal(requests[1]?.headers["content-type"], undefined);
  assert.equal(fake.items().length, 2);
  assert.deepEqual(fake.slept, [30]);
});

test("a redirect to another origin carries no credentials", async (t) => {
  const fake = new Fake();
  const other = await host(t, says(200));
  const { fetch, url } = await polite(t, fake, [says(307, "", { location: other.url })]);
  await fetch(url, {
    method: "PUT",
    body: "kept",
    headers: { authorization: "secret", cookie: "c", accept: "text/x" },
  });
  const [{ method, body, headers } = { method: "", body: "", headers: {} }] = other.requests;
  assert.deepEqual(
    [method, body, headers.accept, headers.authorization, headers.cookie],
    ["PUT", "kept", "text/x", undefined, undefined],
  );
});

test("redirects end, and follow the mode of the request", async (t) => {
  const { fetch, url } = await polite(t, new Fake(), [says(302, "", { location: "/x" })]);
  await assert.rejects(fetch(url), /more than 20 redirects/);
  await assert.rejects(fetch(url, { redirect: "error" }), TypeError);
  assert.equal((await fetch(url, { redirect: "manual" })).headers.get("location"), "/x");
});

test("a wait that is aborted is given up by its id", async (t) => {
  const waits = { body: { items: [whole({ status: "wait", retry_in_ms: 9_000 })] } };
  const fake = new Fake({ acquire: [waits] });
  const { fetch, url, requests } = await polite(t, fake, []);
  const reason = new Error("enough");
  const controller = new AbortController();
  const given = fetch(url, { signal: controller.signal });
  await fake.until(() => fake.slept.length);
  controller.abort(reason);
  await assert.rejects(given, reason);
  assert.deepEqual(fake.of("cancel"), [{ client: "w1", permits: [fake.items()[0]?.id] }]);
  assert.deepEqual(requests, []);
});

test("a pause between attempts that is aborted ends the request", async (t) => {
  const fake = new Fake({ report: next({ retry: { after_ms: 9_000 } }) });
  const { fetch, url, requests } = await polite(t, fake, [says(503)]);
  const controller = new AbortController();
  const given = fetch(url, { signal: controller.signal });
  await fake.until(() => fake.slept.length);
  controller.abort();
  await assert.rejects(given, { name: "AbortError" });
  assert.equal(requests.length, 1);
});

test("a request that is aborted gives its permit back as sent", async (t) => {
  const fake = new Fake();
  const controller = new AbortController();
  const { fetch, url, client } = await polite(t, fake, [() => controller.abort()]);
  await assert.rejects(fetch(url, { signal: controller.signal }), { name: "AbortError" });
  await client.close();
  assert.deepEqual(fake.of("cancel"), [{ client: "w1", permits: ["p1"], sent: true }]);
});

/** Sends the beginning of a body. */
const begins: Handler = (_, response) => response.writeHead(200).write("part");

test("a body that is aborted, cancelled or dropped frees its slot", async (t) => {
  for (const how of ["aborted", "cancelled", "dropped"]) {
    const fake = new Fake();
    const controller = new AbortController();
    const { fetch, url } = await polite(t, fake, [begins]);
    let response: Response | undefined = await fetch(url, { signal: controller.signal });
    if (how === "dropped") {
      response = undefined;
      const collect = globalThis.gc;
      assert.ok(collect, "run node with --expose-gc");
      await fake.until(() => (collect(), fake.reports().length === 2));
    } else if (how === "cancelled") {
      await response.body?.cancel();
    } else {
      const reader = response.body?.getReader();
      await reader?.read();
      controller.abort();
      await assert.rejects(reader?.read() ?? Promise.resolve(), { name: "AbortError" });
    }
    await fake.until(() => fake.reports().length === 2);
    assert.deepEqual(
      fake.reports().map((report) => [report.status, report.body_coming ?? false]),
      [
        [200, true],
        [200, false],
      ],
    );
  }
});

test("a body that breaks off is reported as an error", async (t) => {
  const fake = new Fake();
  const { fetch, url } = await polite(t, fake, [
    (request, response) => response.writeHead(200).write("part", () => request.socket.destroy()),
  ]);
  await assert.rejects((await fetch(url)).text());
  await fake.until(() => fake.reports().length === 2);
  assert.equal(fake.reports()[1]?.error, "reset");
});

test("an answer that takes longer than the lease renews it", async (t) => {
  const fake = new Fake({ acquire: [{ body: { items: [{ ...granted, lease_ms: 2_000 }] } }] });
  const slow: Handler = (_, response) =>
    void fake.until(() => fake.of("renew").length).then(() => response.end("page"));
  const { fetch, url } = await polite(t, fake, [slow]);
  assert.equal(await (await fetch(url)).text(), "page");
});

test("a request whose lease is lost is aborted and reported", async (t) => {
  const fake = new Fake({
    acquire: [{ body: { items: [{ ...granted, lease_ms: 50 }] } }],
    renew: [{ body: { renewed: [], lost: ["p1"] } }],
  });
  const { fetch, url } = await polite(t, fake, [() => undefined]);
  await assert.rejects(fetch(url), { name: "LeaseLost" });
  assert.equal(fake.reports()[0]?.error, "timeout");
});

test("a body that a rule reads is sent, and a soft refusal is sent again", async (t) => {
  const grant = (permit: string) => ({ body: { items: [{ ...granted, permit, send_bodies: "all" }] } });
  const fake = new Fake({ acquire: [grant("p1"), grant("p2")], report: next(RETRY) });
  const { fetch, url } = await polite(t, fake, [
    says(200, "Please slow down.", { "x-soft": "1" }),
    says(200, "page"),
  ]);
  assert.equal(await (await fetch(url)).text(), "page");
  const [first, second] = fake.reports();
  assert.deepEqual(
    [first?.body_start, first?.headers["x-soft"], second?.body_start],
    ["Please slow down.", "1", "page"],
  );
});

test("a part that was not requested is an error", async (t) => {
  const part = says(206, "page", { "content-range": "bytes 0-3/10" });
  const { fetch, url } = await polite(t, new Fake(), [part]);
  await assert.rejects(fetch(url), /partial content \(bytes 0-3\/10\)/);
  assert.equal(await (await fetch(url, { headers: { range: "bytes=0-3" } })).text(), "page");
  const all = await polite(t, new Fake(), [says(206, "page", { "content-range": "bytes 0-3/4" })]);
  assert.equal(await (await all.fetch(all.url)).text(), "page");
});

test("a wait is bounded if asked", async (t) => {
  const waits = { body: { items: [whole({ status: "wait", retry_in_ms: 9_000 })] } };
  const { fetch, url, requests } = await polite(t, new Fake({ acquire: [waits] }), [], { waitMs: 1_000 });
  await assert.rejects(fetch(url), TimedOut);
  assert.deepEqual(requests, []);
});

test("a cost is estimated from the request and settled from the answer", async (t) => {
  const answer = JSON.stringify({ usage: { prompt_tokens: 40, completion_tokens: 300, total_tokens: 340 } });
  const fake = new Fake();
  const cost: FetchOptions["cost"] = ({ body }) => ({
    requests: 1,
    tokens: JSON.parse(String(body)).max_tokens,
  });
  const { fetch, url } = await polite(t, fake, [says(200, answer)], { cost, used: usage.openai });
  await (await fetch(url, { method: "POST", body: '{"max_tokens": 500}' })).json();
  await fake.until(() => fake.reports().length === 2);
  assert.deepEqual(fake.items()[0]?.cost, { requests: 1, tokens: 500 });
  assert.deepEqual(fake.reports()[1]?.used, { tokens: 340, input_tokens: 40, output_tokens: 300 });
});

test("an odd amount of a reader loses no report", async (t) => {
  for (const odd of [
    null,
    { tokens: null },
    { tokens: 1.5 },
    { tokens: -1 },
    { "A b": 1 },
    { a: 1, b: 1, c: 1, d: 1 },
    7,
  ]) {
    const fake = new Fake({ report: next(GIVE_UP) });
    const { fetch, url } = await polite(t, fake, [says(429)], { used: () => odd as never });
    assert.equal((await fetch(url)).status, 429);
    assert.deepEqual(
      fake.reports().map(({ status, used }) => [status, used]),
      [[429, undefined]],
    );
  }
});
