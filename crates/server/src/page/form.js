// Forms that show their problems beside the fields.

import { Problem } from "./api.js";
import { el, say, set } from "./dom.js";

let forms = 0;

/**
 * Creates a form with a button `verb`. A field is `{ name, label, unit?, hint? }` and holds a
 * number or nothing.
 *
 * `send(values)` receives the filled fields by name. Its Problem is shown beside the field that it
 * names, by the last part of the path. A Problem without a field is shown below the form.
 * `done(values)` returns the message of success.
 */
export function numbers({ label, fields, verb, send, done, empty = "Nothing to set." }) {
  forms += 1;
  const inputs = fields.map((field) => makeField(`f${forms}-${field.name}`, field));
  const told = el("p", { class: "told", role: "status" });
  const button = el("button", { type: "submit" }, verb);
  const form = el(
    "form",
    { class: "numbers", novalidate: true, "aria-label": label, submit },
    inputs.map((input) => input.element),
    button,
    told,
  );

  async function submit(event) {
    event.preventDefault();
    tell("", false);
    for (const input of inputs) input.complain("");
    const filled = inputs.filter((input) => input.text() !== "");
    const wrong = filled.filter((input) => Number.isNaN(Number(input.text())));
    for (const input of wrong) input.complain("must be a number");
    if (wrong.length > 0) return wrong[0].focus();
    if (filled.length === 0) return tell(empty, true);
    const values = Object.fromEntries(filled.map((input) => [input.name, Number(input.text())]));
    button.disabled = true;
    try {
      await send(values);
      for (const input of filled) input.clear();
      tell(done(values), false);
    } catch (error) {
      const named = error instanceof Problem && error.field?.split(".").pop();
      const input = inputs.find((input) => input.name === named || input.alias === named);
      if (input) input.complain(error.message), input.focus();
      else tell(error.message, true);
    } finally {
      button.disabled = false;
    }
  }
  function tell(text, bad) {
    say(told, text);
    told.classList.toggle("bad", bad);
  }

  return {
    element: form,
    /** Shows the current values by name, as the placeholders of empty fields. */
    show(values) {
      for (const input of inputs) input.show(values[input.name]);
    },
  };
}

function makeField(id, { name, alias, label, unit, hint }) {
  const wrong = el("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
  const input = el("input", { id, name, type: "text", inputmode: "decimal", autocomplete: "off", "aria-describedby": `${id}-wrong` });
  const element = el(
    "div",
    { class: "field" },
    el("label", { for: id, title: hint }, label),
    el("span", { class: "with-unit" }, input, unit ? el("span", { class: "unit" }, unit) : null),
    wrong,
  );
  return {
    name,
    alias,
    element,
    text: () => input.value.trim(),
    focus: () => input.focus(),
    clear() {
      input.value = "";
    },
    show: (value) => set(input, "placeholder", value ?? ""),
    complain(message) {
      say(wrong, message);
      wrong.hidden = message === "";
      set(input, "aria-invalid", message === "" ? null : "true");
    },
  };
}

/** Creates a button that asks for confirmation in the page before it does what `verb` says. */
export function careful({ verb, question, act, done }) {
  const told = el("p", { class: "told", role: "status" });
  const first = el("button", { type: "button", class: "danger", click: ask }, `${verb}…`);
  const yes = el("button", { type: "button", class: "danger", click: go }, verb);
  const no = el("button", { type: "button", class: "quiet", click: () => close(true) }, "Keep it");
  const asked = el("div", { class: "asked", role: "group", "aria-label": question, hidden: true }, el("p", {}, question), yes, no);

  function ask() {
    say(told, "");
    first.hidden = true;
    asked.hidden = false;
    no.focus(); // pressing Enter twice changes nothing
  }
  function close(focus) {
    asked.hidden = true;
    first.hidden = false;
    if (focus) first.focus();
  }
  async function go() {
    close(true);
    await answer(told, act, done);
  }

  return el("div", { class: "careful" }, first, asked, told);
}

/** Creates a button that does what `verb` says at once. */
export function plain({ verb, act, done }) {
  const told = el("p", { class: "told", role: "status" });
  const button = el("button", { type: "button", click: () => answer(told, act, done) }, verb);
  return el("div", { class: "careful" }, button, told);
}

async function answer(told, act, done) {
  let bad = false;
  let text = done;
  try {
    await act();
  } catch (error) {
    [bad, text] = [true, error.message];
  }
  say(told, text);
  told.classList.toggle("bad", bad);
}
