import { remade, watched } from "./body.js";
import { Client } from "./client.js";
import { Paced, unaskedPart, type Attempt, type PacedOptions } from "./paced.js";
import { bodyOf, nextHop, REDIRECTS_MAX, type Sent } from "./redirect.js";

type Fetch = typeof globalThis.fetch;

export interface FetchOptions extends PacedOptions {
  /** Sends the requests. Default: the global fetch. */
  fetch?: Fetch | undefined;
}

/**
 * Returns a fetch whose requests wait for their permits, are reported, and are sent again if the
 * coordinator says so and the body can be repeated, which a stream or a `Request` with a body
 * cannot.
 *
 * Each redirect is a request with a permit of its own. Error answers are read whole before they are
 * returned, because they decide what becomes of the request. Other bodies stream, and the slot is
 * taken until the body has come, is cancelled or is dropped. The signal of a request works at every
 * moment. Throws as fetch does, and as `Client.acquire`.
 */
export function politeFetch(client: Client, options: FetchOptions = {}): Fetch {
  const { fetch: given, ...paced } = options;
  return async (input, init = {}) => {
    const request = input instanceof Request ? input : undefined;
    const signal = init.signal ?? request?.signal;
    let sent: Sent = {
      input,
      url: request?.url ?? String(input),
      method: (init.method ?? request?.method ?? "GET").toUpperCase(),
      init,
    };
    const redirect = init.redirect ?? request?.redirect ?? "follow";
    for (let hops = 0; ; hops += 1) {
      const sending = new Sending(client, given ?? globalThis.fetch, paced, sent, signal ?? undefined);
      const response = await sending.response();
      const hop = redirect === "manual" ? undefined : nextHop(sent, response);
      if (!hop) return hops ? Object.defineProperty(response, "redirected", { value: true }) : response;
      await response.body?.cancel();
      if (redirect === "error") throw new TypeError(`${sent.url}: a redirect, which was not to be followed`);
      if (hops === REDIRECTS_MAX) throw new TypeError(`${sent.url}: more than ${REDIRECTS_MAX} redirects`);
      await client.sleep(sending.targetAfterMs, signal ?? undefined);
      sent = hop;
    }
  };
}

let shared: Fetch | undefined;

/** `politeFetch` with the coordinator of `POLITELY_COORDINATOR`, or this machine's. */
export const fetch: Fetch = (input, init) => (shared ??= politeFetch(new Client()))(input, init);

/** One hop of a request: its attempts until its answer. */
class Sending {
  /** Milliseconds for which a redirect asked to wait before its target is requested. */
  targetAfterMs = 0;
  readonly #paced: Paced;

  constructor(
    private readonly client: Client,
    private readonly fetch: Fetch,
    options: PacedOptions,
    private readonly sent: Sent,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.#paced = new Paced(client, sent.url, sent.method, options, bodyOf(sent));
  }

  response(): Promise<Response> {
    return this.#paced.send((attempt) => this.#attempt(attempt), this.signal);
  }

  async #attempt(attempt: Attempt): Promise<Response> {
    const { input, init, url } = this.sent;
    const signal = this.signal ? AbortSignal.any([this.signal, attempt.permit.signal]) : attempt.permit.signal;
    const response = await this.fetch(input, { ...init, redirect: "manual", signal });
    const isWhole = attempt.head(response.status, response.headers);
    const part = unaskedPart(
      response.status, response.headers.get("content-range") ?? "", this.#asksFor("range"),
    );
    const isRedirect = response.status >= 300 && response.status < 400;
    if (part !== undefined || isRedirect || isWhole || !response.body) {
      const body = isWhole && response.body ? new Uint8Array(await response.arrayBuffer()) : undefined;
      if (body) attempt.part(body, true);
      else if (part !== undefined) await response.body?.cancel();
      this.targetAfterMs = (await attempt.end())?.targetAfterMs ?? 0;
      if (part !== undefined) throw new TypeError(`${url}: ${part}`);
      return body ? remade(response, body, response.url || url) : response;
    }
    attempt.bodyComes();
    return watched(response, {
      part: (bytes) => attempt.part(bytes),
      end: (error) => this.client.carry(attempt.end(error)),
    });
  }

  #asksFor(header: string): boolean {
    const { input, init } = this.sent;
    return new Headers(init.headers ?? (input instanceof Request ? input.headers : {})).has(header);
  }
}
