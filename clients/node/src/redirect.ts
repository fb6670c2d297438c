// Follows redirects as the standard of fetch does: each hop is a request that waits for its permit.
import { canRepeat } from "./paced.js";

/** The largest number of hops, as in the standard. */
export const REDIRECTS_MAX = 20;
const REDIRECTS = [301, 302, 303, 307, 308];
/** Headers that describe a body, and headers that no other origin may have. */
const OF_BODY = ["content-encoding", "content-language", "content-location", "content-type", "content-length"];
const OF_ORIGIN = ["authorization", "proxy-authorization", "cookie", "host"];

/** A request as it was given to fetch. */
export interface Sent {
  input: string | URL | Request;
  url: string;
  method: string;
  init: RequestInit;
}

/** Returns whether an answer with this status names another URL. */
export function isRedirect(status: number): boolean {
  return REDIRECTS.includes(status);
}

/** Returns the request of the next hop. Throws a `TypeError` if its body cannot be sent again. */
export function nextHop(sent: Sent, response: Response): Sent | undefined {
  const { input, url, method, init } = sent;
  const location = response.headers.get("location");
  if (location === null || !isRedirect(response.status)) return undefined;
  const target = new URL(location, url);
  if (!target.hash) target.hash = new URL(url).hash;
  const request = input instanceof Request ? input : undefined;
  const headers = new Headers(init.headers ?? request?.headers);
  const becomesGet =
    response.status === 303 ? method !== "HEAD" : response.status < 303 && method === "POST";
  if (!becomesGet && !canRepeat(bodyOf(sent))) {
    throw new TypeError(`${url}: a redirect of a request whose body cannot be sent again`);
  }
  const { body, ...rest } = init;
  if (becomesGet) for (const name of OF_BODY) headers.delete(name);
  if (target.origin !== new URL(url).origin) for (const name of OF_ORIGIN) headers.delete(name);
  const next = becomesGet ? "GET" : method;
  const kept = becomesGet || body === undefined ? {} : { body };
  return { input: target.href, url: target.href, method: next, init: { ...rest, ...kept, method: next, headers } };
}

export function bodyOf({ input, init }: Sent): unknown {
  return init.body ?? (input instanceof Request ? input.body : null);
}
