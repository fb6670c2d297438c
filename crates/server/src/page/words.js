// Numbers with their units, formatted for people.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const ONE = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const TWO = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Formats a count: `12,345`. */
export function count(number) {
  return WHOLE.format(number);
}

/** Formats a count, and shortens it from a million on: `1.23M`. */
export function brief(number) {
  return number < 1_000_000 ? WHOLE.format(number) : SHORT.format(number);
}

/** Formats a rate without its unit: `0.25`, `12.5`, `1,250`. An absent rate is unbounded. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined || perSecond >= 1e9) return "no bound";
  if (perSecond >= 100) return WHOLE.format(perSecond);
  return perSecond >= 10 ? ONE.format(perSecond) : TWO.format(perSecond);
}

/** Formats a share: `3.2 %`. */
export function share(of) {
  if (of === 0) return "0 %";
  return of < 0.001 ? "< 0.1 %" : `${ONE.format(of * 100)} %`;
}

/** Formats a duration: `85 ms`, `3.2 s`, `2 min 5 s`, `1 h 20 min`, `3 d 4 h`. */
export function duration(ms) {
  if (ms < 1000) return `${WHOLE.format(ms)} ms`;
  if (ms < 10_000) return `${ONE.format(ms / 1000)} s`;
  const s = Math.round(ms / 1000);
  const two = (large, one, small, other) => (small ? `${large} ${one} ${small} ${other}` : `${large} ${one}`);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return two(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

/** Formats an age: `12 s ago`. Ages below a second are `now`. */
export function ago(ms) {
  if (ms < 1000) return "now";
  return ms < 60_000 ? `${Math.floor(ms / 1000)} s ago` : `${duration(ms)} ago`;
}

/** Formats bytes: `3.4 MB`. */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; number >= 1000 && at < units.length - 1; at += 1) number /= 1000;
  return `${at ? ONE.format(number) : number} ${units[at]}`;
}

/** Returns a sentence about the hours whose counts are incomplete, or nothing. */
export function incomplete(hours = []) {
  if (hours.length === 0) return "";
  const from = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
  const named = hours.length > 3 ? `${hours.length} hours until ${from(hours.at(-1))}` : hours.map(from).join(", ");
  return ` Incomplete hours: ${named}. A coordinator was killed in them or is cut off, or this one does not know them whole.`;
}
