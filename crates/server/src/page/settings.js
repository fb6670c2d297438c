// The settings of all keys without settings of their own.

import { get, patch } from "./api.js";
import { el, say } from "./dom.js";
import { numbers } from "./form.js";
import { poll } from "./poll.js";
import { trouble } from "./trouble.js";
import * as words from "./words.js";

const EVERY_MS = 5_000;

const FACTS = [
  ["Rate per host", (config) => `${words.rate(config.crawling.rate_per_host)}${config.crawling.rate_per_host === null ? "" : "/s"}`],
  ["Burst", (config) => `${config.crawling.rate_burst} back to back`],
  ["First rate", (config) => `${words.rate(config.crawling.rate_start)}/s`],
  ["In flight", (config) => words.count(config.crawling.in_flight)],
  ["Profile", (config) => config.profile],
  ["Law", (config) => config.law],
  ["Limits attach to", (config) => config.key],
  ["Version", (config) => words.count(config.version)],
];

/** Fills `place` with the configuration and a form that changes it. */
export function settings(place) {
  const facts = FACTS.map(([label, read]) => ({ read, value: el("dd", {}, "–"), label: el("dt", {}, label) }));
  const form = numbers({
    label: "Limits per host",
    verb: "Set for every key",
    fields: [
      { name: "rate_per_host", label: "Rate per host", unit: "/s", hint: "Never more" },
      { name: "rate_burst", label: "Burst", unit: "requests", hint: "Requests back to back" },
      { name: "rate_start", label: "First rate", unit: "/s", hint: "What a stranger is asked first" },
      { name: "in_flight", label: "In flight", unit: "requests", hint: "Most requests under way" },
    ],
    async send(values) {
      show(await patch("config", { crawling: values }));
    },
    done: () => "Set. It holds from now on.",
    empty: "Fill in what is to change.",
  });
  place.append(
    el("h1", {}, "Settings"),
    el("p", { class: "hint" }, "They hold at once for every key without numbers of its own. What is left empty stays as it is."),
    el("div", { class: "columns" },
      el("section", { class: "card" }, el("h2", {}, "Now"), el("dl", { class: "facts" }, facts.map(({ label, value }) => el("div", {}, label, value)))),
      el("section", { class: "card" }, el("h2", {}, "Change"), form.element),
    ),
  );

  function show(config) {
    trouble("settings", null);
    for (const { read, value } of facts) say(value, read(config));
    form.show(config.crawling);
  }
  const polled = poll({
    every: EVERY_MS,
    ask: (signal) => get("config", {}, signal),
    show,
    failed: (problem) => trouble("settings", problem),
  });

  return {
    title: "Settings",
    stop() {
      polled.stop();
      trouble("settings", null);
    },
  };
}
