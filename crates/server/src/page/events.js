// The latest 200 events, kept while the page is open.

import { stream } from "./api.js";
import { el, say, set } from "./dom.js";

const KEPT = 200;
/** The shortest time between two updates of the list. Events within it are shown together. */
const SHOW_MS = 400;
const AGAIN_MS = 5_000;
const KINDS = ["hold", "rate", "breaker", "quarantine", "operator", "config", "lock", "missed"];
const TONES = { hold: "warn", breaker: "bad", quarantine: "bad", missed: "bad", operator: "calm", config: "calm", lock: "calm", rate: "good" };
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** Kinds that are not shown at first. A busy fleet has many events of these kinds. */
const OFF = ["rate"];
/** Kinds that are shown, and kept. An event of another kind would displace one that is shown. */
const chosen = new Set(KINDS.filter((kind) => !OFF.includes(kind)));

/** The events, newest first: `{ at, kind, key, text }`. */
const heard = [];
let changed = () => {};

/** Reads the stream of events while the page is visible. A hidden page would only use resources. */
export function listen() {
  let source;
  let again;
  let away = false;

  function open() {
    source = stream();
    for (const kind of KINDS) source.addEventListener(kind, ({ data }) => enter(kind, data));
    source.addEventListener("error", () => {
      // The browser reconnects after a broken connection, but not after an answer that is no
      // stream.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN_MS);
    });
  }
  function turn() {
    clearTimeout(again);
    source?.close();
    if (document.hidden) {
      away = true;
      return;
    }
    if (away) keep({ kind: "missed", text: "The page was hidden: what happened meanwhile is not here." });
    away = false;
    open();
  }
  document.addEventListener("visibilitychange", turn);
  turn();
}

function enter(kind, data) {
  try {
    const { key, text } = JSON.parse(data);
    keep({ kind, key, text: String(text) });
  } catch {
    // The data is not an event of this coordinator.
  }
}

function keep(event) {
  if (!chosen.has(event.kind)) return;
  heard.unshift({ at: CLOCK.format(new Date()), ...event });
  heard.length = Math.min(heard.length, KEPT);
  changed();
}

/** Fills `place` with the events, and updates it. `query` may name the kinds to show. */
export function events(place, query) {
  const list = el("ol", { class: "events", "aria-label": "Events, the newest first" });
  const none = el("p", { class: "none" }, "Nothing happened since this page was opened.");
  if (query.has("kinds")) {
    const asked = query.get("kinds").split(",");
    for (const kind of KINDS) turnKind(kind, asked.includes(kind));
  }
  function turnKind(kind, on) {
    if (on) chosen.add(kind);
    else chosen.delete(kind);
  }
  const boxes = KINDS.map((kind) => {
    const box = el("input", { type: "checkbox", checked: chosen.has(kind), change: choose });
    function choose() {
      turnKind(kind, box.checked);
      history.replaceState(null, "", `#/events?kinds=${[...chosen].join(",")}`);
      show();
    }
    return el("label", { class: "kind" }, box, kind);
  });
  place.append(el("h1", {}, "Events"), el("div", { class: "bar", role: "group", "aria-label": "Kinds shown" }, boxes), list, none);

  let timer = null;
  function show() {
    timer = null;
    const shown = heard.filter(({ kind }) => chosen.has(kind));
    while (list.children.length > shown.length) list.lastElementChild.remove();
    while (list.children.length < shown.length) list.append(el("li", {}, el("time"), el("span", { class: "badge" }), el("a"), el("span", { class: "what" })));
    shown.forEach((event, i) => {
      const [time, kind, key, text] = list.children[i].children;
      say(time, event.at);
      say(kind, event.kind);
      set(kind, "data-tone", TONES[event.kind]);
      say(key, event.key ?? "");
      set(key, "href", event.key ? `#/key/${encodeURIComponent(event.key)}` : null);
      say(text, event.text);
    });
    none.hidden = shown.length > 0;
  }
  changed = () => {
    timer ??= setTimeout(show, SHOW_MS);
  };
  show();

  return {
    title: "Events",
    stop() {
      clearTimeout(timer);
      changed = () => {};
    },
  };
}
