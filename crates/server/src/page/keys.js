// The table of keys. The coordinator searches, sorts and pages, so the browser loads one page of
// rows for any number of keys.

import { get } from "./api.js";
import { el, say, set } from "./dom.js";
import { NEED_NAMES, strip } from "./needs.js";
import { poll } from "./poll.js";
import { sparkCell } from "./spark.js";
import { badge, STATE_NAMES } from "./states.js";
import { table, words as text } from "./table.js";
import { trouble } from "./trouble.js";
import * as words from "./words.js";

const ROWS = 100;
const EVERY_MS = 1_500;
/** A search begins after this pause in typing. */
const TYPING_MS = 150;
/** The order at first: the keys that need attention, then the others by name. */
const FIRST = "attention";

const COLUMNS = [
  { label: "Key", kind: "name", sort: "name", cell: keyCell },
  { label: "State", kind: "state", sort: "ready_in", title: "Sorted by when a request may leave", cell: stateCell },
  { label: "Rate /s", kind: "number", sort: "rate", title: "Requests per second, as set now", cell: text((row) => words.rate(row.rate)) },
  { label: "Last 30 min", kind: "minutes", title: "Permits per minute; a mark below is a minute with refusals", cell: sparkCell },
  { label: "Ceiling /s", kind: "number", sort: "ceiling", title: "The learned ceiling, requests per second", cell: text((row) => (row.ceiling === null ? "–" : words.rate(row.ceiling))) },
  { label: "In flight", kind: "number", sort: "in_flight", title: "Slots taken, of how many", cell: text((row) => `${words.count(row.in_flight)}/${slots(row.in_flight_max)}`) },
  { label: "Waiting", kind: "number", sort: "waiting", title: "In its line", cell: text((row) => words.count(row.waiting)) },
  { label: "Refused", kind: "number", sort: "refused_share", title: "Share of what was reported", cell: refusedCell },
  { label: "Granted", kind: "number", sort: "granted", title: "Permits given", cell: text((row) => words.count(row.granted)) },
  { label: "Why", kind: "why", cell: whyCell },
];

/** The address of the table when it was left, for the link back to it. */
export let left = "#/";

/** Fills `place` with the table for `query`. `from` is the key whose page was left. */
export function keys(place, query, from) {
  const asked = parse(query);
  const search = el("input", { type: "search", id: "search", placeholder: "Search keys", "aria-label": "Search keys", value: asked.q, autocomplete: "off", spellcheck: "false", input: typed });
  const state = choice("State", [["", "any state"], ...STATE_NAMES.map((name) => [name, name])], asked.state, (value) => turn({ state: value }));
  const sortable = [[FIRST, "by attention"], ...COLUMNS.filter((column) => column.sort).map((column) => [column.sort, `by ${column.label.toLowerCase()}`])];
  const order = choice("Sort", sortable, asked.sort, (value) => turn({ sort: value, descending: fallsAtFirst(value) }));
  const way = el("button", { type: "button", class: "quiet", "aria-label": "Turn the order around", click: () => turn({ descending: !asked.descending }) }, "⇅");
  const list = table({ label: "Keys", columns: COLUMNS, id: (row) => row.key, sortBy });
  const none = el("p", { class: "none", hidden: true });
  const found = el("span", { class: "found", role: "status" });
  const back = el("button", { type: "button", class: "quiet", "aria-label": "Previous page", click: () => leaf(-1) }, "‹");
  const on = el("button", { type: "button", class: "quiet", "aria-label": "Next page", click: () => leaf(1) }, "›");
  const needs = strip((value) => turn({ needs: value }));
  place.append(
    el("h1", { class: "unseen" }, "Keys"),
    needs.element,
    el("div", { class: "bar" }, search, state, el("span", { class: "order" }, order, way), el("span", { class: "pager" }, found, back, on)),
    list.element,
    none,
  );

  let typing;
  let matching = 0;
  const polled = poll({
    every: EVERY_MS,
    ask: (signal) => get("keys", question(asked), signal),
    show(page) {
      trouble("keys", null);
      matching = page.matching;
      if (page.keys.length === 0 && asked.page > 0) {
        turn({ page: Math.max(Math.ceil(matching / ROWS) - 1, 0) }); // the page has become empty
        return;
      }
      needs.show(page, asked.needs);
      list.show(page.keys);
      if (from !== undefined) list.focus(from);
      from = undefined;
      none.hidden = page.keys.length > 0;
      say(none, page.total === 0 ? "No keys yet. A key is made when a worker first asks for it." : "No key matches.");
      const first = asked.page * ROWS + 1;
      const range = `${words.count(first)}–${words.count(first + page.keys.length - 1)} of ${words.count(matching)}`;
      say(found, page.keys.length === 0 ? "" : range);
      back.disabled = asked.page === 0;
      on.disabled = (asked.page + 1) * ROWS >= matching;
    },
    failed: (problem) => trouble("keys", problem),
  });
  mark();
  if (query.has("find")) search.focus();

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(() => turn({ q: search.value }), TYPING_MS);
  }
  function sortBy({ sort }) {
    turn({ sort, descending: asked.sort === sort ? !asked.descending : fallsAtFirst(sort) });
  }
  function leaf(by) {
    const last = Math.max(Math.ceil(matching / ROWS) - 1, 0);
    const page = Math.min(Math.max(asked.page + by, 0), last);
    if (page !== asked.page) turn({ page });
  }
  function turn(change) {
    Object.assign(asked, { page: 0 }, change);
    mark();
    polled.now();
  }
  function mark() {
    left = address(asked);
    history.replaceState(null, "", left);
    list.sorted(asked.sort, asked.descending);
    order.value = asked.sort;
    set(way, "title", asked.sort === FIRST ? "" : asked.descending ? "largest first" : "smallest first");
  }

  return {
    title: "Keys",
    stop() {
      clearTimeout(typing);
      polled.stop();
      trouble("keys", null);
    },
    press(key) {
      if (key === "/") search.select();
      else if (key === "j") list.move(1);
      else if (key === "k") list.move(-1);
      else if (key === "[") leaf(-1);
      else if (key === "]") leaf(1);
      else return false;
      return true;
    },
  };
}

function parse(query) {
  const sorts = COLUMNS.map((column) => column.sort).filter(Boolean);
  const sort = sorts.includes(query.get("sort")) ? query.get("sort") : FIRST;
  return {
    q: query.get("q") ?? "",
    state: STATE_NAMES.includes(query.get("state")) ? query.get("state") : "",
    needs: NEED_NAMES.includes(query.get("needs")) ? query.get("needs") : "",
    sort,
    descending: query.has("descending"),
    page: Math.max(Math.trunc(Number(query.get("page"))) || 1, 1) - 1,
  };
}

function address({ q, state, needs, sort, descending, page }) {
  const query = new URLSearchParams();
  if (q) query.set("q", q);
  if (state) query.set("state", state);
  if (needs) query.set("needs", needs);
  if (sort !== FIRST) query.set("sort", sort);
  if (descending) query.set("descending", "");
  if (page > 0) query.set("page", page + 1);
  return query.size ? `#/?${query}` : "#/";
}

function question({ q, state, needs, sort, descending, page }) {
  const query = { sort, descending, offset: page * ROWS, limit: ROWS, minutes: true };
  if (q) query.q = q;
  if (state) query.state = state;
  if (needs) query.needs = needs;
  return query;
}

/** Returns whether the first order of a column has the largest number first. */
function fallsAtFirst(sort) {
  return sort !== "name" && sort !== FIRST;
}

function choice(label, options, chosen, changed) {
  const element = el(
    "select",
    { "aria-label": label, change: () => changed(element.value) },
    options.map(([value, word]) => el("option", { value }, word)),
  );
  element.value = chosen;
  return element;
}

function slots(most) {
  return most >= 0xffff_ffff ? "∞" : words.count(most);
}

function keyCell() {
  const link = el("a");
  return {
    element: link,
    show({ key }) {
      set(link, "href", `#/key/${encodeURIComponent(key)}`);
      set(link, "title", key);
      say(link, key);
    },
  };
}

function stateCell() {
  const state = badge();
  return { element: state.element, show: (row) => state.show(row.state) };
}

function refusedCell() {
  const element = el("span");
  return {
    element,
    show(row) {
      say(element, row.reported === 0 ? "–" : words.share(row.refused_share));
      set(element, "class", row.refused_share >= 0.05 ? "much" : null);
    },
  };
}

function whyCell() {
  const needs = el("strong", { class: "much" });
  const reason = el("span");
  const element = el("span", {}, needs, reason);
  return {
    element,
    show({ why, needs: all = [] }) {
      set(element, "title", why);
      say(needs, all.length ? `${all.join(", ")}: ` : "");
      say(reason, why);
    },
  };
}
