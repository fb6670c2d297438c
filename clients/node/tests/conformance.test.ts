// Runs the scenarios that all clients share; `clients/conformance/README.md` describes them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { bodyStartOf, headersThatMatter } from "../src/evidence.js";
import { Client, usage, type Outcome, type Permit, type Target, type Wanted } from "../src/index.js";
import type { Call, NoReply, Reply } from "../src/talk.js";
import type { Json } from "../src/wire.js";
import { Fake, whole, type Answer } from "./fake.js";

const FOLDER = new URL("../../../conformance/", import.meta.url);
const read = (name: string) => JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), "utf8"));

/** A fake coordinator in virtual time. */
class Virtual extends Fake {
  #nowMs = 100_000;

  constructor(private readonly scenario: Json) {
    super(
      Object.fromEntries(
        Object.entries(scenario.answers ?? {}).map(([path, each]) => [path, answersOf(each as [])]),
      ),
    );
  }

  override now = (): number => this.#nowMs;
  override chance = (): number => this.scenario.chance ?? 0.5;

  override async sleep(ms: number): Promise<void> {
    this.slept.push(ms);
    this.#nowMs += ms + (this.scenario.stall_ms ?? 0);
  }

  /** A call without an answer takes its whole time-out if the coordinator is frozen. */
  override async send(call: Call): Promise<Reply | NoReply> {
    const reply = await super.send(call);
    if ("why" in reply && this.scenario.frozen) this.#nowMs += call.timeoutMs;
    return reply;
  }
}

function answersOf(listed: (number | Json)[]): Answer[] {
  return listed.flatMap((answer): Answer[] => {
    if (typeof answer === "number") return Array<Answer>(answer).fill("lost");
    const body = { ...answer.body };
    for (const part of ["items", "report", "acquire"]) if (part in body) body[part] = body[part].map(whole);
    return [{ ...answer, body }];
  });
}

/** Returns fields with the names of the Node client. */
function camel(fields: Json): Json {
  const named = (name: string) => name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [named(name), value]));
}

class Runner {
  readonly fake: Virtual;
  readonly client: Client;
  readonly permits = new Map<string, Permit>();

  constructor(scenario: Json) {
    this.fake = new Virtual(scenario);
    const { on_unavailable: onUnavailable } = scenario;
    this.client = new Client({ url: "http://fake", client: "w1", io: this.fake, onUnavailable });
  }

  permit(name: string): Permit {
    const permit = this.permits.get(name);
    assert.ok(permit, `no permit is named ${name}`);
    return permit;
  }

  #told(items: Json[]): [Permit, Outcome][] {
    return items.map(({ permit, ...fields }) => [this.permit(permit), camel(fields)]);
  }

  /** Returns the permits and the next steps of a call. */
  async step(step: Json): Promise<[Permit[], object[]]> {
    if (step.acquire) {
      const { url, key, ...wanted } = step.acquire;
      return [[await this.client.acquire(url ?? key, camel(wanted) as Wanted)], []];
    }
    if (step.acquire_any)
      return [await this.client.acquireAny(step.acquire_any.targets, step.acquire_any.n), []];
    if (step.exchange) {
      const { told, targets, wait_ms: waitMs } = step.exchange;
      const [nexts, permits] = await this.client.exchange(this.#told(told), targets as Target[], 0, {
        waitMs,
      });
      return [permits, nexts];
    }
    if (step.report) return [[], await this.client.report(this.#told(step.report))];
    const names: string[] = step.renew ?? step.cancel.permits;
    const permits = names.map((name) => this.permit(name));
    await (step.renew ? this.client.renew(permits) : this.client.cancel(permits, step.cancel));
    return [[], []];
  }

  async gives(step: Json): Promise<void> {
    const [permits, nexts] = await this.step(step);
    for (const permit of permits) this.permits.set(step.as ?? permit.state.name, permit);
    if (permits.length && step.gives)
      assert.deepEqual(
        permits.map(({ state }) => state.name),
        step.gives,
      );
    const expected: Json[] = step.nexts ?? (permits.length ? [] : (step.gives ?? []));
    assert.equal(nexts.length, expected.length);
    for (const [i, next] of nexts.entries()) includes(next, camel(expected[i] ?? {}));
  }

  async fails(step: Json): Promise<void> {
    const { error: name, message = "", ...fields } = step.fails;
    const error: unknown = await this.step(step).catch((why: unknown) => why);
    assert.ok(error instanceof Error, "no error");
    assert.equal(error.name, name);
    assert.ok(error.message.includes(message), error.message);
    includes(error, camel(fields));
  }
}

function includes(given: object, expected: Json): void {
  assert.deepEqual({ ...given, ...expected }, { ...given });
}

/** Asserts that a body is as expected, where `$name` stands for an id. */
function matches(expected: unknown, body: unknown, ids: Map<string, unknown>): void {
  if (typeof expected === "string" && expected.startsWith("$")) {
    if (!ids.has(expected)) ids.set(expected, body);
    assert.equal(body, ids.get(expected));
  } else if (typeof expected === "object" && expected !== null) {
    assert.deepEqual(Object.keys(Object(body)).sort(), Object.keys(expected).sort());
    for (const [name, each] of Object.entries(expected)) matches(each, Object(body)[name], ids);
  } else {
    assert.deepEqual(body, expected);
  }
}

function near(given: number, expected: number, within: number): void {
  assert.ok(Math.abs(given - expected) <= within, `${given} instead of ${expected}`);
}

for (const scenario of ["acquire", "report", "share"].flatMap(read) as Json[]) {
  test(scenario.name, async () => {
    const runner = new Runner(scenario);
    const began = runner.fake.now();
    for (const step of scenario.steps as Json[]) {
      for (let i = 0; i < (step.times ?? 1); i += 1)
        await (step.fails ? runner.fails(step) : runner.gives(step));
      const elapsed = runner.fake.now() - began;
      near(elapsed, step.at_ms ?? elapsed, 10);
      assert.ok(elapsed <= (step.until_ms ?? elapsed), `${elapsed} ms`);
      for (const [name, over] of Object.entries(step.ended ?? {}))
        assert.equal(runner.permit(name).isOver, over);
      for (const [name, left] of Object.entries(step.lease_left_ms ?? {})) {
        near(runner.permit(name).leaseLeftMs, left as number, 1e-3);
      }
    }
    const ids = new Map<string, unknown>();
    for (const [path, bodies] of Object.entries(scenario.calls ?? {}))
      matches(bodies, runner.fake.of(path), ids);
    assert.equal(new Set(ids.values()).size, ids.size);
    if (scenario.slept_ms) {
      assert.equal(runner.fake.slept.length, scenario.slept_ms.length);
      for (const [i, ms] of runner.fake.slept.entries()) near(ms, scenario.slept_ms[i], 1e-3);
    }
  });
}

const evidence = read("evidence");
const text = (given: Json | string): string =>
  typeof given === "string" ? given : given.repeated.repeat(given.times);

test("the headers that matter are sent", () => {
  for (const { given, asked, kept } of evidence.headers) {
    assert.deepEqual(headersThatMatter(Object.entries(given as Json), asked ?? undefined), kept);
  }
});

test("the bodies that matter are sent", () => {
  for (const { status, asked, body, start } of evidence.body_start) {
    const sent = bodyStartOf(status, Buffer.from(text(body)), asked ?? undefined);
    assert.equal(sent, start === null ? undefined : text(start), `${status} ${asked}`);
  }
});

for (const { name, reader, given, used } of evidence.usage) {
  test(`usage of ${reader}: ${name}`, () => {
    const read = usage[reader as keyof typeof usage];
    assert.deepEqual(read(given), used);
    if (typeof given === "string") assert.deepEqual(read(Buffer.from(given)), used);
  });
}
