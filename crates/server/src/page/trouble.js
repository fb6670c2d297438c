// The line under the head that says when the numbers are old.

import { say } from "./dom.js";

const line = document.getElementById("trouble");
const troubles = new Map();

/** `who` cannot show what is true now; without a problem, it can again. */
export function trouble(who, problem) {
  if (problem) troubles.set(who, problem.message);
  else troubles.delete(who);
  const [message] = troubles.values();
  say(line, message ? `${message} What is shown may be old; trying again.` : "");
  line.hidden = !message;
  document.body.classList.toggle("stale", Boolean(message));
}
