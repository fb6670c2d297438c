import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test, type TestContext } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import axios from "axios";
import got from "got";
import OpenAI from "openai";

import { polite as politeAxios } from "../src/axios.js";
import { polite as politeGot } from "../src/got.js";
import { Client, politeFetch, usage, type FetchOptions } from "../src/index.js";
import { Fake, granted, RETRY, whole } from "./fake.js";
import { breaks, host, says, type Handler } from "./host.js";
import { provider, serve } from "./program.js";

const next = (...nexts: unknown[]) =>
  nexts.map((next, i) => ({ body: { items: [whole({ permit: `p${i + 1}`, next })] } }));

async function place(t: TestContext, fake: Fake, ...handlers: Handler[]) {
  return {
    ...(await host(t, ...handlers)),
    client: new Client({ url: "http://fake", client: "w1", io: fake }),
  };
}

/** The common behaviour of both adapters: [status, body] of a request, also of an error answer. */
const adapters = {
  async axios(client: Client, url: string, data?: unknown, signal?: AbortSignal): Promise<[number, unknown]> {
    const http = axios.create({ ...politeAxios(client), validateStatus: null, responseType: "text" });
    const config = { url, method: data ? "PUT" : "GET", data, ...(signal ? { signal } : {}) };
    const response = await http.request(config);
    return [response.status, response.data];
  },
  async got(client: Client, url: string, data?: unknown, signal?: AbortSignal): Promise<[number, unknown]> {
    const http = got.extend(politeGot(client), { throwHttpErrors: false });
    const body = data as string;
    const response = await http(url, {
      ...(data ? { method: "PUT", body } : {}),
      ...(signal ? { signal } : {}),
    });
    return [response.statusCode, response.body];
  },
};

for (const [name, send] of Object.entries(adapters)) {
  test(`${name}: a page is paced and reported`, async (t) => {
    const fake = new Fake();
    const { client, url } = await place(t, fake, says(200, "page", { ratelimit: "r" }));
    assert.deepEqual(await send(client, url), [200, "page"]);
    await fake.until(() => fake.reports().length === 2);
    assert.deepEqual(
      fake.reports().map(({ status, bytes, headers }) => [status, bytes, headers.ratelimit]),
      [
        [200, undefined, "r"],
        [200, 4, "r"],
      ],
    );
  });

  test(`${name}: refused and broken requests are sent again`, async (t) => {
    const fake = new Fake({ report: next(RETRY, RETRY) });
    const { client, url, requests } = await place(t, fake, says(429, "slow"), breaks, says(201, "made"));
    assert.deepEqual(await send(client, url, "kept"), [201, "made"]);
    assert.deepEqual(
      requests.map(({ body }) => body),
      ["kept", "kept", "kept"],
    );
    const [first, second, third] = fake.reports();
    assert.deepEqual(
      [first?.body_start, second?.error, third?.attempt, third?.free],
      ["slow", "reset", 3, 2],
    );
  });

  test(`${name}: a stream is not sent again`, async (t) => {
    const fake = new Fake({ report: next(RETRY) });
    const { client, url, requests } = await place(t, fake, says(429, "slow"));
    assert.deepEqual(await send(client, url, Readable.from(["once"])), [429, "slow"]);
    assert.equal(requests.length, 1);
  });

  test(`${name}: each hop of a redirect has a permit`, async (t) => {
    const fake = new Fake();
    const { client, url } = await place(t, fake, says(302, "", { location: "/new" }), says(200, "new"));
    assert.deepEqual(await send(client, url), [200, "new"]);
    assert.deepEqual(
      fake.items().map((item) => item.url),
      [url, url.replace("/x", "/new")],
    );
  });

  test(`${name}: a soft refusal is sent again`, async (t) => {
    const grant = (permit: string) => ({ body: { items: [{ ...granted, permit, send_bodies: "all" }] } });
    const fake = new Fake({ acquire: [grant("p1"), grant("p2")], report: next(RETRY) });
    const { client, url } = await place(t, fake, says(200, "Please slow down."), says(200, "page"));
    assert.deepEqual(await send(client, url), [200, "page"]);
    assert.equal(fake.reports()[0]?.body_start, "Please slow down.");
  });

  test(`${name}: an abort ends the wait and the request`, async (t) => {
    const waiting = new Fake({
      acquire: [{ body: { items: [whole({ status: "wait", retry_in_ms: 9_000 })] } }],
    });
    let controller = new AbortController();
    const first = await place(t, waiting);
    let given = send(first.client, first.url, undefined, controller.signal);
    await waiting.until(() => waiting.slept.length);
    controller.abort();
    await assert.rejects(given);
    await waiting.until(() => waiting.of("cancel").length);

    const sent = new Fake();
    controller = new AbortController();
    const second = await place(t, sent, () => undefined);
    given = send(second.client, second.url, undefined, controller.signal);
    await sent.until(() => second.requests.length);
    controller.abort();
    await assert.rejects(given);
    await sent.until(() => sent.of("cancel").length);
    assert.deepEqual(sent.of("cancel"), [{ client: "w1", permits: ["p1"], sent: true }]);
  });
}

test("got: a stream is paced and reported", async (t) => {
  const fake = new Fake();
  const { client, url } = await place(t, fake, says(200, "page"));
  const parts = await got.extend(politeGot(client)).stream(url).toArray();
  assert.equal(Buffer.concat(parts).toString(), "page");
  await fake.until(() => fake.reports().length === 2);
});

const QUESTION = [{ role: "user" as const, content: "How long is a piece of string?" }];

/** Returns a cost that is a tenth of the truth, or ten times as much, in turn. */
function estimated(...units: string[]): NonNullable<FetchOptions["cost"]> {
  let turns = 0;
  return ({ body }) => {
    const tokens = Math.max(1, Math.floor((turns++ % 2 ? 10 : 0.1) * JSON.parse(String(body)).max_tokens));
    return { requests: 1, ...Object.fromEntries(units.map((unit) => [unit, tokens])) };
  };
}

async function played(t: TestContext, name: string, cost: FetchOptions["cost"], used: FetchOptions["used"]) {
  const { url, policy, judge } = await provider(t, name);
  const args = [
    "--profile",
    "api",
    "--law",
    "fixed",
    "--rate",
    "1000",
    "--in-flight",
    "64",
    "--policy",
    policy,
  ];
  const coordinator = await serve(t, ...args);
  const client = new Client({ url: coordinator.url, client: "w1" });
  return {
    url,
    judge,
    client,
    options: { apiKey: "none", maxRetries: 0, fetch: politeFetch(client, { cost, used }) },
  };
}

test("the OpenAI SDK keeps a played provider's limits", async (t) => {
  const { url, judge, client, options } = await played(t, "openai", estimated("tokens"), usage.openai);
  const llm = new OpenAI({ baseURL: `${url}/v1`, ...options });
  const ask = () => llm.chat.completions.create({ model: "m", messages: QUESTION, max_tokens: 300 });
  const answers = await Promise.all(Array.from({ length: 100 }, ask));
  await client.close();
  assert.ok(answers.every(({ usage: said }) => said?.completion_tokens === 300));
  const { served, refused, accounts } = await judge();
  assert.deepEqual([served, refused], [100, 0]);
  for (const { peak, quantity } of accounts["custom/openai"]) assert.ok(peak <= quantity);
});

const events = (...each: object[]) =>
  each.map((event) => `event: ${Object(event).type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
const streamed = (text: string) => says(200, text, { "content-type": "text/event-stream" });

test("the SDKs read streams, whose use is settled at their end", async (t) => {
  const message = {
    id: "m",
    type: "message",
    role: "assistant",
    model: "m",
    content: [],
    usage: { input_tokens: 9, output_tokens: 1 },
  };
  const delta = { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "word" } };
  const end = { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 77 } };
  const block = { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } };
  const fake = new Fake();
  const claude = await place(
    t,
    fake,
    streamed(events({ type: "message_start", message }, block, delta, end, { type: "message_stop" })),
  );
  const anthropic = new Anthropic({
    baseURL: claude.url,
    apiKey: "none",
    fetch: politeFetch(claude.client, { used: usage.anthropic }),
  });
  const said = await anthropic.messages
    .stream({ model: "m", max_tokens: 99, messages: QUESTION })
    .finalText();
  assert.equal(said, "word");
  await fake.until(() => fake.reports().length === 2);
  assert.deepEqual(fake.reports()[1]?.used, { tokens: 86, input_tokens: 9, output_tokens: 77 });

  const other = new Fake();
  const chunk = {
    id: "c",
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta: { content: "word" } }],
  };
  const last = {
    id: "c",
    choices: [],
    usage: { prompt_tokens: 40, completion_tokens: 300, total_tokens: 340 },
  };
  const gpt = await place(t, other, streamed(`${events(chunk, last)}data: [DONE]\n\n`));
  const openai = new OpenAI({
    baseURL: gpt.url,
    apiKey: "none",
    fetch: politeFetch(gpt.client, { used: usage.openai }),
  });
  let text = "";
  for await (const part of await openai.chat.completions.create({
    model: "m",
    messages: QUESTION,
    stream: true,
  })) {
    text += part.choices[0]?.delta.content ?? "";
  }
  assert.equal(text, "word");
  await other.until(() => other.reports().length === 2);
  assert.deepEqual(other.reports()[1]?.used, { tokens: 340, input_tokens: 40, output_tokens: 300 });
});

test("the Anthropic SDK keeps a played provider's limits", async (t) => {
  const { url, judge, client, options } = await played(
    t,
    "anthropic",
    estimated("input_tokens", "output_tokens"),
    usage.anthropic,
  );
  const llm = new Anthropic({ baseURL: url, ...options });
  const ask = () => llm.messages.create({ model: "m", messages: QUESTION, max_tokens: 50 });
  const answers = await Promise.all(Array.from({ length: 30 }, ask));
  await client.close();
  assert.ok(answers.every(({ usage: said }) => said.output_tokens === 50));
  const { served, refused, accounts } = await judge();
  assert.deepEqual([served, refused], [30, 0]);
  for (const { peak, quantity } of accounts["custom/anthropic"]) assert.ok(peak <= quantity);
});
