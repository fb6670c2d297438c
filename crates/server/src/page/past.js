// A key's history in three charts with one time axis: rate and refusals, latency, outcomes.

import { chart, makeScale } from "./chart.js";
import { el, say, svg } from "./dom.js";
import * as words from "./words.js";

const SPAN_MIN_MS = 2 * 60_000;
const OUTCOMES = ["ok", "refused", "failed", "blocked"];

/** Creates the charts of one key, and a line that describes the step under the pointer. */
export function past() {
  const rate = chart({ title: "Rate and refusals", legend: [["rate set", ["line", "rate"]], ["granted", ["bar", "granted"]], ["refused", ["mark", "refusal"]], ["ceiling", ["line", "ceiling"]]] });
  const latency = chart({ title: "Latency", legend: [["p50", ["line", "p50"]], ["p95", ["line", "p95"]]] });
  const mix = chart({ title: "Outcomes", legend: OUTCOMES.map((name) => [name, ["bar", name]]) });
  const readout = el("p", { class: "readout", "aria-live": "polite" });
  const element = el("section", { class: "card past", tabindex: "0", role: "group", "aria-label": "The past: arrow keys go through its steps", keydown: step },
    rate.element, latency.element, mix.element, readout);
  let key = null;
  let chosen = null; // the begin of the step under the pointer, in the page's time
  let shownAt = 0;
  const sized = new ResizeObserver(() => key && draw());
  sized.observe(element);
  for (const { picture } of [rate, latency, mix]) {
    picture.addEventListener("pointermove", (event) => point(event.clientX - picture.getBoundingClientRect().left));
    picture.addEventListener("pointerleave", () => choose(null));
  }

  function span() {
    const oldest = key.history[0]?.ago_ms ?? 0;
    return Math.max(Math.ceil(oldest / 60_000) * 60_000, SPAN_MIN_MS);
  }
  function scaleOf(chart, most, unit, read) {
    return makeScale({ width: chart.width(), span_ms: span(), most, unit, read });
  }
  function point(x) {
    if (!key?.history.length) return;
    const ago = scaleOf(rate, 1).ago(x);
    const near = key.history.findLast((point) => point.ago_ms >= ago) ?? key.history[0];
    choose(shownAt - near.ago_ms);
  }
  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !key?.history.length) return;
    event.preventDefault();
    const at = index();
    const last = key.history.length - 1;
    const to = at < 0 ? last : Math.min(Math.max(at + by, 0), last);
    choose(shownAt - key.history[to].ago_ms);
  }
  function choose(began) {
    chosen = began;
    if (key) draw();
  }
  /** Returns the index of the chosen step, which moves as the history grows. */
  function index() {
    if (chosen === null) return -1;
    return key.history.findIndex((point) => Math.abs(shownAt - point.ago_ms - chosen) < key.step_ms / 2);
  }

  function draw() {
    const at = index();
    drawRate(at);
    drawLatency(at);
    drawMix(at);
    say(readout, at < 0 ? summary(key) : read(key, key.history[at], at));
  }
  function drawRate(at) {
    const { history, step_ms, ceiling } = key;
    const set = history.map((point) => (point.rate > 0 && point.rate < 1e9 ? point.rate : null));
    const granted = history.map((point, i) => (point.granted * 1000) / length(key, i));
    const most = Math.max(...set, ...granted, ceiling ?? 0, 0.1);
    const scale = scaleOf(rate, most, "requests per second", axisNumber);
    const bars = history.map((_, i) => bar(scale, key, i, 0, granted[i], "granted"));
    const line = svg("path", { d: steps(scale, key, set), class: "rate" });
    const refusals = history.map(({ refused, blocked, ago_ms }, i) => {
      const many = refused + blocked;
      if (many === 0) return null;
      const r = Math.min(2.5 + Math.sqrt(many), 8);
      return svg("circle", { cx: scale.x(ago_ms - step_ms / 2), cy: scale.y(set[i] ?? granted[i]), r, class: "refusal" });
    });
    const roof = ceiling !== null && svg("path", { d: `M${scale.left} ${scale.y(ceiling)}H${scale.right}`, class: "ceiling" });
    rate.draw(scale, [cursor(scale, key, at), ...bars, roof, line, ...refusals], `Rate and refusals. ${summary(key)}`);
  }
  function drawLatency(at) {
    const numbers = (name) => key.history.map((point) => (point[name] > 0 ? point[name] : null));
    const [p50, p95] = [numbers("latency_p50_ms"), numbers("latency_p95_ms")];
    const most = Math.max(...p95, ...p50, 10);
    const seconds = most >= 3000;
    const scale = scaleOf(latency, most, seconds ? "seconds" : "milliseconds", (ms) => axisNumber(seconds ? ms / 1000 : ms));
    const line = (of, name) => svg("path", { d: steps(scale, key, of), class: name });
    const last = key.history.at(-1);
    const said = last ? `Latency now: p50 ${words.duration(last.latency_p50_ms)}, p95 ${words.duration(last.latency_p95_ms)}.` : "Latency: nothing yet.";
    latency.draw(scale, [cursor(scale, key, at), line(p95, "p95"), line(p50, "p50")], said);
  }
  function drawMix(at) {
    const sum = (point) => OUTCOMES.reduce((sum, name) => sum + point[name], 0);
    const scale = scaleOf(mix, Math.max(...key.history.map(sum), 1), `outcomes in ${words.duration(key.step_ms)}`, axisNumber);
    const bars = key.history.flatMap((point, i) => {
      let from = 0;
      return OUTCOMES.map((name) => {
        const to = from + point[name];
        const drawn = to > from ? bar(scale, key, i, from, to, name) : null;
        from = to;
        return drawn;
      });
    });
    mix.draw(scale, [cursor(scale, key, at), ...bars], `Outcomes. ${summary(key)}`);
  }

  return {
    element,
    show(detail) {
      key = detail;
      shownAt = performance.now();
      draw();
    },
    stop: () => sized.disconnect(),
  };
}

/** Returns the length of a step. The newest step has not ended. */
function length({ history, step_ms }, i) {
  return Math.max(Math.min(step_ms, history[i].ago_ms), 1000);
}

function bar(scale, key, i, from, to, name) {
  const ago = key.history[i].ago_ms;
  const [left, right] = [scale.x(ago), scale.x(ago - length(key, i))];
  const gap = Math.min(1, (right - left) / 4);
  const [y, bottom] = [scale.y(to), scale.y(from)];
  return svg("rect", { x: left, y, width: Math.max(right - left - gap, 0.5), height: Math.max(bottom - y, 0), class: name });
}

/** Returns a line that is level within each step. It is interrupted where numbers are missing. */
function steps(scale, { history, step_ms }, numbers) {
  let path = "";
  let drawn = null;
  history.forEach(({ ago_ms }, i) => {
    const number = numbers[i];
    if (number === null) {
      drawn = null;
      return;
    }
    const joined = drawn !== null && drawn - ago_ms < 1.5 * step_ms;
    path += `${joined ? "L" : "M"}${scale.x(ago_ms)} ${scale.y(number)}H${scale.x(ago_ms - step_ms)}`;
    drawn = ago_ms;
  });
  return path;
}

function cursor(scale, { history, step_ms }, at) {
  if (at < 0) return null;
  const [left, right] = [scale.x(history[at].ago_ms), scale.x(history[at].ago_ms - step_ms)];
  return svg("rect", { x: left, y: scale.top, width: right - left, height: scale.bottom - scale.top, class: "cursor" });
}

function axisNumber(number) {
  return number >= 1000 ? words.count(number) : String(Number(number.toPrecision(3)));
}

function read(key, point, i) {
  const parts = [`${words.ago(point.ago_ms)}: ${words.rate(point.rate)}/s set, ${words.rate((point.granted * 1000) / length(key, i))}/s granted`];
  for (const name of OUTCOMES) if (point[name] > 0) parts.push(`${words.count(point[name])} ${name}`);
  if (point.latency_p95_ms > 0) parts.push(`p50 ${words.duration(point.latency_p50_ms)}, p95 ${words.duration(point.latency_p95_ms)}`);
  return `${parts.join("; ")}.`;
}

function summary({ history }) {
  if (history.length === 0) return "Nothing was sent lately.";
  const sum = (name) => history.reduce((sum, point) => sum + point[name], 0);
  const told = OUTCOMES.map((name) => `${words.count(sum(name))} ${name}`);
  return `Last ${words.duration(Math.ceil(history[0].ago_ms / 60_000) * 60_000)}: ${words.count(sum("granted"))} granted; ${told.join(", ")}.`;
}
