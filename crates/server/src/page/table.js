// A table that keeps its rows while their numbers change, with focus, selection and scroll
// position.
//
// The roles are set explicitly, because a phone shows each row as a card with a grid layout.
// Browsers drop the table roles of such elements.

import { el, say, set } from "./dom.js";

/** Returns a column's cell that shows `text(row)`. */
export function words(text) {
  return () => {
    const element = el("span");
    return { element, show: (row) => say(element, text(row)) };
  };
}

/**
 * Creates a table with the label `label`.
 *
 * A column is `{ label, title?, kind?, sort?, cell }`. `cell()` creates `{ element, show(row) }`,
 * `kind` is its class, and `sort` is the name of its order. `id(row)` identifies a row.
 * `sortBy(column)` is called when a column's head is pressed.
 */
export function table({ label, columns, id, sortBy }) {
  const heads = columns.map((column) => head(column, sortBy));
  const body = el("tbody", { role: "rowgroup" });
  const element = el(
    "table",
    { role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map((head) => head.element))),
    body,
  );
  let known = new Map();

  return {
    element,
    /** Shows exactly these rows, in this order. */
    show(rows) {
      const focused = document.activeElement;
      const next = new Map();
      let place = body.firstElementChild;
      for (const row of rows) {
        const name = id(row);
        const line = known.get(name) ?? makeLine(columns);
        known.delete(name);
        next.set(name, line);
        line.show(row);
        if (line.element === place) place = place.nextElementSibling;
        else body.insertBefore(line.element, place);
      }
      for (const line of known.values()) line.element.remove();
      known = next;
      // A row loses the focus when it moves.
      if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
    },
    /** Marks the column that the rows are sorted by. */
    sorted(name, descending) {
      for (const head of heads) head.show(name, descending);
    },
    /**
     * Moves the focus from the link of its row by `by` rows. Without a focused row, the first row
     * gets the focus.
     */
    move(by) {
      const links = [...body.querySelectorAll("tr a")];
      const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
      const to = at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1);
      links[to]?.focus();
      links[to]?.closest("tr").scrollIntoView({ block: "nearest" });
    },
    /** Focuses the link of this row. Returns false if the row is not in the table. */
    focus(name) {
      const link = known.get(name)?.element.querySelector("a");
      link?.focus();
      return Boolean(link);
    },
  };
}

function head(column, sortBy) {
  const { label, title, kind, sort } = column;
  const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
  const inside = sort ? el("button", { type: "button", click: () => sortBy(column) }, label, arrow) : label;
  const element = el("th", { scope: "col", role: "columnheader", class: kind, title }, inside);
  return {
    element,
    show(name, descending) {
      const here = Boolean(sort) && name === sort;
      set(element, "aria-sort", here ? (descending ? "descending" : "ascending") : null);
      say(arrow, here ? (descending ? "▾" : "▴") : "");
    },
  };
}

function makeLine(columns) {
  const cells = columns.map((column) => column.cell());
  const element = el(
    "tr",
    { role: "row" },
    columns.map(({ label, kind }, i) =>
      el("td", { role: "cell", class: kind, "data-label": label }, cells[i].element),
    ),
  );
  return {
    element,
    show(row) {
      for (const cell of cells) cell.show(row);
    },
  };
}
