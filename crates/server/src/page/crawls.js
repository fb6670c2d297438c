// The crawls of the frontier with their domains and backlog, and the owners and domains of one
// crawl.

import { get } from "./api.js";
import { el, say } from "./dom.js";
import { poll } from "./poll.js";
import { table, words as text } from "./table.js";
import { trouble } from "./trouble.js";
import * as words from "./words.js";

const EVERY_MS = 2_000;
/** The most owners and the most domains that are shown. */
const ROWS = 50;

const number = (label, title, read) => ({ label, title, kind: "number", cell: text((row) => words.count(read(row))) });
const NUMBERS = [
  number("Ready", "Pages that wait for their domain only", (row) => row.ready),
  number("Dated", "Pages that wait for a date", (row) => row.dated),
  number("Leased", "Pages in units of work", (row) => row.leased),
  number("Finished", "Pages that were visited for the last time", (row) => row.finished),
];

const CRAWLS = [
  { label: "Crawl", kind: "name", cell: crawlCell },
  number("Domains", "Domains with pages, waiting or not", (row) => row.domains),
  ...NUMBERS,
];

const OWNERS = [
  { label: "Domain", kind: "name", cell: text((row) => row.domain) },
  { label: "Worker", kind: "name", cell: text((row) => row.client ?? "from before the start") },
  number("Pages", "Pages without an outcome", (row) => row.pages),
  { label: "Lease", kind: "number", title: "The rest of its lease", cell: text((row) => words.duration(row.lease_ms)) },
  number("Token", "The fencing token of the unit", (row) => row.token),
];

const DOMAINS = [
  { label: "Domain", kind: "name", cell: text((row) => row.domain) },
  ...NUMBERS,
  number("Owners", "Workers that own it now", (row) => row.owners.length),
  { label: "Waits", kind: "number", title: "How long it is not handed out", cell: text((row) => words.duration(row.wait_ms)) },
];

/** Fills `place` with the crawls. The query `crawl` names the one whose owners are shown. */
export function crawls(place, query) {
  const chosen = query.get("crawl");
  const list = table({ label: "Crawls", columns: CRAWLS, id: (row) => row.crawl });
  const none = el("p", { class: "none", hidden: true });
  place.append(el("h1", {}, "Crawls"), list.element, none);
  const part = chosen === null ? null : details(place, chosen);
  const polling = poll({
    every: EVERY_MS,
    async ask(signal) {
      const all = await get("frontier", {}, signal);
      return { all, ...(part ? await part.ask(signal) : {}) };
    },
    show({ all, ...rest }) {
      trouble("crawls", null);
      list.show(all.crawls);
      none.hidden = all.crawls.length > 0;
      say(none, "No page was added to a crawl yet.");
      part?.show(rest);
    },
    failed(problem) {
      // A coordinator without a frontier is no trouble.
      const isMissing = problem.status === 404;
      trouble("crawls", isMissing ? null : problem);
      if (!isMissing) return;
      none.hidden = false;
      say(none, problem.message);
    },
  });
  function stop() {
    polling.stop();
    trouble("crawls", null);
  }
  return { title: "Crawls", stop };
}

/** The owners and the first domains of one crawl. */
function details(place, crawl) {
  const owners = table({ label: "Owners", columns: OWNERS, id: (row) => row.token });
  const domains = table({ label: "Domains", columns: DOMAINS, id: (row) => row.domain });
  const idle = el("p", { class: "none", hidden: true }, "No domain has an owner now.");
  place.append(
    el("h2", {}, `Owners of domains of ${crawl}`),
    owners.element,
    idle,
    el("h2", {}, `Domains of ${crawl}, by name`),
    domains.element,
  );
  const path = `frontier/${encodeURIComponent(crawl)}`;
  return {
    async ask(signal) {
      const limit = { limit: ROWS };
      const [owned, named] = await Promise.all([
        get(`${path}/owners`, limit, signal),
        get(`${path}/domains`, limit, signal),
      ]);
      return { ...owned, ...named };
    },
    show(answer) {
      owners.show(answer.owners);
      idle.hidden = answer.owners.length > 0;
      domains.show(answer.domains);
    },
  };
}

function crawlCell() {
  const element = el("a");
  return {
    element,
    show({ crawl, paused }) {
      element.href = `#/crawls?crawl=${encodeURIComponent(crawl)}`;
      say(element, paused ? `${crawl} (paused)` : crawl);
    },
  };
}
