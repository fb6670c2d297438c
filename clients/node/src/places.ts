import { CLOSING } from "./asked.js";
import { AWAY, type NoReply, type Reply } from "./talk.js";
import type { Json } from "./wire.js";

const DEFAULT_URL = "http://127.0.0.1:7077";

/**
 * Coordinators that share their keys. The first is called. If it does not answer or is closing, the
 * next one is called.
 */
export class Places {
  readonly #urls: string[];
  #current = 0;

  /** Throws a `TypeError` if a URL is invalid. */
  constructor(urls: string | readonly string[] = process.env.POLITELY_COORDINATOR || DEFAULT_URL) {
    this.#urls = (typeof urls === "string" ? urls.split(",") : urls).map((url) => apiOf(url.trim()));
    if (!this.#urls.length) throw new TypeError("no coordinator is named");
  }

  get count(): number {
    return this.#urls.length;
  }

  /** The URL of the API to call. */
  get current(): string {
    return this.#urls[this.#current] as string;
  }

  /**
   * Takes the reply from `url`. If it does not serve the call, the next place is called from now
   * on.
   */
  heard(url: string, reply: Reply | NoReply): Reply | NoReply {
    if (this.count === 1 || !isLeaving(reply)) return reply;
    // Of several concurrent failures only one moves on.
    if (this.current === url) this.#current = (this.#current + 1) % this.count;
    // The Retry-After is only about the coordinator that sent it.
    return { ...reply, retryAfterMs: undefined };
  }
}

/** Returns the URL of the API of the named coordinator. `http://` is assumed. */
function apiOf(named: string): string {
  const url = named.includes("://") ? named : `http://${named}`;
  if (!/^https?:\/\//.test(url)) {
    throw new TypeError(`a coordinator's URL begins with http:// or https://: "${named}"`);
  }
  const host = URL.canParse(url) ? new URL(url).hostname : "";
  // "http:/a" would be the host "http".
  if (!host || (url !== named && /^https?$/.test(host))) {
    throw new TypeError(`a coordinator's URL is http://HOST:PORT: "${named}"`);
  }
  return `${url.replace(/\/+$/, "")}/api/v1`;
}

function isLeaving(reply: Reply | NoReply): boolean {
  if ("why" in reply || AWAY.includes(reply.status)) return true;
  const said = Object(reply.body) as Json;
  const items = said.acquire ?? said.items;
  return Array.isArray(items) && items.some((item: Json) => item?.code === CLOSING);
}
