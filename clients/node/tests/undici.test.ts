import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test, type TestContext } from "node:test";
import { gzipSync } from "node:zlib";

import { Agent, interceptors, request } from "undici";

import { Client, usage } from "../src/index.js";
import type { PacedOptions } from "../src/paced.js";
import { polite } from "../src/undici.js";
import { Fake, granted, RETRY, whole } from "./fake.js";
import { breaks, host, says, type Handler } from "./host.js";

const next = (...nexts: unknown[]) =>
  nexts.map((next, i) => ({ body: { items: [whole({ permit: `p${i + 1}`, next })] } }));

async function agent(t: TestContext, fake: Fake, handlers: Handler[], options: PacedOptions = {}) {
  const client = new Client({ url: "http://fake", client: "w1", io: fake });
  const plain = new Agent();
  t.after(() => plain.destroy());
  return {
    ...(await host(t, ...handlers)),
    client,
    plain,
    dispatcher: plain.compose(polite(client, options)),
  };
}

test("a page is paced and reported", async (t) => {
  const fake = new Fake();
  const { dispatcher, url } = await agent(t, fake, [says(200, "page", { ratelimit: "r" })]);
  const { statusCode, headers, body } = await request(`${url}?q=1`, { dispatcher });
  assert.deepEqual([statusCode, headers.ratelimit, await body.text()], [200, "r", "page"]);
  await fake.until(() => fake.reports().length === 2);
  assert.deepEqual(
    fake.reports().map(({ status, body_coming, bytes }) => [status, body_coming, bytes]),
    [
      [200, true, undefined],
      [200, undefined, 4],
    ],
  );
});

test("refused and broken requests are sent again, unless their body is a stream", async (t) => {
  const fake = new Fake({ report: next(RETRY, RETRY) });
  const { dispatcher, url, requests } = await agent(t, fake, [says(429, "slow"), breaks, says(201, "made")]);
  const { statusCode, body } = await request(url, { dispatcher, method: "PUT", body: "kept" });
  assert.deepEqual([statusCode, await body.text()], [201, "made"]);
  assert.deepEqual(
    requests.map((each) => each.body),
    ["kept", "kept", "kept"],
  );
  const [first, second, third] = fake.reports();
  assert.deepEqual(
    [first?.body_start, second?.error, third?.attempt, third?.method],
    ["slow", "reset", 3, "PUT"],
  );

  const once = await agent(t, new Fake({ report: next(RETRY) }), [says(429, "slow")]);
  const refused = await request(once.url, {
    dispatcher: once.dispatcher,
    method: "PUT",
    body: Readable.from(["once"]),
  });
  assert.deepEqual([refused.statusCode, await refused.body.text()], [429, "slow"]);
});

test("the global fetch takes the dispatcher", async (t) => {
  const fake = new Fake({ report: next(RETRY) });
  const page = gzipSync("page");
  const zipped: Handler = (_, response) => response.writeHead(200, { "content-encoding": "gzip" }).end(page);
  const { dispatcher, url } = await agent(t, fake, [says(503), zipped]);
  const response = await fetch(url, { dispatcher } as object);
  assert.deepEqual([response.status, await response.text()], [200, "page"]);
  assert.equal(fake.items().length, 2);
});

test("a handler of an older undici is an error, and not a wait for ever", () => {
  const dispatch = polite(new Client({ url: "http://fake", io: new Fake() }))(() => true);
  const request = { origin: "http://a.example", path: "/", method: "GET" } as const;
  assert.throws(() => dispatch(request, { onConnect: () => undefined }), /Dispatcher1Wrapper/);
});

test("each hop of a redirect has a permit", async (t) => {
  const fake = new Fake();
  const { plain, client, url } = await agent(t, fake, [
    says(302, "", { location: "/new" }),
    says(200, "new"),
  ]);
  const dispatcher = plain.compose(polite(client), interceptors.redirect({ maxRedirections: 3 }));
  const { body } = await request(url, { dispatcher });
  assert.equal(await body.text(), "new");
  assert.deepEqual(
    fake.items().map((item) => item.url),
    [url, url.replace("/x", "/new")],
  );
});

async function aborted(given: Promise<unknown>, controller: AbortController): Promise<void> {
  controller.abort();
  await assert.rejects(given, { name: "AbortError" });
}

test("a request can be aborted while it waits, while it is under way, and in its body", async (t) => {
  const waits = { body: { items: [whole({ status: "wait", retry_in_ms: 9_000 })] } };
  const waiting = new Fake({ acquire: [waits] });
  const first = await agent(t, waiting, []);
  let controller = new AbortController();
  let given: Promise<unknown> = request(first.url, {
    dispatcher: first.dispatcher,
    signal: controller.signal,
  });
  await waiting.until(() => waiting.slept.length);
  await aborted(given, controller);
  assert.deepEqual(waiting.of("cancel"), [{ client: "w1", permits: [waiting.items()[0]?.id] }]);

  const sent = new Fake();
  const second = await agent(t, sent, [() => undefined]);
  controller = new AbortController();
  given = request(second.url, { dispatcher: second.dispatcher, signal: controller.signal });
  await sent.until(() => second.requests.length);
  await aborted(given, controller);
  await sent.until(() => sent.of("cancel").length);
  assert.deepEqual(sent.of("cancel"), [{ client: "w1", permits: ["p1"], sent: true }]);

  const coming = new Fake();
  const third = await agent(t, coming, [(_, response) => response.writeHead(200).write("part")]);
  controller = new AbortController();
  const { body } = await request(third.url, { dispatcher: third.dispatcher, signal: controller.signal });
  await aborted(body.text(), controller);
  await coming.until(() => coming.reports().length === 2);
  assert.equal(coming.reports()[1]?.body_coming, undefined);
});

test("a request whose lease is lost is aborted", async (t) => {
  const fake = new Fake({
    acquire: [{ body: { items: [{ ...granted, lease_ms: 50 }] } }],
    renew: [{ body: { renewed: [], lost: ["p1"] } }],
  });
  const { dispatcher, url } = await agent(t, fake, [() => undefined]);
  await assert.rejects(request(url, { dispatcher }), { name: "LeaseLost" });
});

test("a large body streams under back pressure", async (t) => {
  const size = 8 << 20;
  const fake = new Fake();
  const { dispatcher, url } = await agent(t, fake, [says(200, "x".repeat(size))]);
  const { body } = await request(url, { dispatcher });
  let bytes = 0;
  for await (const part of body) {
    bytes += (part as Buffer).length;
    await new Promise(setImmediate);
  }
  await fake.until(() => fake.reports().length === 2);
  assert.deepEqual([bytes, fake.reports()[1]?.bytes], [size, size]);
});

test("the use is read from a compressed stream", async (t) => {
  const fake = new Fake();
  const text = 'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\n';
  const zipped: Handler = (_, response) =>
    response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(text));
  const { dispatcher, url } = await agent(t, fake, [zipped], { cost: { tokens: 9 }, used: usage.openai });
  await (await request(url, { dispatcher })).body.dump();
  await fake.until(() => fake.reports().length === 2);
  assert.deepEqual(fake.reports()[1]?.used, { tokens: 3, input_tokens: 1, output_tokens: 2 });
});
