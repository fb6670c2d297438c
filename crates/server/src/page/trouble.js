// The line below the head that says when the numbers are outdated.

import { say } from "./dom.js";

const line = document.getElementById("trouble");
const troubles = new Map();

/** Shows that the part `who` cannot be updated. Without a problem, it clears the message. */
export function trouble(who, problem) {
  if (problem) troubles.set(who, problem.message);
  else troubles.delete(who);
  const [message] = troubles.values();
  say(line, message ? `${message} What is shown may be old; trying again.` : "");
  line.hidden = !message;
  document.body.classList.toggle("stale", Boolean(message));
}
