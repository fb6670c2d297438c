// The coordinator's API: JSON under api/v1, problems as RFC 9457 has them.

// From `origin`, since an address with a password in it cannot be fetched from.
const BASE = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}api/v1/`;

/** What the coordinator says is wrong; `field` is the path of what is wrong in the body, `status` 0 if no answer came. */
export class Problem extends Error {
  constructor(status, detail, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

/** The JSON at `path`. Throws a Problem. */
export function get(path, query, signal) {
  const asked = new URLSearchParams(query ?? {}).toString();
  return call(asked ? `${path}?${asked}` : path, { signal });
}

/** Changes what is at `path`; the answer is what it is now. Throws a Problem. */
export function patch(path, body) {
  const headers = { "content-type": "application/json" };
  return call(path, { method: "PATCH", headers, body: JSON.stringify(body) });
}

/** The path of a key: a name may hold anything, slashes too. */
export function keyPath(key) {
  return `keys/${encodeURIComponent(key)}`;
}

/** The stream of events. */
export function stream() {
  return new EventSource(`${BASE}events`);
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(BASE + path, { ...options, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The coordinator does not answer.");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  const detail = body?.detail || body?.title || `The coordinator answered ${response.status}.`;
  throw new Problem(response.status, detail, body?.field);
}
