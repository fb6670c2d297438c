// The states of a key. Each has a word and a shape, so that no state depends on colour alone.

import { el, say, set, svg } from "./dom.js";

/**
 * Word, tone of the colour, filled part of the shape (a path in 12 x 12), meaning, and the part of
 * the shape that is only outlined.
 */
const STATES = {
  ready: ["ready", "good", "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0 -9z", "A request may leave now."],
  pacing: ["pacing", "calm", "M6 1.5a4.5 4.5 0 0 0 0 9z", "The next departure slot is later.", "M6 1.5a4.5 4.5 0 0 1 0 9"],
  full: ["full", "calm", "M2 2h8v8h-8z", "All in-flight slots are taken."],
  bytes: ["bytes", "calm", "M2 6.5h8v3.5h-8z", "The byte budget is in debt.", "M2 6.5v-4.5h8v4.5"],
  budget: ["budget", "calm", "M2 2h8v2.5h-8z", "A declared limit has no room.", "M2 4.5v5.5h8v-5.5"],
  hold: ["hold", "warn", "M2.5 2h2.5v8h-2.5z M7 2h2.5v8h-2.5z", "Nothing leaves before a time."],
  parked: ["parked", "warn", "M1.5 4.5h9v3h-9z", "The hold is further away than anybody should wait for."],
  breaker: ["breaker", "bad", "M6 1.5l5 9h-10z", "The host is in trouble."],
  quarantine: ["quarantine", "bad", "M4 1h4l3 3v4l-3 3h-4l-3 -3v-4z", "The host blocks us."],
  unavailable: ["unavailable", "bad", "M1.5 5.5h3v1h-3z M7.5 5.5h3v1h-3z", "The engine that keeps its state is unavailable, or what it keeps cannot be read.", "M6 1.5v2.5 M6 8v2.5"],
};

export const STATE_NAMES = Object.keys(STATES);

/** Creates a badge that shows states. */
export function badge() {
  const path = svg("path");
  const rest = svg("path", { class: "open" });
  const word = el("span");
  const icon = svg("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, path, rest);
  const element = el("span", { class: "badge" }, icon, word);
  return {
    element,
    show(state) {
      const [name, tone, shape, meaning, open] = STATES[state] ?? [String(state), "calm", "M2 6h8", ""];
      set(element, "data-tone", tone);
      set(element, "title", meaning);
      set(path, "d", shape);
      set(rest, "d", open);
      say(word, name);
    },
  };
}
