// The fleet's totals, with their values of the last two minutes.

import { get } from "./api.js";
import { el, say, set, svg } from "./dom.js";
import { poll } from "./poll.js";
import { trouble } from "./trouble.js";
import * as words from "./words.js";

const EVERY_MS = 2_000;
const SAMPLES = 60;
/** A worker counts as inactive this long after its last call. */
const AWAY_MS = 60_000;
const [WIDTH, HEIGHT] = [96, 24];

const refusedShare = (stats) => stats.refused_per_s / Math.max(stats.granted_per_s, stats.refused_per_s, 1e-9);
const perSecond = (number) => (number < 100_000 ? words.rate(number) : words.brief(number));
const atWork = (stats) => stats.workers.filter((worker) => worker.seen_ago_ms < AWAY_MS).length;

/** Label, number, format and description of each total. */
const TOTALS = [
  ["granted/s", (stats) => stats.granted_per_s, perSecond, "Permits per second, over the last ten seconds"],
  ["refused/s", (stats) => stats.refused_per_s, perSecond, "Refusals per second, over the last ten seconds"],
  ["refused share", refusedShare, words.share, "Refusals by permits, over the last ten seconds"],
  ["keys", (stats) => stats.keys, words.brief, "Keys known"],
  ["waiting", (stats) => stats.waiting, words.brief, "Items waiting in lines"],
  ["live permits", (stats) => stats.live, words.brief, "Permits out"],
  ["workers", atWork, words.count, "Workers heard of in the last minute"],
];

const listeners = new Set();

/** Calls `hear` with each new stats. Returns a function that ends this. */
export function onStats(hear) {
  listeners.add(hear);
  return () => listeners.delete(hear);
}

/** Fills `place` with the totals, and updates it. */
export function fleet(place) {
  const tiles = TOTALS.map(tile);
  place.append(...tiles.map((tile) => tile.element));
  poll({
    every: EVERY_MS,
    ask: (signal) => get("stats", {}, signal),
    show(stats) {
      trouble("fleet", null);
      for (const tile of tiles) tile.show(stats);
      for (const hear of listeners) hear(stats);
    },
    failed: (problem) => trouble("fleet", problem),
  });
}

function tile([label, number, read, meaning]) {
  const value = el("strong", {}, "–");
  const line = svg("path");
  const past = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" },
    line,
  );
  const samples = [];
  return {
    element: el("div", { class: "tile", title: meaning }, el("span", {}, label), value, past),
    show(stats) {
      const now = number(stats);
      samples.push(now);
      if (samples.length > SAMPLES) samples.shift();
      say(value, read(now));
      set(line, "d", spark(samples));
    },
  };
}

/**
 * Returns the path of a sparkline. The newest sample is at the right edge, and the largest sample,
 * at least 1e-6, is at the top.
 */
function spark(samples) {
  const most = Math.max(...samples, 1e-6);
  const at = (sample, i) => {
    const x = WIDTH - ((samples.length - 1 - i) * WIDTH) / (SAMPLES - 1);
    return `${x.toFixed(1)} ${(HEIGHT - 1.5 - (sample / most) * (HEIGHT - 3)).toFixed(1)}`;
  };
  return samples.length < 2 ? "" : `M${samples.map(at).join("L")}`;
}
