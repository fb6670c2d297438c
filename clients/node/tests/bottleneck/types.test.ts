import assert from "node:assert/strict";
import { test } from "node:test";

import Bottleneck from "politely/bottleneck";

class Polite extends Bottleneck {
  constructor() {
    super({ maxConcurrent: 1 });
  }
}

test("the types of a service on Bottleneck fit", async () => {
  const group: Bottleneck.Group = new Bottleneck.Group({ maxConcurrent: 1 });
  const limiter: Bottleneck = group.key("a").on("error", () => {});
  limiter.on("failed", async (_, info: Bottleneck.EventInfoRetryable) => (info.retryCount < 2 ? 10 : undefined));
  const sum: Promise<number> = new Polite().schedule(async (a: number, b: string) => a + b.length, 1, "xy");
  const upper = limiter.wrap(async (text: string) => text.toUpperCase());
  const texts: string[] = [await upper("a"), await upper.withOptions({ priority: 1 }, "b")];
  const show = (n: number, done: Bottleneck.Callback<string>) => done(null, String(n));
  texts.push(await new Promise<string>((resolve) => limiter.submit(show, 1, (_, text) => resolve(text))));
  assert.deepEqual([await sum, ...texts], [3, "A", "B", "1"]);
});
