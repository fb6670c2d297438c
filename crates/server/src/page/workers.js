// The counts of each worker, most active first, as the coordinator sends them with the totals.

import { el, say, set } from "./dom.js";
import { onStats } from "./fleet.js";
import { table, words as text } from "./table.js";
import * as words from "./words.js";

const COLUMNS = [
  { label: "Worker", kind: "name", cell: text((worker) => worker.client) },
  { label: "Granted", kind: "number", title: "Permits given", cell: text((worker) => words.count(worker.granted)) },
  { label: "Refused", kind: "number", title: "Share of what it reported", cell: text(refused) },
  { label: "Waits", kind: "number", title: "Answers that said wait", cell: text((worker) => words.count(worker.waits)) },
  { label: "Held open", kind: "number", title: "How long its calls were held open, all together", cell: text((worker) => words.duration(worker.waited_ms)) },
  { label: "Given back", kind: "number", title: "Permits it did not use", cell: text((worker) => words.count(worker.cancelled)) },
  { label: "Idle leases", kind: "number", title: "Permits never heard of again", cell: idleCell },
  { label: "Live", kind: "number", title: "Permits out now", cell: text((worker) => words.count(worker.live)) },
  { label: "Seen", kind: "number", cell: text((worker) => words.ago(worker.seen_ago_ms)) },
];

/** Fills `place` with the workers. */
export function workers(place) {
  const list = table({ label: "Workers", columns: COLUMNS, id: (worker) => worker.client });
  const none = el("p", { class: "none" }, "No worker was heard of yet.");
  const books = el("p", { class: "hint" });
  place.append(el("h1", {}, "Workers"), books, list.element, none);
  const stop = onStats((stats) => {
    list.show(stats.workers);
    none.hidden = stats.workers.length > 0;
    const { granted, reported, cancelled, expired, live, late, uptime_s, memory } = stats;
    const ends = `${words.count(reported)} reported, ${words.count(cancelled)} given back, ${words.count(expired)} never heard of again, ${words.count(live)} out`;
    say(books, `Of ${words.count(granted)} permits: ${ends}. ${words.count(late)} reports came late or twice. Up for ${words.duration(uptime_s * 1000)}; ${words.bytes(memory)} for keys.`);
  });
  return { title: "Workers", stop };
}

function refused(worker) {
  return worker.reported === 0 ? "–" : words.share(worker.refused / worker.reported);
}

function idleCell() {
  const element = el("span");
  return {
    element,
    show({ expired }) {
      say(element, words.count(expired));
      set(element, "class", expired > 0 ? "much" : null);
    },
  };
}
