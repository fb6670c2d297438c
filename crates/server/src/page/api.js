// The coordinator's API: JSON under `api/v1`, and problem documents as in RFC 9457.

// The base begins with `origin`, because `fetch` rejects an address that contains a password.
const BASE = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}api/v1/`;

/**
 * A problem that the coordinator reports. `field` is the path of the wrong field in the body, and
 * `status` is 0 if no answer came.
 */
export class Problem extends Error {
  constructor(status, detail, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

/** Returns the JSON at `path`. Throws a Problem. */
export function get(path, query, signal) {
  const asked = new URLSearchParams(query ?? {}).toString();
  return call(asked ? `${path}?${asked}` : path, { signal });
}

/** Changes the resource at `path` and returns its new state. Throws a Problem. */
export function patch(path, body) {
  const headers = { "content-type": "application/json" };
  return call(path, { method: "PATCH", headers, body: JSON.stringify(body) });
}

/** Returns the path of a key. A key's name may contain any character, slashes too. */
export function keyPath(key) {
  return `keys/${encodeURIComponent(key)}`;
}

/** Opens the stream of events. */
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
