// The sparkline of a key: permits per minute of the last half hour, and the minutes with refusals.

import { set, svg } from "./dom.js";
import * as words from "./words.js";

const [WIDTH, HEIGHT] = [90, 22];

/** Creates the cell of a row's sparkline. */
export function sparkCell() {
  const granted = svg("path", { class: "granted" });
  const refused = svg("path", { class: "refused" });
  const element = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "row-spark", role: "img" }, granted, refused);
  return {
    element,
    show({ minutes }) {
      const counts = minutes?.granted ?? [];
      const most = Math.max(...counts, 1);
      const step = WIDTH / Math.max(counts.length, 1);
      const high = (count) => (count === 0 ? 0 : Math.max((count / most) * (HEIGHT - 5), 1.5));
      const bar = (i, from, to) => `M${(i * step + 0.25).toFixed(2)} ${from.toFixed(1)}h${(step - 0.5).toFixed(2)}V${to.toFixed(1)}h${(0.5 - step).toFixed(2)}z`;
      set(granted, "d", counts.map((count, i) => (count ? bar(i, HEIGHT - 3 - high(count), HEIGHT - 3) : "")).join(""));
      set(refused, "d", (minutes?.refused ?? []).map((count, i) => (count ? bar(i, HEIGHT - 2, HEIGHT) : "")).join(""));
      set(element, "aria-label", said(minutes));
    },
  };
}

function said(minutes) {
  if (!minutes) return "No history";
  const sum = (counts) => counts.reduce((sum, count) => sum + count, 0);
  return `Last 30 minutes: ${words.count(sum(minutes.granted))} granted, ${words.count(sum(minutes.refused))} refused`;
}
