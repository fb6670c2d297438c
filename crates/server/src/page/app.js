// The dashboard: which page is shown, and what the keyboard does. One file a page; no framework, nothing to build.

import { el } from "./dom.js";
import { events, listen } from "./events.js";
import { fleet } from "./fleet.js";
import { keyPage } from "./key.js";
import { keys } from "./keys.js";
import { keyboard } from "./keyboard.js";
import { settings } from "./settings.js";
import { workers } from "./workers.js";

const main = document.getElementById("main");
const PAGES = { keys, workers, events, settings };
let shown = null;

/** `#/key/NAME`, `#/workers`, `#/?q=text`: which page, of which key, asked what. */
function route() {
  const [path, query = ""] = splitOnce(location.hash.replace(/^#\/?/, ""), "?");
  const [page, rest = ""] = splitOnce(path, "/");
  if (page === "key" && rest) return { page: "key", key: decode(rest), query };
  return { page: Object.hasOwn(PAGES, page) ? page : "keys", query };
}

function splitOnce(text, at) {
  const found = text.indexOf(at);
  return found < 0 ? [text] : [text.slice(0, found), text.slice(found + 1)];
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand, with a bare %
  }
}

function show() {
  const { page, key, query } = route();
  const from = shown?.key;
  shown?.stop?.();
  const place = el("div", { class: `page page-${page}` });
  main.replaceChildren(place);
  shown = { key, ...(page === "key" ? keyPage(place, key) : PAGES[page](place, new URLSearchParams(query), from)) };
  document.title = `${shown.title} · politely`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.page === (page === "key" ? "keys" : page);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address is no page of ours
  main.focus();
});
window.addEventListener("hashchange", show);
fleet(document.getElementById("fleet"));
listen();
keyboard(() => shown);
show();
