import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { systemClock } from "../../src/bottleneck/clock.js";

test("a delay longer than setTimeout's maximum is waited for", () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  let fired = 0;
  systemClock.after(2 ** 31 + 1000, () => (fired += 1));
  const cancel = systemClock.after(2 ** 31 + 1000, () => assert.fail("cancelled"));
  mock.timers.tick(2 ** 31);
  cancel();
  assert.equal(fired, 0);
  mock.timers.tick(1001);
  assert.equal(fired, 1);
  mock.timers.reset();
});
