// The audit: what each worker, key or account did, per step of some hours.

import { get } from "./api.js";
import { el } from "./dom.js";
import { ANSWERS } from "./mix.js";
import { poll } from "./poll.js";
import { table, words as text } from "./table.js";
import * as words from "./words.js";

const EVERY_MS = 30_000;
/** The rows that are shown. The API returns more. */
const ROWS_MAX = 500;
const BY = { worker: "workers", key: "keys", account: "accounts" };
const STEPS = { "1h": "the last day, by hour", "1d": "30 days, by day", "30d": "30 days in all" };
/** The time that is shown for each step, in seconds. */
const SHOWN_S = { "1h": 86_400, "1d": 30 * 86_400, "30d": 30 * 86_400 };

const COLUMNS = [
  { label: "Name", kind: "name", cell: text((row) => row.name || "–") },
  { label: "From", cell: text((row) => new Date(row.at_s * 1000).toLocaleString()) },
  { label: "Granted", kind: "number", cell: text((row) => words.count(row.granted ?? 0)) },
  ...ANSWERS,
  { label: "Waited", kind: "number", title: "Sum of the waits for permits", cell: text((row) => words.duration(row.waited_ms ?? 0)) },
  { label: "Bytes", kind: "number", cell: text((row) => words.bytes(row.bytes ?? 0)) },
  { label: "Expired", kind: "number", title: "Permits without a report", cell: text((row) => words.count(row.expired ?? 0)) },
];

/** Fills `place` with the audit. */
export function audit(place) {
  const options = (values) => Object.entries(values).map(([value, label]) => el("option", { value }, label));
  const by = el("select", { "aria-label": "Sum by", change: () => polling.now() }, options(BY));
  const step = el("select", { "aria-label": "Time", change: () => polling.now() }, options(STEPS));
  const list = table({ label: "Audit", columns: COLUMNS, id: (row) => `${row.at_s} ${row.name}` });
  const hint = el("p", { class: "hint" });
  const none = el("p", { class: "none" }, "Nothing was counted in this time.");
  place.append(el("h1", {}, "Audit"), el("div", { class: "bar" }, by, step), hint, list.element, none);
  const polling = poll({
    every: EVERY_MS,
    ask: (signal) => {
      const from = Math.floor(Date.now() / 1000) - SHOWN_S[step.value] + 3600;
      return get("audit", { by: by.value, step: step.value, from }, signal);
    },
    show({ rows, cut, incomplete }) {
      const newest = [...rows].reverse().slice(0, ROWS_MAX);
      list.show(newest);
      none.hidden = rows.length > 0;
      const more = cut || rows.length > newest.length ? `The newest ${words.count(newest.length)} rows. ` : "";
      hint.textContent = `${more}Counts of all coordinators that share an engine; the newest seconds may be missing.${words.incomplete(incomplete)}`;
    },
    failed(problem) {
      hint.textContent = problem.status === 403 ? "The audit needs the token of an operator." : problem.message;
    },
  });
  return { title: "Audit", stop: polling.stop };
}
