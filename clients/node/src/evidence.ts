// Classifies responses and errors of fetch, undici, node:http, axios and got, by codes and names:
// none of these packages must be installed.
import type { ErrorKind, SendBodies } from "./wire.js";

/** The number of bytes that the coordinator reads of a body. */
export const BODY_START_MAX = 16 * 1024;

const HEADERS = new Set([
  "age", "cf-mitigated", "content-type", "date", "retry-after", "retry-after-ms", "server", "via",
  "x-amzn-waf-action", "x-ms-retry-after-ms", "x-shopify-shop-api-call-limit", "x-should-retry",
]);
const HEADER_PARTS = ["ratelimit", "rate-limit", "x-app-limit", "x-user-limit"];

/**
 * Returns the headers about limits and block pages, or all for rules of the coordinator; never
 * cookies.
 */
export function headersThatMatter(
  headers: Iterable<readonly [string, string]>, asked?: SendBodies,
): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    const isAboutLimits = HEADERS.has(lower) || HEADER_PARTS.some((part) => lower.includes(part));
    if (isAboutLimits || (asked && lower !== "set-cookie")) found[lower] = value;
  }
  return found;
}

/** Returns whether a body decides what becomes of its request, so that it is read first. */
export function isReadWhole(status: number, asked: SendBodies): boolean {
  return status >= 400 || asked === "all";
}

/**
 * Returns the beginning of a body that is evidence. Error pages may be block pages or state a limit
 * in words. The text of a missing page says nothing, unless a rule of the coordinator reads it.
 */
export function bodyStartOf(status: number, body: Uint8Array, asked: SendBodies): string | undefined {
  const matters = asked === "all" || (status >= 400 && status !== 404 && status !== 410);
  return matters && (body.length || asked) ? new TextDecoder().decode(body.subarray(0, BODY_START_MAX)) : undefined;
}

const KINDS: [ErrorKind, RegExp][] = [
  // The most specific kind comes first: a failed lookup is a failed connection too.
  ["no_such_host", /^(ENOTFOUND|ENODATA)$/],
  ["tls", /^(ERR_TLS|ERR_SSL|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|EPROTO$)/],
  ["resolver", /^(EAI_|ESERVFAIL|EREFUSED|ETIMEOUT$)/],
  ["timeout", /^(ETIMEDOUT|ESOCKETTIMEDOUT|TimeoutError$|LeaseLost$|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT)/],
  ["malformed", /^(HPE_|Z_|ERR_HTTP_|UND_ERR_(HEADERS_OVERFLOW|RES_|RESPONSE$))/],
  ["reset", /^(ECONNRESET|EPIPE|UND_ERR_SOCKET|ERR_STREAM_PREMATURE_CLOSE|ERR_HTTP2)/],
  ["connect", /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENETDOWN|EHOSTDOWN)$/],
];

/** Returns why no response came, or undefined if this is not evidence about the host. */
export function errorKind(error: unknown): ErrorKind | undefined {
  const names = new Set<string>();
  collect(error, names, new Set());
  if (names.has("AbortError") || names.has("CanceledError")) return undefined;
  for (const [kind, pattern] of KINDS) {
    for (const name of names) if (pattern.test(name)) return kind;
  }
  // axios has this code for its time-out, and Node for a connection that was given up.
  return names.has("ECONNABORTED") ? "timeout" : undefined;
}

/** Collects the names and codes of an error and its causes, which may form a cycle. */
function collect(error: unknown, names: Set<string>, seen: Set<unknown>): void {
  if (typeof error !== "object" || error === null || seen.has(error) || seen.size > 20) return;
  seen.add(error);
  const { code, name, cause, errors } = error as NodeJS.ErrnoException & { errors?: unknown };
  for (const each of [code, name]) if (typeof each === "string") names.add(each);
  collect(cause, names, seen);
  if (Array.isArray(errors)) for (const each of errors) collect(each, names, seen);
}
