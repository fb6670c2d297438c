// Tests with Crawlee, and with a browser directed by Playwright, of `tests/tools`.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import { polite } from "../src/crawlee.js";
import { Client } from "../src/index.js";
import { politeRoute } from "../src/playwright.js";
import { Fake, RETRY, whole } from "./fake.js";
import { breaks, host, says } from "./host.js";

const require = createRequire(new URL("../../../../tests/tools/package.json", import.meta.url));
const html = { "content-type": "text/html" };
const next = (...nexts: unknown[]) =>
  nexts.map((next, i) => ({ body: { items: [whole({ permit: `p${i + 1}`, next })] } }));

test("Crawlee waits for permits, and refused and broken requests are sent again", async (t) => {
  const { BasicCrawler, CheerioCrawler, Configuration, GotScrapingHttpClient } = require("crawlee");
  const fake = new Fake({ report: next(RETRY, RETRY) });
  const { url } = await host(t, says(429, "slow"), breaks, says(200, "<title>page</title>", html));
  const client = new Client({ url: "http://fake", client: "w1", io: fake });
  const httpClient = polite(client, new GotScrapingHttpClient());
  const configuration = new Configuration({ persistStorage: false });
  const titles: string[] = [];
  const crawler = new CheerioCrawler(
    {
      httpClient,
      maxRequestRetries: 0,
      requestHandler: async ({ $ }: { $: (selector: string) => { text(): string } }) =>
        void titles.push($("title").text()),
    },
    configuration,
  );
  crawler.log.setLevel(0);
  await crawler.run([url]);
  assert.deepEqual(titles, ["page"]);
  await fake.until(() => fake.reports().length === 4);
  const reports = fake
    .reports()
    .map(({ status, error, body_coming }) => [status ?? error, body_coming ?? false]);
  assert.deepEqual(reports, [
    [429, false],
    ["reset", false],
    [200, true],
    [200, false],
  ]);
  assert.equal(fake.reports()[0]?.body_start, "slow");

  const basic = new BasicCrawler(
    {
      httpClient,
      requestHandler: async ({ sendRequest }: { sendRequest(): Promise<{ body: string }> }) =>
        void titles.push((await sendRequest()).body),
    },
    new Configuration({ persistStorage: false }),
  );
  basic.log.setLevel(0);
  await basic.run([`${url}?again`]);
  assert.equal(titles[1], "<title>page</title>");
  assert.equal(fake.reports().length, 5);
});

test("each request and redirect of a page in a browser waits for its permit", async (t) => {
  const { chromium } = require("playwright-core");
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  t.after(() => browser.close());
  const fake = new Fake({ report: next(RETRY, RETRY) });
  const page = says(200, '<title>page</title><img src="/image">', html);
  const { url } = await host(
    t,
    says(503, "slow"),
    breaks,
    says(302, "", { location: "/page" }),
    page,
    says(200, "image"),
  );
  const client = new Client({ url: "http://fake", client: "w1", io: fake });
  const tab = await browser.newPage();
  await tab.route("**/*", politeRoute(client));
  assert.equal((await tab.goto(url, { timeout: 0 })).status(), 200);
  assert.equal(await tab.title(), "page");
  await fake.until(() => fake.reports().length > 4);
  assert.deepEqual(
    fake
      .reports()
      .slice(0, 4)
      .map(({ status, error }) => status ?? error),
    [503, "reset", 302, 200],
  );
  const paths = fake.items().map((item) => new URL(item.url).pathname);
  assert.deepEqual(paths.slice(0, 5), ["/x", "/x", "/x", "/page", "/image"]);
});

test("a page that is closed gives up its waits", async (t) => {
  const { chromium } = require("playwright-core");
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  t.after(() => browser.close());
  const fake = new Fake({ acquire: [{ body: { items: [whole({ status: "wait", retry_in_ms: 9_000 })] } }] });
  const tab = await browser.newPage();
  await tab.route("**/*", politeRoute(new Client({ url: "http://fake", client: "w1", io: fake })));
  const gone = assert.rejects(tab.goto("http://a.example/", { timeout: 0 }));
  await fake.until(() => fake.slept.length);
  await tab.close();
  await gone;
  await fake.until(() => fake.of("cancel").length);
});
