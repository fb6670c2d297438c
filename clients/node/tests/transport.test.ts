// Tests of the calls over real connections, and of their size and number.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Server } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { BadCall, Client, Unavailable, type Outcome, type Permit } from "../src/index.js";
import { Fake, granted, whole, type Answer } from "./fake.js";
import { folder } from "./program.js";

const quiet = { client: "w1", log: () => undefined };
const grants: RequestListener = (_, response) => response.end(JSON.stringify({ items: [granted] }));

async function listening(t: TestContext, server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

test("an untrusted certificate is an error at once, and that in SSL_CERT_FILE is trusted", async (t) => {
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => join(folder(t), name)) as [string, string];
  const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  execFileSync("openssl", ["req", "-x509", "-nodes", ...curve, ...subject, "-keyout", key, "-out", cert], {
    stdio: "ignore",
  });
  const port = await listening(
    t,
    createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, grants),
  );
  const url = `https://127.0.0.1:${port}`;
  await assert.rejects(new Client({ url, ...quiet }).acquire("custom/a"), { name: "BadCall", status: 0 });
  // Another coordinator may have a trusted one.
  const several = new Client({ url: [url, url], ...quiet });
  await assert.rejects(several.acquire("custom/a", { waitMs: 0 }), Unavailable);
  process.env.SSL_CERT_FILE = cert;
  t.after(() => delete process.env.SSL_CERT_FILE);
  await using client = new Client({ url, ...quiet });
  assert.equal((await client.acquire("custom/a")).key, "a.example");
});

test("a kept connection that the coordinator closed is no failure", async (t) => {
  const used = new Set<unknown>();
  const port = await listening(
    t,
    createServer((request, response) => {
      if (used.has(request.socket)) return request.socket.resetAndDestroy();
      used.add(request.socket);
      return grants(request, response);
    }),
  );
  await using client = new Client({ url: `127.0.0.1:${port}`, onUnavailable: "stop", ...quiet });
  for (let i = 0; i < 3; i += 1) await client.acquire("custom/a");
  assert.equal(used.size, 3);
});

test("a page that is no answer counts as unavailable, and its URL is named without a password", async (t) => {
  const port = await listening(
    t,
    createServer((_, response) => response.end("<html>")),
  );
  const given = new Client({ url: `http://me:secret@127.0.0.1:${port}`, ...quiet }).acquire("custom/a", {
    waitMs: 0,
  });
  await assert.rejects(given, (error: Error) => {
    assert.ok(error instanceof Unavailable && !error.message.includes("secret"));
    return error.message.includes(
      `http://127.0.0.1:${port}/api/v1: status 200 without JSON; is it a coordinator?`,
    );
  });
});

test("one signal gives up many calls", async (t) => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const server = createServer(() => undefined).on("connection", (socket) => t.after(() => socket.destroy()));
  const called = new Promise<void>((resolve) => {
    let calls = 0;
    server.on("request", () => (calls += 1) === 20 && resolve());
  });
  const port = await listening(t, server);
  const client = new Client({ url: `127.0.0.1:${port}`, ...quiet });
  const controller = new AbortController();
  const reason = new Error("enough");
  const given = Array.from({ length: 20 }, () => client.acquire("custom/a", { signal: controller.signal }));
  await called;
  controller.abort(reason);
  for (const { status, reason: why } of (await Promise.allSettled(given)) as PromiseRejectedResult[]) {
    assert.deepEqual([status, why], ["rejected", reason]);
  }
  assert.deepEqual(warnings, []);
});

test("a coordinator that is silent ends a call at its time", async (t) => {
  const port = await listening(
    t,
    createServer(() => undefined).on("connection", (socket) => t.after(() => socket.destroy())),
  );
  const given = new Client({ url: `127.0.0.1:${port}`, ...quiet }).acquire("custom/a", { waitMs: 0 });
  await assert.rejects(given, /no answer within 1 s/);
});

function worker(script: Record<string, Answer[]> = {}): { fake: Fake; client: Client } {
  const fake = new Fake(script);
  return { fake, client: new Client({ url: "http://fake", client: "w1", io: fake }) };
}

async function pages(client: Client, count: number, outcome: Outcome): Promise<[Permit, Outcome][]> {
  const permits = await client.acquireAny(Array<string>(count).fill("a.example"), count);
  return permits.map((permit) => [permit, outcome]);
}

const BLOCKED = { status: 403, bodyStart: "\ufffd".repeat(16_384) };
const size = (body: unknown) => Buffer.byteLength(JSON.stringify(body));

test("reports are no larger than the coordinator accepts", async () => {
  const { fake, client } = worker();
  const told = await pages(client, 400, BLOCKED);
  assert.equal((await client.report(told)).length, 400);
  assert.deepEqual(
    fake.reports().map(({ permit }) => permit),
    told.map(([{ state }]) => state.name),
  );
  assert.ok(Math.max(...fake.of("report").map(size)) < 4 << 20);
  await client.report(await pages(client, 5_000, { status: 200 }));
  assert.deepEqual(
    fake
      .of("report")
      .slice(-2)
      .map(({ items }) => items.length),
    [4_096, 904],
  );
});

test("an exchange has room for its wishes", async () => {
  const { fake, client } = worker();
  const [nexts, permits] = await client.exchange(await pages(client, 100, BLOCKED), ["a.example"]);
  assert.deepEqual([nexts.length, permits.length], [100, 1]);
  const [exchange] = fake.of("exchange");
  assert.equal(fake.reports().length + exchange?.report.length, 100);
  assert.ok(size(exchange) < 3 << 20);
});

test("a report that fails takes none before it back", async () => {
  const first = { body: { items: Array(4_096).fill(whole({ permit: "" })) } };
  const wrong = { status: 400, body: { detail: "no" } };
  const { client } = worker({ report: [first, wrong] });
  const told = await pages(client, 4_100, { status: 200 });
  await assert.rejects(client.report(told), BadCall);
  assert.deepEqual(
    told.map(([permit]) => permit.isOver),
    [...Array(4_096).fill(true), ...Array(4).fill(false)],
  );
});

test("an outage is logged with its reason and its end", async () => {
  const { fake, client } = worker({ acquire: ["lost", "lost"] });
  await client.acquire("custom/a");
  assert.deepEqual(fake.lines, [
    "the coordinator is unavailable for 0 s (nobody listens); nothing leaves; trying again",
    "the coordinator is available again after 0 s",
  ]);
});

test("half a surrogate pair in a body is sent as a replacement", async (t) => {
  const bodies: string[] = [];
  const port = await listening(
    t,
    createServer((request, response) => {
      request.on("data", (part: Buffer) => bodies.push(part.toString()));
      grants(request, response);
    }),
  );
  await using client = new Client({ url: `127.0.0.1:${port}`, ...quiet });
  await client.acquire("custom/a", { labels: { team: "\ud800x" } });
  assert.equal(JSON.parse(bodies[0] ?? "").items[0].labels.team, "\ufffdx");
});

test("several departures are reported by their numbers", async () => {
  const grant = { ...granted, slots: 3, interval_ms: 5 };
  const { fake, client } = worker({ acquire: [{ body: { items: [grant] } }] });
  const permit = await client.acquire("custom/a", { slots: 3 });
  for await (const departure of permit.departures()) await departure.report({ status: 200, latencyMs: 1 });
  assert.deepEqual(
    fake.reports().map(({ slot }) => slot),
    [undefined, 1, 2],
  );
});

test("attempts go on as the coordinator says, and end without a report", async () => {
  const retry = { retry: { after_ms: 0 } };
  const { fake, client } = worker({ report: [{ body: { items: [whole({ permit: "p1", next: retry })] } }] });
  for await (const permit of client.attempts("http://a.example/x", { method: "HEAD" })) {
    await permit.report(
      new Response(null, { status: 503, headers: { "retry-after": "1", "set-cookie": "secret=1" } }),
    );
  }
  const [first, second] = fake.reports();
  assert.deepEqual(
    [first?.headers, first?.method, second?.attempt, second?.free],
    [{ "retry-after": "1" }, "HEAD", 2, undefined],
  );
  for await (const _ of client.attempts("http://a.example/x"));
  assert.deepEqual(fake.of("cancel"), [{ client: "w1", permits: ["p3"], sent: true }]);
});

test("an error of a permit's body is reported as evidence, and is the caller's", async () => {
  const { fake, client } = worker();
  const reset = Object.assign(new Error("x"), { code: "ECONNRESET" });
  await assert.rejects(
    client.permit("custom/a", () => Promise.reject(reset)),
    reset,
  );
  const ours = new Error("ours");
  await assert.rejects(
    client.permit("custom/a", () => Promise.reject(ours)),
    ours,
  );
  await client.permit("custom/a", async () => undefined);
  assert.deepEqual(
    fake.reports().map(({ error }) => error),
    ["reset"],
  );
  assert.deepEqual(fake.of("cancel"), [
    { client: "w1", permits: ["p2"], sent: true },
    { client: "w1", permits: ["p3"] },
  ]);
});
