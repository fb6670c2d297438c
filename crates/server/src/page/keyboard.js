// Keyboard shortcuts. A page handles its own keys in `press(key)`, which returns true if it used
// the key.

const PAGES = {
  1: "#/",
  2: "#/workers",
  3: "#/crawls",
  4: "#/events",
  5: "#/audit",
  6: "#/settings",
};
const help = document.getElementById("keyboard");

function typing(element) {
  return element.matches("input, select, textarea, [contenteditable]");
}

/** Listens for keys. `page` returns the page that is shown. */
export function keyboard(page) {
  document.getElementById("help").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    if (used(event, page())) event.preventDefault();
  });
}

function used(event, page) {
  const { key, target } = event;
  if (typing(target)) {
    if (key !== "Escape") return false;
    target.blur();
    return true;
  }
  if (page?.press?.(key)) return true;
  if (key === "?") help.showModal();
  else if (key === "t") theme.next();
  else if (Object.hasOwn(PAGES, key)) location.hash = PAGES[key];
  else if (key === "/") location.hash = "#/?find";
  else if (key === "Escape" && target !== document.body) target.blur();
  else if (key === "Escape") location.hash = "#/";
  else return false;
  return true;
}
