import type { Client } from "./client.js";
import { Paced, type PacedOptions } from "./paced.js";
import { isRedirect, REDIRECTS_MAX } from "./redirect.js";

interface Page {
  once(event: "close", listener: () => void): unknown;
  off(event: "close", listener: () => void): unknown;
}

/** The part of a route of Playwright that matters here. */
interface Route {
  request(): {
    url(): string;
    method(): string;
    postData(): string | null;
    frame(): { page(): Page };
  };
  fetch(options: { url: string; maxRedirects: number; timeout: number }): Promise<Answer>;
  fulfill(options: { response: never }): Promise<void>;
  continue(): Promise<void>;
  abort(): Promise<void>;
}

interface Answer {
  status(): number;
  headers(): Record<string, string>;
  body(): Promise<Buffer>;
}

/**
 * Returns a handler for `page.route("**\/*", politeRoute(client))` of Playwright. Each request of
 * the page, and each redirect of a GET, waits for its permit, is reported, and is sent again if the
 * coordinator says so. A page that is closed gives up its waits. Pages need `timeout: 0`, so that
 * they wait for their host.
 */
export function politeRoute(client: Client, options: PacedOptions = {}): (route: Route) => Promise<void> {
  return async (route) => {
    const request = route.request();
    if (!/^https?:/.test(request.url())) return route.continue();
    const page = request.frame().page();
    const closed = new AbortController();
    const close = () => closed.abort();
    page.once("close", close);
    try {
      const response = await answer(client, route, options, closed.signal);
      await route.fulfill({ response: response as never });
    } catch (error) {
      if (closed.signal.aborted) return;
      client.log(`${request.url()}: ${String(error)}`);
      await route.abort();
    } finally {
      page.off("close", close);
    }
  };
}

/**
 * Returns the answer at the end of the redirects, which the browser would follow past its routes.
 */
async function answer(client: Client, route: Route, options: PacedOptions, signal: AbortSignal): Promise<Answer> {
  const request = route.request();
  const method = request.method();
  const hops = method === "GET" ? REDIRECTS_MAX : 0;
  let url = request.url();
  for (let hop = 0; ; hop += 1) {
    const paced = new Paced(client, url, method, options, request.postData());
    const response = await paced.send(async (attempt) => {
      const maxRedirects = hops ? 0 : REDIRECTS_MAX;
      const come = await route.fetch({ url, maxRedirects, timeout: 0 }).catch((error: unknown) => {
        throw signal.aborted ? signal.reason : coded(error);
      });
      const isWhole = attempt.head(come.status(), Object.entries(come.headers()));
      attempt.part(await come.body(), isWhole);
      await attempt.end();
      return come;
    }, signal);
    const { location } = response.headers();
    if (location === undefined || !isRedirect(response.status()) || hop >= hops) return response;
    url = new URL(location, url).href;
  }
}

/** Returns an error with the code that Playwright has in the text of its error only. */
function coded(error: unknown): Error {
  const text = String(error);
  const code = text.includes("socket hang up") ? "ECONNRESET" : /\bE[A-Z_]{4,}\b/.exec(text)?.[0];
  return Object.assign(new Error(text), { code });
}
