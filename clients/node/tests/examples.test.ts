// Runs the examples of the package's documents, with a coordinator and a host of this machine.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { serve, town } from "./program.js";

const RUN_HERE = /<!-- not run: the tests of this package run it -->\n```js\n([^]*?)\n```/g;
/** Inside of the package, so that its own name and those of its packages are known. */
const FOLDER = new URL("../documents/", import.meta.url);

for (const document of ["README.md", "docs/bottleneck.md"]) {
  test(`the examples of ${document} run`, async (t) => {
    const { urls } = await town(t, { a: { limit: { kind: "none" } } });
    const { url } = await serve(t, "--profile", "api");
    const text = readFileSync(new URL(`../../${document}`, import.meta.url), "utf8");
    const page = `${urls[0]}/page/1`;
    const blocks = [...text.matchAll(RUN_HERE)].map(([, block = ""]) => block.replaceAll("http://example.com/", page));
    assert.ok(blocks.length > 1);
    mkdirSync(FOLDER, { recursive: true });
    for (const [i, block] of blocks.entries()) {
      const file = fileURLToPath(new URL(`${document.replaceAll("/", "-")}-${i}.mjs`, FOLDER));
      writeFileSync(file, block);
      const env = { ...process.env, POLITELY_COORDINATOR: url };
      await promisify(execFile)(process.execPath, [file], { env, timeout: 20_000 });
    }
  });
}
