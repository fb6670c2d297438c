// The theme, dark or light. It follows the system until the user chooses one, and the browser
// stores the choice.
"use strict";

const THEMES = ["auto", "light", "dark"];

const theme = {
  read() {
    try {
      const kept = localStorage.getItem("theme");
      return THEMES.includes(kept) ? kept : "auto";
    } catch {
      return "auto"; // the browser may forbid storage
    }
  },
  put(name) {
    document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("theme", name);
    } catch {
      // Without storage, the choice lasts as long as the page.
    }
    theme.tell();
  },
  next() {
    const now = THEMES.indexOf(document.documentElement.dataset.theme);
    theme.put(THEMES[(now + 1) % THEMES.length]);
  },
  tell() {
    const name = document.documentElement.dataset.theme;
    const button = document.getElementById("theme");
    button.textContent = name[0].toUpperCase() + name.slice(1);
    button.setAttribute("aria-label", `Theme: ${name}. Change it`);
  },
};

document.documentElement.dataset.theme = theme.read();
document.addEventListener("DOMContentLoaded", () => {
  theme.tell();
  document.getElementById("theme").addEventListener("click", theme.next);
});
