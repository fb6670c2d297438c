// The strip of keys that need attention, above the table of keys.

import { el, say, set } from "./dom.js";
import * as words from "./words.js";

/** Name in the API, word, tone of the colour, and meaning, most urgent first. */
const NEEDS = [
  ["unavailable", "engine unavailable", "bad", "The engine that keeps the key is unavailable, or its state cannot be decoded."],
  ["blocked", "blocked", "bad", "The host shows block pages. The key is in quarantine."],
  ["failing", "failing", "bad", "The host fails, and its breaker is open."],
  ["starved", "starved", "warn", "Callers wait, and none gets a permit for a minute."],
  ["refused", "refused above 1 %", "warn", "The host refused more than 1 % of the last five minutes."],
  ["expiring", "leases expire", "warn", "Permits end without a report: a worker crashed, or forgets to report."],
];

export const NEED_NAMES = NEEDS.map(([name]) => name);

/**
 * Creates the strip. Each need is a button with the number of its keys. A press shows only these
 * keys, and another press shows all keys again: `chosen(name)` is called with the need or "".
 */
export function strip(chosen) {
  const title = el("h2", { id: "needs" });
  const engine = el("p", { class: "engine-error", role: "alert", hidden: true });
  const warnings = el("p", { class: "engine-warnings", hidden: true });
  let now = "";
  const buttons = NEEDS.map(([name, word, tone, meaning]) => {
    const count = el("strong");
    const button = el("button", { type: "button", class: "need", "data-need": name, "data-tone": tone, title: meaning, click: () => chosen(now === name ? "" : name) }, count, ` ${word}`);
    return { name, count, button };
  });
  const list = el("div", { class: "need-list" }, buttons.map(({ button }) => button));
  const element = el("section", { class: "needs", "aria-labelledby": "needs" }, title, list, engine, warnings);
  return {
    element,
    /** Shows the counts of a page of keys. `only` is the chosen need. */
    show(page, only) {
      now = only;
      let any = Boolean(page.engine_error);
      for (const { name, count, button } of buttons) {
        const keys = page.needs?.[name] ?? 0;
        say(count, words.count(keys));
        button.hidden = keys === 0 && only !== name;
        set(button, "aria-pressed", String(only === name));
        any ||= keys > 0;
      }
      say(title, any ? "Needs attention" : "Nothing needs attention");
      element.classList.toggle("calm", !any);
      engine.hidden = !page.engine_error;
      say(engine, page.engine_error ?? "");
      warnings.hidden = !page.engine_warnings;
      say(warnings, (page.engine_warnings ?? []).join("; "));
    },
  };
}
