// The page of one key: its state and the reason, its history, its decisions, and the operator's
// controls.

import { get, keyPath, patch } from "./api.js";
import { el, say } from "./dom.js";
import { careful, numbers, plain } from "./form.js";
import { left } from "./keys.js";
import { mix } from "./mix.js";
import { past } from "./past.js";
import { poll } from "./poll.js";
import { badge } from "./states.js";
import { table, words as text } from "./table.js";
import { trouble } from "./trouble.js";
import * as words from "./words.js";

const EVERY_MS = 2_000;

/** Label and format of each fact. */
const FACTS = [
  ["Rate", (key) => `${words.rate(key.rate)}${key.rate === null ? "" : "/s"}`],
  ["Learned ceiling", (key) => (key.ceiling === null ? "not yet" : `${words.rate(key.ceiling)}/s`)],
  ["In flight", (key) => `${words.count(key.in_flight)} of ${words.count(key.in_flight_max)}`],
  ["Waiting", (key) => words.count(key.waiting)],
  ["Refused", (key) => `${words.count(key.refused)} (${words.share(key.refused_share)})`],
  ["Latency p50, p95", (key) => (key.latency_p50_ms === null ? "not yet" : `${words.duration(key.latency_p50_ms)}, ${words.duration(key.latency_p95_ms)}`)],
  ["Granted", (key) => words.count(key.granted)],
  ["Reported", (key) => words.count(key.reported)],
  ["Given back", (key) => words.count(key.cancelled)],
  ["Never heard of again", (key) => words.count(key.expired)],
];

const PERMITS = [
  { label: "Permit", kind: "name", cell: text((out) => out.permit) },
  { label: "Client", kind: "client", cell: text((out) => out.client) },
  { label: "Since", kind: "number", cell: text((out) => words.duration(out.ago_ms)) },
  { label: "Lease ends in", kind: "number", cell: text((out) => words.duration(out.lease_ms)) },
];

/** Fills `place` with the page of the key `name`. */
export function keyPage(place, name) {
  const state = badge();
  const why = el("p", { class: "why-now" });
  const unknown = el("p", { class: "none", hidden: true }, "This key is not known. What is set here makes it.");
  const facts = FACTS.map(([label, read]) => ({ read, value: el("dd", {}, "–"), label: el("dt", {}, label) }));
  const history = past();
  const answers = mix(name);
  const decisions = el("ol", { class: "decisions" });
  const quiet = el("p", { class: "none" }, "Nothing was decided yet.");
  const out = table({ label: "Permits out", columns: PERMITS, id: (permit) => permit.permit });
  const idle = el("p", { class: "none" }, "None is out.");
  const seen = el("div", { class: "seen" },
    el("dl", { class: "facts" }, facts.map(({ label, value }) => el("div", {}, label, value))),
    history.element,
    answers.element,
  );

  const send = async (body) => {
    show(await patch(keyPath(name), body));
    polled.now();
  };
  const limits = limitsForm(send);
  const budgets = budgetsCard(name, send);
  place.append(
    el("div", { class: "key-head" }, el("a", { href: left, class: "back" }, "‹ Keys"), el("h1", {}, name), state.element, why),
    unknown,
    el("div", { class: "columns" },
      el("div", {}, seen, el("section", { class: "card" }, el("h2", {}, "Decisions"), decisions, quiet), el("section", { class: "card" }, el("h2", {}, "Permits out"), out.element, idle)),
      el("aside", { "aria-label": "What you may do" }, limits.element, budgets.element, holdForm(send), forgetForm(name, send)),
    ),
  );

  function show(key) {
    trouble("key", null);
    unknown.hidden = true;
    seen.hidden = false;
    state.show(key.state);
    say(why, key.why);
    for (const { read, value } of facts) say(value, read(key));
    history.show(key);
    list(decisions, key.decisions);
    quiet.hidden = key.decisions.length > 0;
    out.show(key.out);
    out.element.hidden = key.out.length === 0;
    idle.hidden = key.out.length > 0;
    limits.show(key.limits);
    budgets.show(key.budgets);
  }

  const polled = poll({
    every: EVERY_MS,
    ask: (signal) => get(keyPath(name), {}, signal),
    show,
    failed(problem) {
      const nobody = problem.status === 404 || problem.status === 422;
      trouble("key", nobody ? null : problem);
      if (!nobody) return;
      unknown.hidden = false;
      seen.hidden = true;
      say(why, problem.message);
    },
  });

  return {
    title: name,
    stop() {
      polled.stop();
      answers.stop();
      history.stop();
      trouble("key", null);
    },
    press(key) {
      if (key !== "Escape") return false;
      location.hash = left;
      return true;
    },
  };
}

function list(place, decisions) {
  while (place.children.length > decisions.length) place.lastElementChild.remove();
  while (place.children.length < decisions.length) place.append(el("li", {}, el("time"), el("span")));
  decisions.forEach(({ ago_ms, text }, i) => {
    const [time, what] = place.children[i].children;
    say(time, words.ago(ago_ms));
    say(what, text);
  });
}

function limitsForm(send) {
  const form = numbers({
    label: "Limits",
    verb: "Set limits",
    fields: [
      { name: "rate", label: "Rate", unit: "/s", hint: "An upper bound; the law learns below it" },
      { name: "burst", label: "Burst", unit: "requests", hint: "Requests back to back" },
      { name: "in_flight", label: "In flight", unit: "requests", hint: "Most requests under way" },
    ],
    send,
    done: () => "Set.",
    empty: "Fill in what is to change.",
  });
  const set = el("p", { class: "hint" });
  const back = Object.entries({ rate: "rate", burst: "burst", in_flight: "in flight" }).map(([name, what]) => {
    const element = plain({ verb: `Take back: ${what}`, act: () => send({ [name]: null }), done: "Taken back." });
    return { name, element };
  });
  return {
    element: el("section", { class: "card" }, el("h2", {}, "Limits"), set, form.element, back.map(({ element }) => element)),
    show(limits) {
      form.show(limits);
      for (const { name, element } of back) element.hidden = limits[name] == null;
      const named = Object.entries({ rate: "/s", burst: " back to back", in_flight: " in flight" });
      const told = named.filter(([name]) => limits[name] != null).map(([name, unit]) => `${limits[name]}${unit}`);
      say(set, told.length ? `Set by an operator: ${told.join(", ")}.` : "None of its own. What is left empty stays as it is.");
    },
  };
}

/** A row for each budget, with its remainder and a button that makes it whole. */
function budgetsCard(name, send) {
  const rows = new Map();
  const row = (limit) => {
    const left = el("p", { class: "hint" });
    const reset = careful({
      verb: "Reset",
      question: `Make the budget ${limit} of ${name} whole? What was spent of it counts no more.`,
      act: () => send({ reset_budget: limit }),
      done: "Whole again.",
    });
    return { left, element: el("li", {}, el("h3", {}, limit), left, reset) };
  };
  const list = el("ol", { class: "budgets" });
  const element = el("section", { class: "card", hidden: true }, el("h2", {}, "Budgets"), list);
  return {
    element,
    show(budgets) {
      element.hidden = budgets.length === 0;
      for (const { limit } of budgets) if (!rows.has(limit)) rows.set(limit, row(limit));
      const shown = budgets.map(({ limit }) => rows.get(limit).element);
      if (shown.some((child, i) => list.children[i] !== child) || list.children.length > shown.length) list.replaceChildren(...shown);
      for (const { limit, remaining, resets_in_ms } of budgets) {
        const again = resets_in_ms ? `, more in ${words.duration(resets_in_ms)}` : "";
        say(rows.get(limit).left, `${words.count(remaining)} left${again}`);
      }
    },
  };
}

function holdForm(send) {
  const hold = numbers({
    label: "Hold",
    verb: "Hold",
    fields: [{ name: "hold_s", alias: "hold_ms", label: "Nothing leaves for", unit: "seconds" }],
    send: ({ hold_s }) => send({ hold_ms: Math.round(hold_s * 1000) }),
    done: ({ hold_s }) => `Held for ${words.duration(hold_s * 1000)}.`,
    empty: "For how long?",
  });
  const unpark = plain({ verb: "Lift", act: () => send({ unpark: true }), done: "Lifted." });
  return el("section", { class: "card" },
    el("h2", {}, "Hold"), hold.element,
    el("p", { class: "hint" }, "Lift what is in the way: hold, breaker, quarantine."), unpark,
  );
}

function forgetForm(name, send) {
  const forget = careful({
    verb: "Forget",
    question: `Forget what was learned and set for ${name}? It starts as a stranger.`,
    act: () => send({ forget: true }),
    done: "Forgotten.",
  });
  return el("section", { class: "card" }, el("h2", {}, "Forget"), forget);
}
