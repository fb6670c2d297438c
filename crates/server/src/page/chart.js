// A chart: an area with a time axis that ends now, and a number axis that begins at 0. The caller
// supplies the marks in it.

import { el, svg } from "./dom.js";

const HEIGHT = 170;
const MARGIN = { top: 12, right: 10, bottom: 22, left: 46 };

/** Creates a chart in a figure. `draw(scale, marks, said)` replaces its content. */
export function chart({ title, legend }) {
  const picture = svg("svg", { class: "chart", role: "img", "aria-label": title });
  const swatches = legend.map(([name, kind]) => el("span", { class: "swatch" }, sample(kind), name));
  const element = el("figure", {}, el("figcaption", {}, el("h2", {}, title), el("span", { class: "legend" }, swatches)), picture);
  return {
    element,
    picture,
    width: () => Math.max(picture.clientWidth, 160),
    /** Shows `marks` over the axes of `scale`. `said` describes the chart to screen readers. */
    draw(scale, marks, said) {
      picture.setAttribute("viewBox", `0 0 ${scale.width} ${HEIGHT}`);
      picture.setAttribute("height", HEIGHT);
      picture.setAttribute("aria-label", said);
      picture.replaceChildren(...axes(scale), ...marks.filter(Boolean));
    },
  };
}

function sample(kind) {
  const shapes = {
    line: () => svg("path", { d: "M0 6h14" }),
    bar: () => svg("rect", { x: 1, y: 1, width: 12, height: 10 }),
    mark: () => svg("circle", { cx: 7, cy: 6, r: 3.5 }),
  };
  const [shape, name] = kind;
  return svg("svg", { width: 14, height: 12, class: name, "aria-hidden": "true" }, shapes[shape]());
}

/**
 * Returns the scale of a chart that is `width` wide and covers `span_ms` of history. `most` is the
 * largest number. `unit` is written at the top, and `read` formats a number of the axis.
 */
export function makeScale({ width, span_ms, most, unit, read = String }) {
  const step = niceStep(most / 4);
  const top = Math.max(Math.ceil(most / step - 1e-9), 1) * step;
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  return {
    width, span_ms, unit, read, right, bottom,
    left: MARGIN.left,
    top: MARGIN.top,
    numbers: Array.from({ length: Math.round(top / step) + 1 }, (_, i) => i * step),
    x: (ago_ms) => right - (Math.min(Math.max(ago_ms, 0), span_ms) / span_ms) * (right - MARGIN.left),
    y: (number) => bottom - (number / top) * (bottom - MARGIN.top),
    ago: (x) => ((right - x) / (right - MARGIN.left)) * span_ms,
  };
}

/** Returns the smallest 1, 2 or 5 times a power of ten that is at least `least`. */
function niceStep(least) {
  if (!(least > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least * (1 - 1e-9));
}

function axes(scale) {
  const lines = scale.numbers.flatMap((number) => {
    const y = scale.y(number);
    return [
      svg("path", { d: `M${scale.left} ${y}H${scale.right}`, class: number === 0 ? "axis" : "grid" }),
      svg("text", { x: scale.left - 6, y: y + 4, class: "tick end" }, scale.read(number)),
    ];
  });
  const minutes = scale.span_ms / 60_000;
  const every = [1, 2, 5, 10].find((every) => minutes / every <= Math.max(scale.width / 110, 2)) ?? 15;
  const ticks = [];
  for (let at = 0; at <= minutes; at += every) {
    const text = at === 0 ? "now" : `${at} min ago`;
    const x = scale.x(at * 60_000);
    const side = at === 0 ? "end" : x - scale.left < 24 ? "start" : "middle";
    ticks.push(svg("path", { d: `M${x} ${scale.bottom}v4`, class: "axis" }));
    ticks.push(svg("text", { x, y: scale.bottom + 16, class: `tick ${side}` }, text));
  }
  const unit = svg("text", { x: scale.left + 4, y: scale.top - 2, class: "tick" }, scale.unit);
  return [...lines, ...ticks, unit];
}
