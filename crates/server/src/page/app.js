// The dashboard's entry: it selects the page and connects the keyboard. Each page is one file,
// without a framework and without a build step.

import { audit } from "./audit.js";
import { crawls } from "./crawls.js";
import { el } from "./dom.js";
import { events, listen } from "./events.js";
import { fleet } from "./fleet.js";
import { keyPage } from "./key.js";
import { keys } from "./keys.js";
import { keyboard } from "./keyboard.js";
import { settings } from "./settings.js";
import { workers } from "./workers.js";

const main = document.getElementById("main");
const PAGES = { keys, workers, crawls, events, audit, settings };
let shown = null;

/** Parses the address, such as `#/key/NAME`, `#/workers` or `#/?q=text`. */
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
    return text; // the address was typed by hand and contains a bare %
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
  event.preventDefault(); // the link's address is not a page of the dashboard
  main.focus();
});
window.addEventListener("hashchange", show);
fleet(document.getElementById("fleet"));
listen();
keyboard(() => shown);
show();
