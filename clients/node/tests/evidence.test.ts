import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { errorKind } from "../src/evidence.js";
import { Client, LeaseLost, PolitelyError, Refused, Unavailable, usage } from "../src/index.js";
import { breaks, host } from "./host.js";

const coded = (code: string, cause?: unknown) => Object.assign(new Error("x", { cause }), { code });

test("errors of Node, undici, axios and got have their kinds", () => {
  const kinds = {
    no_such_host: [coded("ENOTFOUND")],
    resolver: [coded("EAI_AGAIN")],
    connect: [coded("ECONNREFUSED"), new AggregateError([coded("ECONNREFUSED"), coded("ENETUNREACH")])],
    tls: [
      coded("CERT_HAS_EXPIRED"),
      coded("DEPTH_ZERO_SELF_SIGNED_CERT"),
      coded("EPROTO"),
      coded("ERR_SSL_WRONG_VERSION_NUMBER"),
    ],
    timeout: [
      coded("ETIMEDOUT"),
      coded("UND_ERR_HEADERS_TIMEOUT"),
      coded("ECONNABORTED"),
      new LeaseLost("x"),
      new DOMException("x", "TimeoutError"),
    ],
    reset: [
      coded("ECONNRESET"),
      coded("UND_ERR_SOCKET"),
      new TypeError("fetch failed", { cause: coded("EPIPE") }),
    ],
    malformed: [coded("HPE_INVALID_CONSTANT"), coded("Z_DATA_ERROR")],
    none: [
      new Error("ours"),
      coded("UND_ERR_INVALID_ARG"),
      new DOMException("x", "AbortError"),
      undefined,
      "text",
    ],
  };
  for (const [kind, errors] of Object.entries(kinds)) {
    for (const error of errors) assert.equal(errorKind(error) ?? "none", kind, String(Object(error).code));
  }
  const circle = new Error("a");
  circle.cause = new Error("b", { cause: circle });
  assert.equal(errorKind(circle), undefined);
});

test("real errors have their kinds", async (t) => {
  const { url } = await host(t, breaks);
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  for (const [target, kind] of [
    [url, "reset"],
    [`http://127.0.0.1:${port}/`, "connect"],
  ] as const) {
    assert.equal(errorKind(await fetch(target).catch((error: unknown) => error)), kind);
    const plain = await new Promise((resolve) => request(target).on("error", resolve).end());
    assert.equal(errorKind(plain), kind);
  }
});

test("errors are told apart by their classes and names", () => {
  const error = new Unavailable("refused");
  assert.ok(error instanceof PolitelyError);
  assert.equal(String(error), "Unavailable: no permit in time: the coordinator is unavailable: refused");
  assert.equal(new Refused("full", "no room").message, "no room");
});

test("a setting without a meaning is an error", () => {
  for (const url of ["ftp://a", "http://", "http:/a", "", [], "a,ftp://b"]) {
    assert.throws(() => new Client({ url }), TypeError, String(url));
  }
  assert.throws(
    () => new Client({ onUnavailable: "go" as never }),
    /onUnavailable is "wait", "share" or "stop"/,
  );
  assert.throws(
    () => new Client({ token: "a\nsecret" }),
    (error: Error) => !error.message.includes("secret"),
  );
});

test("the use of Gemini is read, with its thoughts", () => {
  const usageMetadata = {
    promptTokenCount: 9,
    candidatesTokenCount: 70,
    thoughtsTokenCount: 7,
    totalTokenCount: 86,
  };
  const all = { tokens: 86, input_tokens: 9, output_tokens: 77 };
  assert.deepEqual(usage.gemini(JSON.stringify({ candidates: [], usageMetadata })), all);
  const begun = `data: ${JSON.stringify({ usageMetadata: { promptTokenCount: 9 } })}\r\n\r\n`;
  assert.deepEqual(usage.gemini(begun), { input_tokens: 9 });
  assert.deepEqual(usage.gemini(`${begun}data: ${JSON.stringify({ usageMetadata })}\r\n\r\n`), all);
  assert.deepEqual(usage.gemini("no json"), {});
});
