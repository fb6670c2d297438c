// How a key was answered, per hour of the last day: the sums of the audit.

import { get } from "./api.js";
import { el, say } from "./dom.js";
import { poll } from "./poll.js";
import { table, words as text } from "./table.js";
import * as words from "./words.js";

const EVERY_MS = 30_000;
const DAY_S = 86_400;

const number = (label, title, read) => ({ label, title, kind: "number", cell: text((row) => words.count(read(row))) });

/** The columns about answers. Blocks are counted apart from refusals by a limit. */
export const ANSWERS = [
  number("Ok", "Answers that served the page", (row) => row.ok ?? 0),
  number("Refused", "Answers that refused by a limit", (row) => row.rate_limited ?? 0),
  number("Blocked", "Challenges and block pages", (row) => row.blocked ?? 0),
  number("Failed", "Server errors, time-outs, and errors of single pages", (row) => (row.overloaded ?? 0) + (row.unreachable ?? 0) + (row.url_error ?? 0)),
  { label: "By status", cell: text((row) => Object.entries(row.statuses ?? {}).map(([status, answers]) => `${status}: ${words.count(answers)}`).join(", ")) },
];

const COLUMNS = [
  { label: "Hour", kind: "name", cell: text((row) => new Date(row.at_s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })) },
  ...ANSWERS,
];

/** Creates a card with the answers of the key `name`. */
export function mix(name) {
  const list = table({ label: "Answers of the last day", columns: COLUMNS, id: (row) => row.at_s });
  list.element.hidden = true;
  const hint = el("p", { class: "none" }, "Nothing was counted yet.");
  const polled = poll({
    every: EVERY_MS,
    ask: (signal) => {
      const from = Math.floor(Date.now() / 1000) - DAY_S + 3600;
      return get("audit", { by: "key", step: "1h", name, from }, signal);
    },
    show({ rows, incomplete }) {
      list.show([...rows].reverse());
      list.element.hidden = rows.length === 0;
      const missing = words.incomplete(incomplete);
      hint.hidden = rows.length > 0 && !missing;
      say(hint, `${rows.length > 0 ? "" : "Nothing was counted yet."}${missing}`.trim());
    },
    failed(problem) {
      hint.hidden = false;
      say(hint, problem.status === 403 ? "The audit needs the token of an operator." : problem.message);
    },
  });
  return { element: el("section", { class: "card" }, el("h2", {}, "Answers of the last day"), list.element, hint), stop: polled.stop };
}
